package meta

import (
	"slices"
	"strings"
	"testing"
)

// TestQuantizedTakesMatricesAlone: --quantize converts linear maps, experts and heads, a tied one
// too; norms, biases, routers and tables that are only looked up stay as they are.
func TestQuantizedTakesMatricesAlone(t *testing.T) {
	const sizes = `"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4,
		"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "max_position_embeddings": 64, "num_experts": 4, "num_local_experts": 4,
		"num_experts_per_tok": 2, "norm_topk_prob": true, "decoder_sparse_step": 1, "rms_norm_eps": 1e-5, "rope_theta": 10000,
		"hidden_act": "silu", "torch_dtype": "bfloat16"`
	const attention = "model.layers.0.self_attn.k_proj.weight model.layers.0.self_attn.o_proj.weight model.layers.0.self_attn.q_proj.weight model.layers.0.self_attn.v_proj.weight "
	const mlp = "model.layers.0.mlp.down_proj.weight model.layers.0.mlp.gate_proj.weight model.layers.0.mlp.up_proj.weight "
	const experts = "model.layers.0.mlp.experts.down_proj model.layers.0.mlp.experts.gate_up_proj "
	for _, test := range []struct{ kind, more, want string }{
		{"llama", `"tie_word_embeddings": false`, "lm_head.weight " + mlp + attention},
		{"llama", `"tie_word_embeddings": true`, "model.embed_tokens.weight " + mlp + attention},
		{"qwen2", `"tie_word_embeddings": true`, "model.embed_tokens.weight " + mlp + attention},
		{"mixtral", `"tie_word_embeddings": false`, "lm_head.weight " + experts + attention},
		{"qwen3_moe", `"tie_word_embeddings": false, "mlp_only_layers": []`, "lm_head.weight " + experts + attention},
	} {
		config, err := ReadConfig([]byte(`{"model_type": "` + test.kind + `", ` + sizes + `, ` + test.more + `}`))
		if err != nil {
			t.Fatal(err)
		}
		model, err := New(config, nil)
		if err != nil {
			t.Fatal(err)
		}
		converted := model.Root.Quantized()
		var got []string
		for path, p := range model.Root.AllParams() {
			if p.SameAs == nil && converted[p] > 0 {
				got = append(got, path)
			}
		}
		slices.Sort(got)
		if want := strings.TrimSpace(test.want); strings.Join(got, " ") != want {
			t.Errorf("%s, %s:\n%s, want\n%s", test.kind, test.more, strings.Join(got, " "), want)
		}
	}
}

// Suggestions try conversions in the order of the loss: formats with more bits a weight first. A row is convertible to
// all of them if it is whole blocks of the longest.
func TestConversionsComeFromTheTable(t *testing.T) {
	if got := Conversions(); !slices.Equal(got, []QuantFormat{QuantQ8, QuantQ4}) {
		t.Errorf("got %v", got)
	}
	for _, f := range QuantFormats() {
		if f.Row().Convert != slices.Contains(Conversions(), f) || f.Row().Convert && ConvertColumns()%f.BlockColumns() != 0 {
			t.Errorf("%v: blocks of %d, rows of whole %d", f, f.BlockColumns(), ConvertColumns())
		}
	}
}
