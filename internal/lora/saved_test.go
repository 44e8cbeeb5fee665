package lora

import (
	"fmt"
	"strings"
	"testing"

	"github.com/heftai/heft/meta"
)

// treeToSave is a tree with a linear map, a router and a norm.
func treeToSave(t *testing.T, norm meta.NormSpec) *meta.Module {
	t.Helper()
	b := meta.NewBuilder("Model", meta.Float32)
	mlp := b.Child("mlp", "MLP")
	mlp.Linear("up", 2, 3, false)
	gate := mlp.Child("gate", "Router")
	gate.Param("weight", 3, 2)
	gate.Buffer("correction", meta.Float32, true, 3)
	last := b.Child("last_norm", "Norm")
	last.Runs(meta.KindNorm, &norm)
	last.Param("weight", 2)
	root, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// TestSavedModules: modules_to_save names modules by the ends of their paths, with the modules in them. Those that the
// file has in another way than transformers, and those with buffers, are rejected, and so are targets in them.
func TestSavedModules(t *testing.T) {
	for _, c := range []struct {
		save  string
		whole bool
		want  string // the saved parameters and the module that is named, or a part of an error
	}{
		{"norm", false, "[last_norm.weight of last_norm]"},
		{"norm", true, "weights with 1 added"},
		{"mlp", false, "a Router has buffers (correction)"},
		{"mlp.up", false, "[mlp.up.weight of mlp.up]"},
		{"p", false, "a Router has buffers (correction)"}, // mlp and mlp.up
	} {
		list, err := (&Config{Save: []string{c.save}}).saved(treeToSave(t, meta.NormSpec{Dim: 2, Whole: c.whole}))
		got := fmt.Sprint(err)
		if err == nil {
			var params []string
			for _, s := range list {
				params = append(params, fmt.Sprintf("%s.%s of %s", s.Path, s.Param, s.Named))
			}
			got = fmt.Sprint(params)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.save, got, c.want)
		}
	}
	within := &Config{R: 1, Targets: Names{List: []string{"up"}}, Save: []string{"mlp"}}
	if _, err := within.Match(treeToSave(t, meta.NormSpec{Dim: 2})); err == nil || !strings.Contains(err.Error(), "modules_to_save names mlp around it") {
		t.Errorf("a target in a saved module: %v", err)
	}
}

// TestAllLinearMapsAreThoseThatAreNotSaved: with all linear maps as targets, a module of them in modules_to_save was an
// error that asked to exclude one of the two.
func TestAllLinearMapsAreThoseThatAreNotSaved(t *testing.T) {
	config, err := meta.ReadConfig([]byte(`{"model_type": "llama", "vocab_size": 8, "hidden_size": 4, "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2}`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{R: 1, Targets: Names{AllLinear: true}, Save: []string{"layers.1.mlp", "layers.0.mlp.up_proj"}}
	targets, err := c.Match(m.Root)
	if err != nil {
		t.Fatal(err)
	}
	var of []string
	for _, target := range targets {
		if _, name, ok := strings.Cut(target.Path, "mlp."); ok {
			of = append(of, name)
		}
	}
	if got := strings.Join(of, " "); len(targets) != 10 || got != "gate_proj down_proj" {
		t.Errorf("%d targets, of MLPs %s; want the 8 of the attention, and gate_proj and down_proj of the first MLP", len(targets), got)
	}
}
