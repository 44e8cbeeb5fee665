package nn

import (
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/meta"
)

// loopedTree returns a tree of two stacks, of which the low one runs twice in each of two cycles.
func loopedTree(t *testing.T) *meta.Module {
	t.Helper()
	config, err := meta.ReadConfig([]byte(`{"model_type": "hrm_text", "hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "head_dim": 4,
		"vocab_size": 16, "num_hidden_layers": 2, "H_cycles": 2, "L_cycles": 2}`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m.Root
}

// TestEachRunOfABlockHasAUnit: a unit of each run has the block's modules and a layer of the KV cache of its own,
// in the order of transformers' cache.
func TestEachRunOfABlockHasAUnit(t *testing.T) {
	root := loopedTree(t)
	p, err := Compile(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range p.Units[1 : len(p.Units)-1] {
		if len(u.Layers) != 1 || u.Layers[0] != len(got) {
			t.Errorf("unit %d, %s, has layers %v", len(got), u.Path, u.Layers)
		}
		if u.Modules[0].Module != root.Find(u.Path) {
			t.Errorf("unit %s reads another module", u.Path)
		}
		got = append(got, strings.TrimPrefix(u.Path, "model."))
	}
	var want []string
	for range 2 {
		for _, stack := range []string{"L", "L", "H"} {
			want = append(want, stack+"_module.layers.0", stack+"_module.layers.1")
		}
	}
	if !slices.Equal(got, want) || len(p.KV()) != len(want) {
		t.Errorf("units %v and %d layers of the cache, want %v", got, len(p.KV()), want)
	}
	uses := root.Spec.(*meta.CausalLMSpec).Uses(root)
	if uses["model.L_module.layers.0"] != 4 || uses["model.H_module.layers.1"] != 2 || len(uses) != 4 {
		t.Errorf("uses %v", uses)
	}
}

// TestCompileErrorsOfRuns: if the spec of runs is wrong, the error names the place.
func TestCompileErrorsOfRuns(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(s *meta.CausalLMSpec)
		want string
	}{
		{"no blocks", func(s *meta.CausalLMSpec) { s.Runs[0].Blocks = "x" }, `the root: no child "x", which the spec names as blocks`},
		{"too many", func(s *meta.CausalLMSpec) { s.Runs[1].To = 3 }, "model.L_module.layers: a run of blocks 0 to 3 of 2, with offsets 2 and 0"},
		{"an offset of the first", func(s *meta.CausalLMSpec) { s.Runs[0].Offset = 2 }, "model.L_module.layers.0: offsets 2 and 0 of the first run of a block"},
		{"one offset twice", func(s *meta.CausalLMSpec) { s.Runs[3].Offset = 2 }, "layer 2 of the cache is that of model.L_module.layers.0"},
		{"nothing kept", func(s *meta.CausalLMSpec) { s.Carry, s.CarryStart = 4, "" }, "the root: kept states in rows of 12 channels, want twice the hidden states' 8"},
		{"no start", func(s *meta.CausalLMSpec) { s.CarryStart = "model.x" }, `model: no parameter "x"`},
		{"no norm", func(s *meta.CausalLMSpec) { s.Runs[1].Entry.Norm = "model.x" }, `no child "model.x", which the spec names as norm before a run`},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := loopedTree(t)
			test.edit(root.Spec.(*meta.CausalLMSpec))
			if _, err := Compile(root); err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "nn: ") {
				t.Fatalf("error %v, want %q", err, test.want)
			}
		})
	}
}
