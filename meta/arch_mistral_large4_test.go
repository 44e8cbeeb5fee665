package meta

import (
	"fmt"
	"slices"
	"testing"
)

// TestMistralLarge4SharesKeysByRope: a layer without keys of its own has those that the last layer before it with its kind
// of rope has left for others, whatever layer kv_source_layers names, as in transformers. Its indexer has a cache.
func TestMistralLarge4SharesKeysByRope(t *testing.T) {
	const config = `{"model_type": "mistral_large4", "text_config": {"num_hidden_layers": 7, "no_rope_layers": [1, 0, 1, 0, 0, 1, 1, 0],
		"kv_source_layers": [0, 1, 2, 1, 2, 0, 6], "indexer_types": ["full", "full", "full", "shared", "full", "full", "shared"]}}`
	m := build(t, []byte(config))
	for i, want := range []struct {
		cache, indexer int // -1 for no indexer
		shared, roped  bool
	}{{0, 0, false, true}, {1, 0, false, false}, {2, 0, false, true}, {1, -1, true, false}, {1, 3, true, false}, {2, 4, true, true}, {5, -1, false, true}} {
		path := fmt.Sprintf("model.language_model.layers.%d.self_attn", i)
		node := m.Root.Find(path)
		s := node.Spec.(*AttentionSpec)
		indexer := -1
		if s.MLA.Indexer != nil {
			indexer = s.MLA.Indexer.Layer
		}
		if s.Layer != want.cache || s.Shared != want.shared || indexer != want.indexer || (s.Rope != nil) != want.roped {
			t.Errorf("layer %d: cache %d, shared %v, indexer's %d, rope %v, want %+v", i, s.Layer, s.Shared, indexer, s.Rope, want)
		}
		if own := node.Child("kv_a_proj_with_mqa") != nil; own == want.shared || (s.MLA.KVDown != "") != own {
			t.Errorf("layer %d: makes keys of its own: %v", i, own)
		}
	}
}

