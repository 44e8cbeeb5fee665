package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/golden"
)

// command runs a command line and returns its output.
func command(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if got := run(args, &out, &errs); got != want {
		t.Fatalf("serve %s: status %d, want %d; %s", strings.Join(args, " "), got, want, errs.String())
	}
	return out.String(), errs.String()
}

// parse runs a command line and reads the object that it prints.
func parse(t *testing.T, v any, args ...string) {
	t.Helper()
	out, _ := command(t, 0, args...)
	d := json.NewDecoder(strings.NewReader(out))
	if err := d.Decode(v); err != nil || d.More() {
		t.Fatalf("serve %s: not one JSON object (%v): %s", strings.Join(args, " "), err, out)
	}
}

// writeConfig is a folder with a config.json and nothing else.
func writeConfig(t *testing.T, fields any) string {
	t.Helper()
	b, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestEstimateAsAccelerate compares with what Accelerate's own functions say of small
// configs: scripts/make-estimate-fixtures.py.
func TestEstimateAsAccelerate(t *testing.T) {
	var cases []struct {
		Config        map[string]any `json:"config"`
		LargestLayers []string       `json:"largest_layers"`
		DTypes        []struct {
			DType    string   `json:"dtype"`
			Largest  float64  `json:"largest_layer_bytes"`
			Total    float64  `json:"total_bytes"`
			Training *float64 `json:"training_bytes"`
		} `json:"dtypes"`
	}
	if !golden.JSON(t, "testdata/estimate.json", &cases) || len(cases) < 2 {
		t.Fatal("testdata/estimate.json has no cases")
	}
	for _, c := range cases {
		t.Run(c.Config["model_type"].(string), func(t *testing.T) {
			var got estimate
			parse(t, &got, "estimate", writeConfig(t, c.Config), "--json")
			if !slices.Equal(got.LargestLayers, c.LargestLayers) {
				t.Errorf("largest layers %v, want %v", got.LargestLayers, c.LargestLayers)
			}
			for _, want := range c.DTypes {
				i := slices.IndexFunc(got.DTypes, func(d dtypeEstimate) bool { return d.DType == want.DType })
				if i < 0 {
					t.Errorf("%s is missing", want.DType)
					continue
				}
				d := got.DTypes[i]
				if d.LargestLayer != want.Largest || d.Total != want.Total {
					t.Errorf("%s: largest layer %v, total %v; want %v, %v", want.DType, d.LargestLayer, d.Total, want.Largest, want.Total)
				}
				if (d.Training == nil) != (want.Training == nil) || d.Training != nil && *d.Training != *want.Training {
					t.Errorf("%s: training %v, want %v", want.DType, d.Training, want.Training)
				}
			}
		})
	}
}

// llamaConfig has 2 layers of 2 key heads of 16.
var llamaConfig = map[string]any{"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
	"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 256, "torch_dtype": "bfloat16"}

func TestEstimateBeyondAccelerate(t *testing.T) {
	dir := writeConfig(t, llamaConfig)
	var got estimate
	parse(t, &got, "estimate", filepath.Join(dir, "config.json"), "--json", "--dtypes", "float32,int4", "--max-model-len", "100")
	if len(got.DTypes) != 2 || got.DTypes[1].DType != "int4" || got.KVTokens != 100 || got.Parameters == 0 {
		t.Fatalf("%+v", got)
	}
	const perToken = 2 * 2 * 2 * 16 // layers, keys and values, heads, their width
	for i, size := range []int64{4, 2} {
		d := got.DTypes[i]
		if want := 1000 * perToken * size; d.KVPer1K != want {
			t.Errorf("%s: %d bytes for 1000 tokens, want %d", d.DType, d.KVPer1K, want)
		}
		const runtime = dispatch.RuntimeBytes + 16<<20 // and requests
		least := d.Activations + runtime + int64(d.Total) + 100*perToken*size
		if d.Host < least || d.Host > least+16*perToken*size+256<<10 || d.Least <= runtime || d.Least > d.Host {
			t.Errorf("%s: host %d and %d, want about %d and less", d.DType, d.Host, d.Least, least)
		}
	}
	text, _ := command(t, 0, "estimate", dir)
	for _, want := range []string{"bfloat16", "training, Adam", "KV, 1k tokens", devicemap.FormatSize(1000 * 256)} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}

func TestEstimateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"dtype":    {[]string{"estimate", "--dtypes", "int3"}, 2, "int3"},
		"negative": {[]string{"estimate", "--max-model-len", "-1"}, 2, "--max-model-len"},
		"nothing":  {[]string{"estimate", filepath.Join(t.TempDir(), "gone.json")}, 1, "gone.json"},
	} {
		if _, errs := command(t, c.status, c.args...); !strings.Contains(errs, c.want) {
			t.Errorf("%s: %q, want %q", name, errs, c.want)
		}
	}
}

// TestStoredRowOfAnEstimateCountsRequests: the row of the weights as they are stored is a server's
// memory, as the other rows are.
func TestStoredRowOfAnEstimateCountsRequests(t *testing.T) {
	var got estimate
	parse(t, &got, "estimate", "--dtypes", "stored,bfloat16", "--json") // the demo is in bfloat16
	if stored, bf16 := got.DTypes[0], got.DTypes[1]; stored.Host>>20 != bf16.Host>>20 || stored.Least>>20 != bf16.Least>>20 {
		t.Errorf("stored: %d and %d bytes, bfloat16: %d and %d, want the same MiB", stored.Host, stored.Least, bf16.Host, bf16.Least)
	}
}
