package nn

import (
	"strings"
	"testing"

	"github.com/heftai/heft/meta"
)

// TestCompileErrorsOfHeadsOfMamba: a mixer with heads that its parameters do not fit names the place.
func TestCompileErrorsOfHeadsOfMamba(t *testing.T) {
	const mixer = "model.layers.0.mamba"
	for _, test := range []struct {
		name string
		edit func(s *meta.MambaSpec)
		want string
	}{
		{"uneven heads", func(s *meta.MambaSpec) { s.Heads = 3 }, mixer + ": 3 heads of 16 channels"},
		{"norms", func(s *meta.MambaSpec) { s.StepNorm = "norm" }, "or norms of such heads"},
		{"other heads", func(s *meta.MambaSpec) { s.Heads = 4 }, mixer + ".x_proj_weight: parameter of shape [2 9 8], wanted [4 9 4]"},
		{"no bias", func(s *meta.MambaSpec) { s.StepBias = "x" }, mixer + `: no parameter "x"`},
		{"no steps", func(s *meta.MambaSpec) { s.Steps = "x" }, mixer + `: no parameter "x"`},
		{"another mixer", func(s *meta.MambaSpec) { s.Heads = 0 }, mixer + `: no child "x_proj_weight", which the spec names as selection`},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, err := meta.ReadConfig([]byte(`{"model_type": "zamba", "hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "num_key_value_heads": 2,
				"vocab_size": 16, "num_hidden_layers": 2, "layers_block_type": ["mamba", "hybrid"], "mamba_d_state": 4}`))
			if err != nil {
				t.Fatal(err)
			}
			m, err := meta.New(config, nil)
			if err != nil {
				t.Fatal(err)
			}
			test.edit(m.Root.Find(mixer).Spec.(*meta.MambaSpec))
			if _, err = Compile(m.Root); err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "nn: ") {
				t.Fatalf("error %v, want %q", err, test.want)
			}
		})
	}
}
