package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/loader"
)

// wideModel is tinyModel with rows that can be converted.
func wideModel(t *testing.T) string {
	return modelOf(t, strings.NewReplacer(`"hidden_size": 16`, `"hidden_size": 32`, `"intermediate_size": 24`, `"intermediate_size": 64`).Replace(tinyConfig))
}

// TestRunOnAConvertedBase: every format trains another adapter, which a second run goes on from.
func TestRunOnAConvertedBase(t *testing.T) {
	dir, text := wideModel(t), lessons(t, 8)
	seen := map[string]string{}
	for _, format := range []string{"", "q8_0", "q4_0", "nf4"} {
		out := filepath.Join(t.TempDir(), "out")
		args := []string{"run", "--model", dir, "--data", text, "--output", out, "--max-steps", "2", "--lora", "r=2,alpha=4", "--quantize=" + format}
		if status, stdout, stderr := command(t, args...); status != 0 {
			t.Fatalf("%s: %d: %s%s", format, status, stdout, stderr)
		}
		got := string(weightsOf(t, out))
		if other, ok := seen[got]; ok {
			t.Errorf("the adapters of %q and %q are equal", format, other)
		}
		seen[got] = format
		again := filepath.Join(t.TempDir(), "again")
		args = []string{"run", "--model", dir, "--data", text, "--output", again, "--max-steps", "1", "--lora", "from=" + out, "--learning-rate", "1e-30", "--quantize=" + format}
		if status, stdout, stderr := command(t, args...); status != 0 {
			t.Fatalf("%s: %d: %s%s", format, status, stdout, stderr)
		}
		if string(weightsOf(t, again)) != got {
			t.Errorf("%s: a run that learns nothing does not end with the adapter that it went on from", format)
		}
	}
}

// TestAMergeThatCannotBeWrittenIsAnErrorAtTheStart: a head that the model ties to its embeddings, trained apart from them,
// cannot be merged. The run said so behind its last step.
func TestAMergeThatCannotBeWrittenIsAnErrorAtTheStart(t *testing.T) {
	dir, text, out := modelOf(t, strings.Replace(tinyConfig, "{", `{"tie_word_embeddings": true, `, 1)), lessons(t, 8), filepath.Join(t.TempDir(), "out")
	args := []string{"run", "--model", dir, "--data", text, "--output", out, "--max-steps", "2", "--save-steps", "1", "--lora", "r=2", "--modules-to-save", "lm_head", "--merge"}
	status, _, stderr := command(t, args...)
	if want := "--merge: model: merge adapter: lora: lm_head.weight is tied"; status != 2 || !strings.Contains(stderr, want) {
		t.Errorf("%d: %s, want %s", status, stderr, want)
	}
	if found, _ := filepath.Glob(filepath.Join(out, "checkpoint-*")); len(found) > 0 {
		t.Errorf("the run took steps: %s", found)
	}
	if status, _, stderr := command(t, args[:len(args)-1]...); status != 0 {
		t.Errorf("without --merge: %d: %s", status, stderr)
	}
}

// TestRunFreezes: frozen weights stay as they are, the others train, and a stopped run goes on.
func TestRunFreezes(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 8)
	runTo := func(out string, more ...string) {
		t.Helper()
		args := append([]string{"run", "--model", dir, "--data", text, "--output", out, "--freeze", "embed_tokens", "--freeze", `layers\.0\.`, "--max-steps", "4", "--save-steps", "2"}, more...)
		if status, stdout, stderr := command(t, args...); status != 0 {
			t.Fatalf("%d: %s%s", status, stdout, stderr)
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	runTo(out)
	before, after := tensorsOf(t, dir), tensorsOf(t, out)
	if len(before) != len(after) {
		t.Errorf("%d tensors, want %d", len(after), len(before))
	}
	for name, b := range before {
		frozen := strings.Contains(name, "embed_tokens") || strings.Contains(name, "layers.0.")
		if bytes.Equal(b, after[name]) != frozen {
			t.Errorf("%s: frozen %v, changed %v", name, frozen, !frozen)
		}
	}
	again := filepath.Join(t.TempDir(), "again")
	runTo(again, "--resume", filepath.Join(out, "checkpoint-2"))
	for name, b := range tensorsOf(t, again) {
		if !bytes.Equal(b, after[name]) {
			t.Errorf("%s differs after resuming", name)
		}
	}
}

// TestRunWithNoise: NEFTune changes the weights, and a resumed run draws the same noise.
func TestRunWithNoise(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 8)
	var weights [][]byte
	for _, more := range [][]string{nil, {"--neftune-noise-alpha", "5"}, {"--neftune-noise-alpha", "5"}} {
		out := filepath.Join(t.TempDir(), "out")
		args := slices.Concat([]string{"run", "--model", dir, "--data", text, "--output", out, "--max-steps", "2"}, more)
		if status, stdout, stderr := command(t, args...); status != 0 {
			t.Fatalf("%d: %s%s", status, stdout, stderr)
		}
		weights = append(weights, weightsOf(t, out))
	}
	if bytes.Equal(weights[0], weights[1]) || !bytes.Equal(weights[1], weights[2]) {
		t.Error("the noise has no effect, or is not that of the seed")
	}
}

