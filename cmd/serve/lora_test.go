package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
)

// baseFolder is the base of the adapter fixtures as a folder that serve takes.
func baseFolder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tiny-base")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"config.json": "config.json", "init.safetensors": "model.safetensors"} {
		data, err := golden.Read(filepath.Join(filepath.Dir(golden.AdapterBase(t)), from))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), data, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestGoldenLoRAOverHTTP serves adapters that PEFT trained together with their base and asks for
// the log-probabilities of the fixtures' prompts by the names of both.
func TestGoldenLoRAOverHTTP(t *testing.T) {
	runs := golden.Glob(t, "train/lora/*/logits.safetensors")
	defer func() { golden.Count(t, "train/lora (HTTP)", len(runs)) }()
	if len(runs) == 0 {
		return
	}
	args := []string{baseFolder(t), "--precision", "high"}
	for _, file := range runs {
		run := filepath.Dir(file)
		args = append(args, "--lora", filepath.Base(run)+"="+filepath.Join(run, "final"))
	}
	p := start(t, args...)
	for _, file := range runs {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name, func(t *testing.T) {
			fixture, err := loader.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer fixture.Close()
			ids, logits, shape := numbers(t, fixture, "input_ids"), numbers(t, fixture, "adapter_logits"), []int(nil)
			x, _ := fixture.Lookup("adapter_logits")
			shape = x.Shape
			length, vocab := shape[1], shape[2]
			for i := range shape[0] {
				prompt := ids[i*length : (i+1)*length]
				got, plain := p.echo(t, name, prompt), p.echo(t, "tiny-base", prompt)
				different := false
				for k := 1; k < length; k++ {
					want := logprob(logits[(i*length+k-1)*vocab:][:vocab], int(prompt[k]))
					if !(math.Abs(got[k]-want) <= 1e-4) {
						t.Errorf("prompt %d, token %d: log-probability %v, want %v", i, k, got[k], want)
					}
					different = different || math.Abs(plain[k]-want) > 1e-3
				}
				if !different {
					t.Errorf("prompt %d: the base gives what the adapter does", i)
				}
			}
		})
	}
	p.listed(t, "tiny-base", len(runs))
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-p.end; err != nil {
		t.Fatal(err)
	}
}

// numbers is a tensor of float32 or int64.
func numbers(t *testing.T, c *loader.Checkpoint, name string) []float64 {
	t.Helper()
	x, ok := c.Lookup(name)
	if !ok {
		t.Fatalf("no %s", name)
	}
	data, err := x.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var out []float64
	for width := int(x.Size / x.Elements()); len(data) > 0; data = data[width:] {
		if width == 8 {
			out = append(out, float64(binary.LittleEndian.Uint64(data)))
		} else {
			out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(data))))
		}
	}
	return out
}

func logprob(logits []float64, id int) float64 {
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(v - logits[id])
	}
	return -math.Log(sum)
}

// echo is the log-probabilities of a prompt's tokens, 0 of the first.
func (p *process) echo(t *testing.T, model string, prompt []float64) []float64 {
	t.Helper()
	ids, _ := json.Marshal(prompt) // numbers have a form
	var answer struct {
		Model   string
		Choices []struct {
			LogProbs struct {
				Tokens []*float64 `json:"token_logprobs"`
			} `json:"logprobs"`
		}
	}
	body := fmt.Sprintf(`{"model":%q,"prompt":%s,"max_tokens":0,"echo":true,"logprobs":1}`, model, ids)
	if status := p.post(t, "/v1/completions", body, &answer); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	if answer.Model != model || len(answer.Choices) != 1 || len(answer.Choices[0].LogProbs.Tokens) != len(prompt) {
		t.Fatalf("answer %+v", answer)
	}
	out := make([]float64, len(prompt))
	for i, v := range answer.Choices[0].LogProbs.Tokens {
		if v != nil {
			out[i] = *v
		}
	}
	return out
}

