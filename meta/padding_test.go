package meta

import "testing"

// TestPaddingRow: the row of pad_token_id, of its default and of a number from the end, where the
// architecture has one.
func TestPaddingRow(t *testing.T) {
	const sizes = `"vocab_size": 16, "hidden_size": 8, "n_embd": 8, "n_head": 2, "n_layer": 1, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1`
	for _, c := range []struct {
		fields string
		want   int // 1 + the row
	}{
		{`"model_type": "llama", "pad_token_id": 3`, 4},
		{`"model_type": "llama", "pad_token_id": -1`, 16},
		{`"model_type": "llama", "pad_token_id": 16`, 0},
		{`"model_type": "llama", "pad_token_id": null`, 0},
		{`"model_type": "llama"`, 0},
		{`"model_type": "olmo2"`, 2},
		{`"model_type": "olmo2", "pad_token_id": null`, 0},
		{`"model_type": "helium", "head_dim": 4`, 4},
		{`"model_type": "hunyuan_v1_dense"`, 1},
		{`"model_type": "olmo"`, 2},
		{`"model_type": "falcon", "pad_token_id": 3`, 0},
		{`"model_type": "phi3"`, 0}, // 32000 is none of the rows
		{`"model_type": "gpt2", "pad_token_id": 3`, 0},
		{`"model_type": "mamba", "pad_token_id": 3`, 0},
		{`"model_type": "ctrl", "pad_token_id": 3`, 0},
		{`"model_type": "xglm", "d_model": 8, "attention_heads": 2`, 2},
		{`"model_type": "biogpt"`, 2},
		{`"model_type": "modernbert-decoder", "pad_token_id": 3`, 4},
	} {
		config, err := ReadConfig([]byte("{" + c.fields + ", " + sizes + "}"))
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(config, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.fields, err)
		}
		embed := m.Root.Find(m.Root.Spec.(*CausalLMSpec).Embed).Spec.(*EmbeddingSpec)
		if embed.Padding != c.want {
			t.Errorf("%s: padding %d, want %d", c.fields, embed.Padding, c.want)
		}
	}
}

// TestTablesOfNGramsHaveNoPadding: the row of a table of n-grams that has the padding token's number got no gradient.
func TestTablesOfNGramsHaveNoPadding(t *testing.T) {
	config, err := ReadConfig([]byte(`{"model_type": "qwen4_exp_text", "pad_token_id": 3, "vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 2, "ple_layer_ids": [1], "ple_embed_dim": 8,
		"layer_types": ["linear_attention", "full_attention"], "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 8, "head_dim": 8, "indexer_compress_ratio": 2, "indexer_budget": 4, "ngram_size": 3, "heads_per_ngram": 2, "ngram_vocab_size_base": 20, "make_ngram_vocab_size_divisible_by": 8, "eos_token_id": 2}`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	for path, node := range m.Root.Walk() {
		if s, ok := node.Spec.(*EmbeddingSpec); ok {
			want := 0
			if tables++; node.Name == "embed_tokens" {
				want = 4
			}
			if s.Padding != want {
				t.Errorf("%s: padding %d, want %d", path, s.Padding, want)
			}
		}
	}
	if tables != 2 {
		t.Errorf("%d tables, want 2", tables)
	}
}

// TestModelsWithoutAPaddingRowLearnItsToken: these lost the gradient of the padding token's embedding, which is often the last
// token of texts. Their classes in transformers have no padding_idx.
func TestModelsWithoutAPaddingRowLearnItsToken(t *testing.T) {
	for _, modelType := range []string{"bloom", "codegen", "falcon_mamba", "gpt_neox_japanese", "mamba", "mpt"} {
		m := build(t, []byte(`{"model_type": "`+modelType+`", "pad_token_id": 3}`))
		if s := m.Root.Find(m.Root.Spec.(*CausalLMSpec).Embed).Spec.(*EmbeddingSpec); s.Padding != 0 {
			t.Errorf("%s: padding %d, want none", modelType, s.Padding)
		}
	}
}