// TestTuneFlagsAreChecked: combinations without a meaning are rejected.
func TestTuneFlagsAreChecked(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 2)
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--quantize", "nf4"}, "--quantize needs --lora"},
		{[]string{"--quantize", "nf4", "--lora", "r=2", "--max-memory", "cpu=1GiB"}, "omit --max-memory"},
		{[]string{"--dora"}, "--dora needs --lora"},
		{[]string{"--modules-to-save", "lm_head"}, "--modules-to-save needs --lora"},
		{[]string{"--modules-to-save", "lm_head", "--lora", "r=2", "--mixed-precision", "fp16"}, "use bf16"},
		{[]string{"--modules-to-save", "nothing", "--lora", "r=2"}, "no module of this model has such a name"},
		{[]string{"--modules-to-save", "mlp", "--lora", "r=2,targets=up_proj"}, "modules_to_save names model.layers.0.mlp around it: exclude one of them"},
		{[]string{"--dora", "--lora", "r=2,parameters=q_proj.weight,targets=k_proj"}, "use_dora is not supported with target_parameters"},
		{[]string{"--freeze", "norm", "--lora", "r=2"}, "--freeze has no effect with --lora"},
		{[]string{"--freeze", "("}, "--freeze (: "},
		{[]string{"--freeze", "nothing"}, "matches none"},
		{[]string{"--freeze", "."}, "matches all"},
		{[]string{"--neftune-noise-alpha", "-1"}, "want 0 or more"},
		{[]string{"--lora", "from=" + dir}, "adapter_config.json"},
		{[]string{"--lora", "r=2", "--quantize", "q8_0"}, "no frozen weights can be converted"}, // rows of 16
	} {
		args := append([]string{"run", "--model", dir, "--data", text, "--output", filepath.Join(t.TempDir(), "out"), "--max-steps", "1"}, c.flags...)
		if status, _, stderr := command(t, args...); status == 0 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: %d: %s; want %q", c.flags, status, stderr, c.want)
		}
	}
}

// tensorsOf returns the tensors of a model's folder.
func tensorsOf(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	ck, err := loader.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	out := map[string][]byte{}
	for p := range ck.Tensors() {
		b, err := p.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		out[p.Name] = bytes.Clone(b)
	}
	return out
}

// TestRunWithMagnitudesAndWholeModules trains DoRA and a saved head: each changes the adapter, a stopped run goes on
// bit by bit, another one goes on from its adapter, and a merged model answers as the adapter does.
func TestRunWithMagnitudesAndWholeModules(t *testing.T) {
	dir, text := wideModel(t), lessons(t, 8)
	runTo := func(out string, more ...string) map[string][]byte {
		t.Helper()
		args := append([]string{"run", "--model", dir, "--data", text, "--output", out, "--max-steps", "4", "--save-steps", "2"}, more...)
		if status, stdout, stderr := command(t, args...); status != 0 {
			t.Fatalf("%q: %d: %s%s", more, status, stdout, stderr)
		}
		return tensorsOf(t, out)
	}
	flags := []string{"--lora", "r=2,alpha=4,dropout=0.1", "--dora", "--modules-to-save", "lm_head,embed_tokens,norm"}
	for _, format := range []string{"", "q8_0", "nf4"} {
		all := append(flags, "--quantize="+format)
		out := filepath.Join(t.TempDir(), "out")
		got := runTo(out, all...)
		for _, name := range []string{"model.layers.1.mlp.up_proj.lora_magnitude_vector", "lm_head.weight", "model.embed_tokens.weight", "model.norm.weight", "model.layers.0.input_layernorm.weight"} {
			if got["base_model.model."+name] == nil {
				t.Errorf("%s: the adapter has no %s", format, name)
			}
		}
		for name, b := range runTo(filepath.Join(t.TempDir(), "again"), append(all, "--resume", filepath.Join(out, "checkpoint-2"))...) {
			if !bytes.Equal(b, got[name]) {
				t.Errorf("%s: %s differs after resuming", format, name)
			}
		}
		for name, b := range runTo(filepath.Join(t.TempDir(), "more"), "--lora", "from="+out, "--learning-rate", "1e-30", "--quantize="+format) {
			if !bytes.Equal(b, got[name]) {
				t.Errorf("%s: %s: a run that learns nothing does not end with the adapter that it went on from", format, name)
			}
		}
	}
	streamed, held := runTo(filepath.Join(t.TempDir(), "s"), append(flags, "--max-memory", "cpu=1MiB")...), runTo(filepath.Join(t.TempDir(), "h"), flags...)
	for name, b := range streamed {
		if !bytes.Equal(b, held[name]) {
			t.Errorf("%s differs where the base streams", name)
		}
	}
	merged := runTo(filepath.Join(t.TempDir(), "merged"), append(flags, "--merge")...)
	if base := tensorsOf(t, dir); len(merged) != len(base) || bytes.Equal(merged["lm_head.weight"], base["lm_head.weight"]) ||
		bytes.Equal(merged["model.layers.0.mlp.up_proj.weight"], base["model.layers.0.mlp.up_proj.weight"]) {
		t.Errorf("%d merged tensors, want %d, with another head and other weights", len(merged), len(base))
	}
}
