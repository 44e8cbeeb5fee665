package placement_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
)

// copyOf copies a committed model, whose weights change edits: the header, and the bytes behind it.
func copyOf(t *testing.T, name string, change func(header, data []byte)) string {
	t.Helper()
	from, to := golden.OwnDir(t, name), t.TempDir()
	for _, file := range []string{"config.json", "model.safetensors"} {
		b, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			t.Fatal(err)
		}
		if file == "model.safetensors" {
			n := binary.LittleEndian.Uint64(b)
			change(b[8:8+n], b[8+n:])
		}
		if err := os.WriteFile(filepath.Join(to, file), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// TestScalesThatAreNotFiniteWereNotNamed: a model with a damaged scale failed with "logits are not finite" alone.
func TestScalesThatAreNotFiniteWereNotNamed(t *testing.T) {
	for name, suffix := range map[string]string{
		"small-llama-fp8": "_scale_inv", "small-llama-fp8-e8m0": "_scale_inv", "small-llama-gptq4": ".scales", "small-llama-ct-int8": "_scale",
		"small-llama-ct-nvfp4": "_global_scale", "small-llama-ct-w4a16": "_scale", "small-llama-bnb-nf4": ".nested_absmax", "small-llama-ct-mxfp8": "_scale",
	} {
		tensor := "model.layers.0.mlp.up_proj.weight" + suffix
		if suffix[0] == '.' && !strings.Contains(suffix, "absmax") {
			tensor = "model.layers.0.mlp.up_proj" + suffix
		}
		dir := copyOf(t, name, func(header, data []byte) {
			var tensors map[string]struct {
				Offsets [2]int `json:"data_offsets"`
			}
			if err := json.Unmarshal(header, &tensors); err != nil {
				t.Fatal(err)
			}
			at := tensors[tensor].Offsets
			if at[1] == 0 {
				t.Fatalf("%s has no %s", name, tensor)
			}
			copy(data[at[0]:at[1]], bytes.Repeat([]byte{0xff}, 4)) // a NaN in every dtype
		})
		skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
		m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}), dispatch.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, err = range m.Generate(context.Background(), []int32{3, 4, 5}, dispatch.GenerateOptions{MaxTokens: 2}) {
			if err != nil {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), tensor) || !strings.Contains(err.Error(), "not finite") {
			t.Errorf("%s: error %v, want one that names %s", name, err, tensor)
		}
		m.Close()
	}
}

// TestAMissingZeroPointWasZero: weights of a group with zero points were read without, if their file lacked them.
func TestAMissingZeroPointWasZero(t *testing.T) {
	for _, name := range []string{"small-llama-ct-int8-zeros", "small-llama-ct-w4a16-zeros"} {
		const tensor = "model.layers.0.mlp.up_proj.weight_zero_point"
		dir := copyOf(t, name, func(header, _ []byte) {
			at := bytes.Index(header, []byte(tensor))
			if at < 0 {
				t.Fatalf("%s has no %s", name, tensor)
			}
			header[at+len(tensor)-1] = 'x'
		})
		skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
		_, err := loader.Bind(checkpoint, skeleton)
		if err == nil || !strings.Contains(err.Error(), tensor+" is missing") {
			t.Errorf("%s: error %v, want that %s is missing", name, err, tensor)
		}
	}
}

// TestDecodingNewFamiliesAllocatesNothing holds law 5 for the rules and formats that the demo does not have.
func TestDecodingNewFamiliesAllocatesNothing(t *testing.T) {
	for _, name := range []string{
		"family-gemma4-dense-1", "family-gemma4-experts-1", "family-gemma4-small-1", "family-llama4-text-1", "family-phimoe-1", "family-mimo-v2-flash-1",
		"family-apertus-2", "family-falcon-grouped-1", "family-hunyuan-v1-moe-1", "family-bamba-1", "family-zamba-2", "family-zamba2-14", "family-step3p5-13", "family-mistral-large4-77", "family-inkling-text-24",
		"small-llama-bnb-nf4", "small-llama-fp8-e8m0",
	} {
		policy, err := devicemap.ParsePolicy("cpu")
		if err != nil {
			t.Fatal(err)
		}
		m, err := dispatch.Open(golden.OwnDir(t, name), dispatch.Options{Threads: 2, MaxSequences: 8, DeviceMap: policy})
		if err != nil {
			t.Fatal(err)
		}
		if n := dispatchtest.Allocations(t, m, 1); n != 0 {
			t.Errorf("%s: %v allocations a token", name, n)
		}
		m.Close()
	}
}
