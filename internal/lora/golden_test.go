package lora

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// TestGoldenLoRA reads the adapters that PEFT wrote, writes them again byte for byte, and
// merges them into their base.
func TestGoldenLoRA(t *testing.T) {
	cases := 0
	defer func() { golden.Count(t, "train/lora (files, merge)", cases) }()
	var trace struct {
		Base string `json:"base_weights"`
	}
	golden.JSON(t, golden.Path(t, "train", "lora", "trace.json"), &trace)
	weights := golden.Path(t, "train", "lora", filepath.FromSlash(trace.Base))
	for _, file := range golden.Glob(t, "train/lora/*/*/"+ConfigFile) {
		if _, err := os.Stat(weights); err != nil {
			break // the base model is not among these fixtures
		}
		dir := filepath.Dir(file)
		run := filepath.Dir(dir)
		cases++
		t.Run(filepath.Base(run)+"/"+filepath.Base(dir), func(t *testing.T) {
			model := base(t, weights)
			a, err := Open(dir, model.Root)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			saved(t, a, dir)
			if filepath.Base(dir) == "final" {
				merged(t, a, model, weights, filepath.Join(run, "merged.safetensors"))
			}
		})
	}
}

// base is the skeleton of the model whose weights these are.
func base(t *testing.T, weights string) *meta.Model {
	t.Helper()
	text, err := golden.Read(filepath.Join(filepath.Dir(weights), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	return skeleton(t, string(text))
}

// saved compares what Save writes with the folder that was read.
func saved(t *testing.T, a *Adapter, dir string) {
	again := t.TempDir()
	if err := a.Save(again); err != nil {
		t.Fatal(err)
	}
	want, got := open(t, filepath.Join(dir, weightsFile)), open(t, filepath.Join(again, weightsFile))
	if !slices.Equal(slices.Sorted(want.Names()), slices.Sorted(got.Names())) {
		t.Fatalf("tensors %v, want %v", slices.Sorted(got.Names()), slices.Sorted(want.Names()))
	}
	for x := range want.Tensors() {
		y, _ := got.Lookup(x.Name)
		a, err := x.Bytes()
		b, err2 := y.Bytes()
		if err != nil || err2 != nil || x.DType != y.DType || !slices.Equal(x.Shape, y.Shape) || !bytes.Equal(a, b) {
			t.Errorf("%s is not what was read (%v, %v)", x.Name, err, err2)
		}
	}
	text, err := os.ReadFile(filepath.Join(again, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := golden.Read(filepath.Join(dir, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	known := keysOf(t, theirs)
	for _, key := range keysOf(t, text) {
		if !slices.Contains(known, key) {
			t.Errorf("the config has a field %s, which PEFT does not write", key)
		}
	}
	c, err := ReadConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	if c.R != a.Config.R || c.Alpha != a.Config.Alpha || c.RSLoRA != a.Config.RSLoRA || c.TaskType != a.Config.TaskType ||
		!slices.Equal(c.Targets.List, a.Config.Targets.List) {
		t.Errorf("config %+v, want %+v", c, a.Config)
	}
}

func open(t *testing.T, path string) *loader.Checkpoint {
	t.Helper()
	c, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// merged merges, compares, and takes the adapter out again.
func merged(t *testing.T, a *Adapter, model *meta.Model, weights, path string) {
	original := opened(t, model, weights)
	tensors, err := a.Merge(model, original)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := loader.Save(dir, tensors, loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	near(t, "merged", open(t, dir), open(t, path), 1e-6)
	tensors, err = a.Unmerge(model, opened(t, model, dir))
	if err != nil {
		t.Fatal(err)
	}
	back := t.TempDir()
	if err := loader.Save(back, tensors, loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	near(t, "unmerged", open(t, back), original.Checkpoint(), 1e-6)
}

// near compares float32 checkpoints.
func near(t *testing.T, what string, got, want *loader.Checkpoint, tolerance float64) {
	t.Helper()
	if !slices.Equal(slices.Sorted(got.Names()), slices.Sorted(want.Names())) {
		t.Fatalf("%s: tensors %v, want %v", what, slices.Sorted(got.Names()), slices.Sorted(want.Names()))
	}
	for x := range want.Tensors() {
		y, _ := got.Lookup(x.Name)
		a, err := x.Bytes()
		b, err2 := y.Bytes()
		if err != nil || err2 != nil || len(a) != len(b) {
			t.Fatalf("%s: %s: %d bytes and %d (%v, %v)", what, x.Name, len(a), len(b), err, err2)
		}
		for i := 0; i < len(a); i += 4 {
			v, w := math.Float32frombits(binary.LittleEndian.Uint32(a[i:])), math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
			if !(math.Abs(float64(v-w)) <= tolerance) {
				t.Fatalf("%s: %s[%d] is %v, want %v", what, x.Name, i/4, w, v)
			}
		}
	}
}