func (p *process) post(t *testing.T, path, body string, into any) int {
	t.Helper()
	r, err := http.Post(p.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
	return r.StatusCode
}

// listed checks the list of models, and the answer for a missing one.
func (p *process) listed(t *testing.T, base string, adapters int) {
	t.Helper()
	var list struct {
		Data []struct {
			ID     string
			Parent *string
		}
	}
	r, err := http.Get(p.url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	if len(list.Data) != 1+adapters || list.Data[0].ID != base || list.Data[0].Parent != nil {
		t.Fatalf("models %+v", list.Data)
	}
	for _, m := range list.Data[1:] {
		if m.Parent == nil || *m.Parent != base {
			t.Errorf("%s has the parent %v, want %s", m.ID, m.Parent, base)
		}
	}
	var failed struct{ Error struct{ Code string } }
	if status := p.post(t, "/v1/completions", `{"model":"nobody","prompt":[1],"max_tokens":1}`, &failed); status != http.StatusNotFound || failed.Error.Code != "model_not_found" {
		t.Errorf("a model that is not there: %d %+v", status, failed)
	}
	r, err = http.Get(p.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if want := fmt.Sprintf(`max_lora="%d"`, adapters); err != nil || !strings.Contains(string(text), "vllm:lora_requests_info{") || !strings.Contains(string(text), want) {
		t.Errorf("metrics without vllm:lora_requests_info and %s (%v)", want, err)
	}
}

// TestLoRAErrors are those of the command line.
func TestLoRAErrors(t *testing.T) {
	empty := t.TempDir()
	list := filepath.Join(t.TempDir(), "list.yaml")
	if err := os.WriteFile(list, []byte("lora: [x="+empty+", x="+empty+"]\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--lora", "x"}, 2, "NAME=DIR"},
		{[]string{"--lora", "x=" + empty, "--lora", "x=" + empty}, 2, "taken"},
		{[]string{"--config", list}, 2, "taken"},
		{[]string{"--served-model-name", "x", "--lora", "x=" + empty}, 2, "taken"},
		{[]string{"--lora", "x=" + empty}, 1, "adapter_config.json"},
	} {
		status, _, stderr := invoke(append([]string{"--port", "0"}, c.args...)...)
		if status != c.status || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: status %d, %s; want %d, %q", c.args, status, stderr, c.status, c.want)
		}
	}
}

// TestFoldersOfAdaptersMayHaveCommas: a comma in a folder's name parted it, wherever it was given.
func TestFoldersOfAdaptersMayHaveCommas(t *testing.T) {
	runs := golden.Glob(t, "train/lora/*/final/adapter_config.json")
	testenv.Need(t, "golden", len(runs) > 0, "the fixtures have no adapters")
	base := baseFolder(t)
	odd := filepath.Join(t.TempDir(), "r=16,alpha=32, of today")
	if err := os.CopyFS(odd, os.DirFS(filepath.Dir(runs[0]))); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "serve.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	plan := func(args ...string) {
		t.Helper()
		command(t, 0, append([]string{"plan", base, "--json", "--no-probe"}, args...)...)
	}
	plan("--lora", "a="+odd, "--lora", "b="+odd)
	write("lora: 'a=" + odd + "'\n")
	plan("--config", config)
	write("lora:\n- a=" + odd + "\n- b=" + odd + "\n")
	plan("--config", config)
	t.Setenv("HEFT_LORA", "a="+odd+"\nb="+odd+"\n")
	plan()
}

// TestBenchMeasuresAdapters: the cost of adapters compared with the base alone.
func TestBenchMeasuresAdapters(t *testing.T) {
	runs := golden.Glob(t, "train/lora/*/final/adapter_config.json")
	testenv.Need(t, "golden", len(runs) > 0, "the fixtures have no adapters")
	adapter := filepath.Dir(runs[0])
	var got benchResult
	parse(t, &got, "bench", baseFolder(t), "--json", "--no-probe", "--threads", "1", "--prompt-tokens", "4", "--decode-tokens", "3", "--batch", "3",
		"--lora", "a="+adapter, "--lora", "b="+adapter)
	if !slices.Equal(got.Adapters, []string{"a", "b"}) || got.Base == nil || got.Base.Prompt == nil || got.Base.Decode == nil || got.DecodeTokensPerSecond == nil {
		t.Errorf("%+v", got)
	}
	var plain benchResult
	parse(t, &plain, "bench", baseFolder(t), "--json", "--no-probe", "--threads", "1", "--prompt-tokens", "4", "--decode-tokens", "0")
	if len(plain.Adapters) != 0 || plain.Base != nil {
		t.Errorf("without adapters: %+v", plain)
	}
}

// TestPlanCountsAdapters: plan --lora says what serve --lora will hold.
func TestPlanCountsAdapters(t *testing.T) {
	runs := golden.Glob(t, "train/lora/*/final/adapter_config.json")
	testenv.Need(t, "golden", len(runs) > 0, "the fixtures have no adapters")
	base := baseFolder(t)
	activations := func(args ...string) int64 {
		var plan struct {
			Devices []struct {
				Activations int64 `json:"activation_bytes"`
			}
		}
		parse(t, &plan, append([]string{"plan", base, "--json", "--no-probe"}, args...)...)
		return plan.Devices[0].Activations
	}
	adapter := filepath.Dir(runs[0])
	if alone, with := activations(), activations("--lora", "a="+adapter); with <= alone {
		t.Errorf("activations take %d bytes with an adapter, %d without", with, alone)
	}
	if _, stderr := command(t, 2, "plan", base, "--lora", adapter); !strings.Contains(stderr, "NAME=DIR") {
		t.Errorf("an adapter without a name: %s", stderr)
	}
}