func TestUnsupportedValuesOfMistralLarge4(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "mistral_large4", "text_config": {"num_hidden_layers": 2, "kv_source_layers": [0]}}`:                                `text_config.kv_source_layers: 1 values for 2 layers`,
		`{"model_type": "mistral_large4", "text_config": {"num_hidden_layers": 2, "kv_source_layers": [0, 2]}}`:                             `text_config.kv_source_layers: 2 is not within 0 and 1`,
		`{"model_type": "mistral_large4", "text_config": {"num_hidden_layers": 2, "no_rope_layers": [1, 0], "kv_source_layers": [0, 0]}}`:   `text_config.kv_source_layers: layer 1 shares keys, but no layer with the same kind of rope`,
		`{"model_type": "mistral_large4", "text_config": {"num_hidden_layers": 3, "kv_source_layers": [0, 0, 1]}}`:                          `text_config.kv_source_layers: layer 2 has the keys of layer 1, which has those of another`,
		`{"model_type": "mistral_large4", "text_config": {"num_hidden_layers": 2, "no_rope_layers": [1]}}`:                                  `text_config.no_rope_layers: 1 values for 2 layers`,
		`{"model_type": "mistral_large4", "text_config": {"num_hidden_layers": 2, "layer_types": ["indexed_attention", "full_attention"]}}`: `layer_types: "full_attention" is not supported`,
		`{"model_type": "mistral_large4", "text_config": {"num_hidden_layers": 2, "indexer_types": ["shared", "full"]}}`:                    `text_config.indexer_types: the first layer shares`,
		`{"model_type": "mistral_large4", "text_config": {"num_hidden_layers": 2, "n_shared_experts": 0}}`:                                  `text_config.n_shared_experts: 0 is not within`,
		`{"model_type": "mistral_large4", "text_config": {"num_hidden_layers": 2, "final_logit_softcapping": 0}}`:                           `text_config.final_logit_softcapping: 0 is not`,
		`{"model_type": "mistral_large4", "text_config": {"num_hidden_layers": 2, "n_group": 128}}`:                                         `n_group: 128 groups of 128 experts`,
	} {
		unsupported(t, config, want)
	}
}

// TestPublishedMistralLarge4 binds parameters to the names of Mistral's own files, in FP8 with scales in blocks under
// qscale_weight, and to those of transformers.
func TestPublishedMistralLarge4(t *testing.T) {
	const config = `{"model_type": "mistral_large4", "dtype": "bfloat16", "text_config": {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 32,
		"num_attention_heads": 2, "moe_intermediate_size": 16, "n_routed_experts": 4, "vocab_size": 50, "index_n_heads": 2},
		"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}`
	header := shapedHeader{}.add("lerope.alpha", Float32, 32).add("tok_embeddings.weight", BFloat16, 50, 64).add("output.weight", BFloat16, 50, 64).
		add("layers.1.gate.weight", Float32, 4, 64).add("layers.0.attention.indexer.ssmax_scaling.s", BFloat16, 2).add("norm.weight", BFloat16, 64).
		add("model.language_model.layers.1.self_attn.q_proj.weight", BFloat16, 256, 64).add("layers.0.attention_norm.weight", BFloat16, 64)
	for name, shape := range map[string][2]int{
		"layers.0.attention.wq": {256, 64}, "layers.0.feed_forward.w2": {64, 32}, "layers.1.shared_experts.w1": {16, 64}, "layers.0.attention.wkv_a_with_mqa": {576, 64},
		"layers.1.experts.0.w1": {16, 64}, "layers.1.experts.0.w3": {16, 64}, "layers.1.experts.0.w2": {64, 16},
	} {
		header.add(name+".weight", Float8E4M3, shape[:]...).add(name+".qscale_weight", Float32, (shape[0]+127)/128, 1).add(name+".qscale_act", Float32)
	}
	cfg, err := ReadConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(cfg, header)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[[2]string][]string{ // tensors, each before that of its scales, if it has one
		{"rotary_emb", "alpha"}:                                 {"lerope.alpha", ""},
		{"embed_tokens", "weight"}:                              {"tok_embeddings.weight", ""},
		{"norm", "weight"}:                                      {"norm.weight", ""},
		{"layers.0.input_layernorm", "weight"}:                  {"layers.0.attention_norm.weight", ""},
		{"layers.0.self_attn.indexer.softmax_scaling", "scale"}: {"layers.0.attention.indexer.ssmax_scaling.s", ""},
		{"layers.0.self_attn.q_proj", "weight"}:                 {"layers.0.attention.wq.weight", "layers.0.attention.wq.qscale_weight"},
		{"layers.1.self_attn.q_proj", "weight"}:                 {"model.language_model.layers.1.self_attn.q_proj.weight", ""},
		{"layers.0.self_attn.kv_a_proj_with_mqa", "weight"}:     {"layers.0.attention.wkv_a_with_mqa.weight", "layers.0.attention.wkv_a_with_mqa.qscale_weight"},
		{"layers.0.mlp.down_proj", "weight"}:                    {"layers.0.feed_forward.w2.weight", "layers.0.feed_forward.w2.qscale_weight"},
		{"layers.1.mlp.gate", "weight"}:                         {"layers.1.gate.weight", ""},
		{"layers.1.mlp.shared_experts.gate_proj", "weight"}:     {"layers.1.shared_experts.w1.weight", "layers.1.shared_experts.w1.qscale_weight"},
		{"layers.1.mlp.experts", "down_proj"}:                   {"layers.1.experts.{}.w2.weight", "layers.1.experts.{}.w2.qscale_weight"},
		{"layers.1.mlp.experts", "gate_up_proj"}: {"layers.1.experts.{}.w1.weight", "layers.1.experts.{}.w1.qscale_weight",
			"layers.1.experts.{}.w3.weight", "layers.1.experts.{}.w3.qscale_weight"},
	} {
		p, got := m.Root.Find("model.language_model."+at[0]).Param(at[1]), []string{}
		for _, s := range p.Sources {
			scales := ""
			if s.Quant != nil {
				scales = s.Quant.Scales
			}
			got = append(got, s.Tensor, scales)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v comes from %q, want %q", at, got, want)
		}
	}
}

// TestOtherPartsOfMistralLarge4: files have a vision tower and a draft head, which are not read, and scales of activations.
func TestOtherPartsOfMistralLarge4(t *testing.T) {
	m := build(t, []byte(`{"model_type": "mistral_large4", "text_config": {"num_hidden_layers": 1}}`))
	for name, other := range map[string]bool{"vision_encoder.ln_pre.weight": true, "mtp_dspark.0.w.weight": true, "patch_merger.merging_layer.weight": true,
		"layers.0.attention.wo.weight": false, "lerope.beta": false, "output.bias": false} {
		if m.OtherPart(name) != other {
			t.Errorf("%s is of another part: %v, want %v", name, !other, other)
		}
	}
	for _, own := range []string{"qscale_act", "activation_scale"} {
		if names := QuantFP8.Unread("layers.0.attention.wq.weight"); !slices.Contains(names, "layers.0.attention.wq."+own) {
			t.Errorf("tensors that need not be read are %q, want %s too", names, own)
		}
	}
}
