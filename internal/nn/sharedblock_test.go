package nn

import (
	"strings"
	"testing"

	"github.com/heftai/heft/meta"
)

// TestCompileErrorsOfSharedBlocks: if the spec of a block with embeddings as input is wrong, the error names the place.
func TestCompileErrorsOfSharedBlocks(t *testing.T) {
	const layer = "model.layers.1"
	blockOf := func(m *meta.Module) *meta.BlockSpec { return m.Find(layer).Spec.(*meta.BlockSpec) }
	for _, test := range []struct {
		name string
		edit func(root *meta.Module)
		want string
	}{
		{"no embeddings", func(m *meta.Module) { m.Spec.(*meta.CausalLMSpec).KeepsEmbeddings = false }, "model.layers.0: a block with embeddings after the hidden states, in a width of 8 without them"},
		{"a block that does not keep them", func(m *meta.Module) { blockOf(m).KeepsEmbeddings = false }, layer + ": a shared block without embeddings"},
		{"a second branch", func(m *meta.Module) { blockOf(m).MLP = "mlp" }, layer + ": embeddings after the hidden states, in a block of another form"},
		{"positions", func(m *meta.Module) { m.Spec.(*meta.CausalLMSpec).EmbedNorm = "model.final_layernorm" }, "the root: 2 streams beside positions, norms"},
		{"no attention", func(m *meta.Module) { blockOf(m).Shared.Attention = "x" }, layer + `: no child "x", which the spec names as attention`},
		{"a wide output", func(m *meta.Module) { blockOf(m).Shared.MLP = "shared_transformer.self_attn" }, "a linear map of 16 columns on 8"},
		{"an adapter of another width", func(m *meta.Module) {
			m.Find(layer + ".shared_transformer.self_attn").Spec.(*meta.AttentionSpec).QAdapter = "q_proj.x"
		}, `no child "q_proj.x", which the spec names as adapter`},
		{"an adapter of gates row by row", func(m *meta.Module) {
			m.Find(layer + ".shared_transformer.feed_forward").Spec.(*meta.MLPSpec).FusedOrder = meta.GateInterleaved
		}, "an adapter of a fused gate with another layout"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, err := meta.ReadConfig([]byte(`{"model_type": "zamba2", "hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "n_mamba_heads": 4,
				"vocab_size": 16, "num_hidden_layers": 2, "layers_block_type": ["mamba", "hybrid"]}`))
			if err != nil {
				t.Fatal(err)
			}
			m, err := meta.New(config, nil)
			if err != nil {
				t.Fatal(err)
			}
			test.edit(m.Root)
			if _, err = Compile(m.Root); err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "nn: ") {
				t.Fatalf("error %v, want %q", err, test.want)
			}
		})
	}
}
