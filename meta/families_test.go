package meta

import (
	"math"
	"strings"
	"testing"
)

// TestUnsupportedValuesOfFamilies: a value that a family's rules cannot express is an error that names
// the field and the value.
func TestUnsupportedValuesOfFamilies(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "olmoe", "clip_qkv": -8}`:                                                              "clip_qkv: -8 is not",
		`{"model_type": "minimax_m2", "scoring_func": "softmax"}`:                                              `scoring_func: "softmax" is not supported`,
		`{"model_type": "deepseek_v2", "topk_method": "noaux_tc"}`:                                             `topk_method: "noaux_tc" is not supported`,
		`{"model_type": "deepseek_v2", "topk_method": "group_limited_greedy", "n_group": 7}`:                   "n_group: 7 groups of 64 experts",
		`{"model_type": "hy_v3", "num_hidden_layers": 1, "mlp_layer_types": ["linear"]}`:                       `mlp_layer_types: "linear" is not supported`,
		`{"model_type": "glm4_moe_lite", "num_hidden_layers": 2, "mlp_layer_types": ["dense"]}`:                "mlp_layer_types: 1 types for 2 layers",
		`{"model_type": "smollm3", "num_hidden_layers": 2, "no_rope_layers": [1]}`:                             "no_rope_layers: 1 values for 2 layers",
		`{"model_type": "smollm3", "num_hidden_layers": 1, "no_rope_layers": [2]}`:                             "no_rope_layers: 2 is not within 0 and 1",
		`{"model_type": "exaone4", "sliding_window_pattern": "LLLG"}`:                                          "sliding_window_pattern: a text instead of a number",
		`{"model_type": "cohere2", "num_hidden_layers": 1, "layer_types": ["chunked_attention"]}`:              `layer_types: "chunked_attention" is not supported`,
		`{"model_type": "olmo3", "rope_parameters": {"full_attention": {"rope_type": "ntk"}}}`:                 `rope_parameters.full_attention.rope_type: "ntk" is not supported`,
		`{"model_type": "gemma", "use_bidirectional_attention": true}`:                                         "use_bidirectional_attention",
		`{"model_type": "glm4", "hidden_act": "relu3"}`:                                                        `hidden_act: activation "relu3" is not supported`,
		`{"model_type": "ministral3", "rope_parameters": {"rope_type": "yarn", "factor": 2}}`:                  "llama_4_scaling_beta: missing",
		`{"model_type": "kolibri1", "sliding_window": null}`:                                                   "sliding_window: null, but there are layers",
		`{"model_type": "beam", "sliding_window": null}`:                                                       "sliding_window: null, but there are layers",
		`{"model_type": "beam", "rope_parameters": {"full_attention": null}}`:                                  "rope_parameters.sliding_attention: missing, but there are layers",
		`{"model_type": "beam", "num_hidden_layers": 2, "mlp_layer_types": ["dense"]}`:                         "mlp_layer_types: 1 types for 2 layers",
		`{"model_type": "flint", "sliding_window": null}`:                                                      "sliding_window: null, but there are layers",
		`{"model_type": "flint", "num_experts": 2, "num_experts_per_tok": 3}`:                                  "num_experts_per_tok: 3 of 2 experts",
		`{"model_type": "laguna", "num_hidden_layers": 2, "num_attention_heads_per_layer": [8]}`:               "num_attention_heads_per_layer: 1 numbers of heads for 2 layers",
		`{"model_type": "laguna", "num_hidden_layers": 1, "num_attention_heads_per_layer": [9]}`:               "9 is not a multiple of the 8 key/value heads",
		`{"model_type": "laguna", "gating": "per-row"}`:                                                        `gating: "per-row" is not supported`,
		`{"model_type": "laguna", "moe_router_logit_softcapping": -1}`:                                         "moe_router_logit_softcapping: -1 is negative",
		`{"model_type": "laguna", "moe_apply_router_weight_on_input": true}`:                                   "moe_apply_router_weight_on_input: true is not supported",
		`{"model_type": "lfm3", "num_hidden_layers": 1, "layer_types": ["linear_attention"]}`:                  `layer_types: "linear_attention" is not supported`,
		`{"model_type": "lfm3", "num_hidden_layers": 2, "layer_types": ["conv"]}`:                              "layer_types: 1 types for 2 layers",
		`{"model_type": "lfm3", "sliding_window": null}`:                                                       "sliding_window: null, but there are layers",
		`{"model_type": "granite_swa", "num_hidden_layers": 2, "layer_rope_theta": [0]}`:                       "layer_rope_theta: 1 bases for 2 layers",
		`{"model_type": "granite_swa", "num_hidden_layers": 1, "layer_rope_theta": [-1]}`:                      "layer_rope_theta: -1 is negative",
		`{"model_type": "granitemoe_swa", "num_hidden_layers": 2, "sliding_window": null}`:                     "sliding_window: null, but there are layers",
		`{"model_type": "granitemoe", "num_local_experts": 2, "num_experts_per_tok": 3}`:                       "num_experts_per_tok: 3 of 2 experts",
		`{"model_type": "qwen2_moe", "use_sliding_window": true, "sliding_window": 0}`:                         "sliding_window: 0 is not within",
		`{"model_type": "ernie4_5_moe", "moe_layer_interval": 0}`:                                              "moe_layer_interval: 0 is not within",
		`{"model_type": "seed_oss", "rope_scaling": {"type": "longrope", "short_factor": 1}}`:                  "rope_scaling.short_factor: a number instead of a list",
		`{"model_type": "qwen3_vl", "text_config": {"num_experts": 3, "layer_types": 1, "hidden_act": "x"}}`:   `text_config.hidden_act: activation "x" is not supported`,
		`{"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2", "scoring_func": "softmax"}}`:      `text_config.scoring_func: "softmax" is not supported`,
		`{"model_type": "lfm2_moe"}`:                                                                           "layer_types: is missing",
		`{"model_type": "mamba2", "num_heads": 3}`:                                                             "n_groups: 8 does not divide the 3 heads",
		`{"model_type": "mamba2", "hidden_size": 64}`:                                                          "num_heads: 128 heads of 64 instead of 128 channels",
		`{"model_type": "mamba2", "time_step_limit": [1, 0.5]}`:                                                "time_step_limit: 1 is above 0.5",
		`{"model_type": "mamba2", "time_step_limit": [1]}`:                                                     "time_step_limit: 1 numbers instead of 2",
		`{"model_type": "falcon_h1", "ssm_multipliers": [1, 2]}`:                                               "ssm_multipliers: 2 numbers instead of 5",
		`{"model_type": "falcon_h1", "mamba_d_head": 3}`:                                                       "mamba_n_heads: 128 heads of 3 instead of 1024 channels",
		`{"model_type": "granitemoehybrid", "position_embedding_type": "alibi"}`:                               `position_embedding_type: "alibi" is not supported`,
		`{"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}`:                                        `hybrid_override_pattern: "MX" is not a pattern`,
		`{"model_type": "nemotron_h", "layers_block_type": ["lstm"]}`:                                          `layers_block_type: "lstm" is not supported`,
		`{"model_type": "lfm2", "num_hidden_layers": 2, "full_attn_idxs": [2]}`:                                "full_attn_idxs: 2 is not one of 2 layers",
		`{"model_type": "olmo_hybrid", "linear_num_key_heads": 7}`:                                             "linear_num_key_heads: 7 does not divide the 30 value heads",
		`{"model_type": "qwen3_next", "layer_types": ["linear_attention"]}`:                                    "layer_types: 1 types for 48 layers",
		`{"model_type": "qwen3_next", "num_hidden_layers": 1, "layer_types": ["mamba"]}`:                       `layer_types: "mamba" is not supported`,
		`{"model_type": "qwen3_5_text", "linear_num_key_heads": 5}`:                                            "linear_num_key_heads: 5 does not divide the 32 value heads",
		`{"model_type": "internvl", "text_config": {"model_type": "qwen4_next"}}`:                              `text_config.model_type: "qwen4_next" is not supported`,
		`{"model_type": "mistral3", "text_config": {"model_type": "ministral3", "rope_scaling": {"type": 3}}}`: "text_config.rope_scaling.type: a number instead of a text",
	} {
		unsupported(t, config, want)
	}
}

// TestUnsupportedValuesOfNewFamilies is TestUnsupportedValuesOfFamilies for phimoe, mimo_v2_flash, llama4, gemma4
// and sparse attention.
func TestUnsupportedValuesOfNewFamilies(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "lara_mini", "num_hidden_layers": 1, "layer_types": ["chunked_attention"]}`:                                `layer_types: "chunked_attention" is not supported`,
		`{"model_type": "lara_mini", "num_hidden_layers": 2, "layer_types": ["full_attention"]}`:                                   "layer_types: 1 types for 2 layers",
		`{"model_type": "inkling_text", "n_shared_experts": 0}`:                                                                    "n_shared_experts: 0 is not within",
		`{"model_type": "inkling_text", "num_hidden_layers": 1, "layer_types": ["full_attention"]}`:                                `layer_types: "full_attention" is not supported`,
		`{"model_type": "inkling_text", "num_hidden_layers": 2, "mlp_layer_types": ["dense"]}`:                                     "mlp_layer_types: 1 types for 2 layers",
		`{"model_type": "inkling_text", "log_scaling_n_floor": 8, "d_rel": 3}`:                                                     "d_rel: 3, an odd number, is not supported with log_scaling_n_floor",
		`{"model_type": "inkling_text", "log_scaling_n_floor": 8, "log_scaling_alpha": -1}`:                                        "log_scaling_alpha: -1 is negative",
		`{"model_type": "inkling_mm_model", "text_config": {"conv_kernel_size": 1}}`:                                               "text_config.conv_kernel_size: 1 is not within",
		`{"model_type": "inkling_text", "swa_num_attention_heads": 3}`:                                                             "swa_num_key_value_heads: 16 does not divide the 3 attention heads",
		`{"model_type": "minimax", "mlp_alpha_factor": 0}`:                                                                         "mlp_alpha_factor: 0 is not supported",
		`{"model_type": "minimax", "num_hidden_layers": 1, "layer_types": ["mamba"]}`:                                              `layer_types: "mamba" is not supported`,
		`{"model_type": "muse_glimmer", "text_config": {"num_hidden_layers": 2, "layer_rope_theta": [0]}}`:                         "text_config.layer_rope_theta: 1 bases for 2 layers",
		`{"model_type": "axk2", "q_lora_rank": null}`:                                                                              "q_lora_rank: null is not supported",
		`{"model_type": "axk2", "topk_group": 2}`:                                                                                  "topk_group: 2 of 1 groups",
		`{"model_type": "axk2", "index_head_dim": 16}`:                                                                             "index_head_dim: 16, less than the 32 channels",
		`{"model_type": "axk2", "num_hidden_layers": 2, "mlp_layer_types": ["dense"]}`:                                             "mlp_layer_types: 1 types for 2 layers",
		`{"model_type": "deepseek_v32", "q_lora_rank": null}`:                                                                      "q_lora_rank: sparse attention needs a rank",
		`{"model_type": "deepseek_v32", "index_head_dim": 32}`:                                                                     "index_head_dim: 32, less than the 64 channels",
		`{"model_type": "glm_moe_dsa", "num_hidden_layers": 2, "indexer_types": ["shared", "full"]}`:                               "indexer_types: the first layer shares",
		`{"model_type": "glm_moe_dsa", "num_hidden_layers": 2, "indexer_types": ["full"]}`:                                         "indexer_types: 1 types for 2 layers",
		`{"model_type": "glm_moe_dsa", "num_hidden_layers": 2, "index_topk_pattern": "FX"}`:                                        "index_topk_pattern: 1 types for 2 layers",
		`{"model_type": "codegen", "n_embd": 18, "n_head": 3, "rotary_dim": 2}`:                                                    "n_embd: got 18, want a multiple of 4",
		`{"model_type": "codegen", "rotary_dim": null}`:                                                                            "rotary_dim: null is not supported",
		`{"model_type": "deepseek_v4", "num_key_value_heads": 2}`:                                                                  "num_key_value_heads: 2 is not supported",
		`{"model_type": "deepseek_v4", "o_groups": 7}`:                                                                             "o_groups: 7 groups of 64 heads",
		`{"model_type": "deepseek_v4", "index_head_dim": 32}`:                                                                      "index_head_dim: 32, less than the 64 channels",
		`{"model_type": "deepseek_v4", "scoring_func": "softmax"}`:                                                                 `scoring_func: "softmax" is not supported`,
		`{"model_type": "deepseek_v4", "compress_ratios": [4, 64]}`:                                                                "compress_ratios: 64 is not supported",
		`{"model_type": "deepseek_v4", "layer_types": ["sliding_attention"]}`:                                                      "layer_types: 1 types for 43 layers",
		`{"model_type": "deepseek_v4", "num_hidden_layers": 1, "mlp_layer_types": ["dense"]}`:                                      `mlp_layer_types: "dense" is not supported`,
		`{"model_type": "deepseek_v4", "rope_scaling": {"type": "dynamic", "factor": 2}}`:                                          "rope_scaling: frequencies that depend on the length",
		`{"model_type": "deepseek_v4", "hidden_act": "gelu"}`:                                                                      `hidden_act: "gelu" is not supported`,
		`{"model_type": "phimoe", "rope_scaling": {"type": "linear", "factor": 2, "long_mscale": 1}}`:                              "rope_scaling.short_mscale: missing",
		`{"model_type": "phimoe", "num_local_experts": 1, "num_experts_per_tok": 1}`:                                               "num_local_experts: got 1, want at least 2",
		`{"model_type": "mimo_v2_flash", "num_attention_heads": 4}`:                                                                "num_key_value_heads: twice 4",
		`{"model_type": "mimo_v2_flash", "hybrid_layer_pattern": [1]}`:                                                             "hybrid_layer_pattern: 1 for layer 0 contradicts",
		`{"model_type": "mimo_v2_flash", "swa_rope_theta": 20000}`:                                                                 "swa_rope_theta: 20000 instead of 10000 is not supported",
		`{"model_type": "mimo_v2_flash", "add_full_attention_sink_bias": true}`:                                                    "add_full_attention_sink_bias: true instead of false",
		`{"model_type": "mimo_v2_flash", "rope_parameters": {"rope_type": "default", "rope_theta": 1}}`:                            "rope_parameters.full_attention: missing",
		`{"model_type": "mimo_v2_flash", "rope_scaling": {"type": "linear", "factor": 2}}`:                                         "rope_scaling: is not supported for this model_type",
		`{"model_type": "gemma4_text", "use_bidirectional_attention": "all"}`:                                                      `use_bidirectional_attention: "all" is not supported`,
		`{"model_type": "gemma4_text", "enable_moe_block": true, "num_experts": 4, "top_k_experts": 2}`:                            "moe_intermediate_size: missing",
		`{"model_type": "gemma4_text", "num_kv_shared_layers": 30}`:                                                                "num_kv_shared_layers: 30 of 30 layers",
		`{"model_type": "gemma4_text", "num_hidden_layers": 2, "num_kv_shared_layers": 1}`:                                         "no layer before them is of the type of layer 1",
		`{"model_type": "gemma4_text", "rope_parameters": {"sliding_attention": {"rope_theta": 1}}}`:                               "rope_parameters.full_attention: missing",
		`{"model_type": "gemma4_text", "num_attention_heads": 3, "num_key_value_heads": 2}`:                                        "num_key_value_heads: 2 does not divide",
		`{"model_type": "gemma4_text", "num_hidden_layers": 2, "per_layer_config": {"1": {"head_dim": 8, "x": 1}}}`:                "per_layer_config.1.x: is not supported by layer",
		`{"model_type": "gemma4_text", "num_hidden_layers": 2, "per_layer_config": {"02": {"head_dim": 8}}}`:                       "per_layer_config.02: is not one of the 2 layers",
		`{"model_type": "gemma4_text", "num_hidden_layers": 2, "per_layer_config": {"1": {"head_dim": 8}, "01": {"head_dim": 8}}}`: "names layer 1 again",
		`{"model_type": "llama", "per_layer_config": {"0": {"intermediate_size": 8}}}`:                                             "per_layer_config: is not supported for llama",
		`{"model_type": "llama4_text", "attention_chunk_size": null}`:                                                              "attention_chunk_size: null is not supported",
		`{"model_type": "llama4_text", "num_hidden_layers": 2, "no_rope_layers": [1]}`:                                             "no_rope_layers: 1 values for 2 layers",
		`{"model_type": "llama4_text", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]}`:                              `layer_types: "sliding_attention" is not supported`,
	} {
		unsupported(t, config, want)
	}
}

// TestUnsupportedValuesOfDecoders is TestUnsupportedValuesOfFamilies for decoders with plain MLPs, parallel blocks and the like.
func TestUnsupportedValuesOfDecoders(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "recurrent_gemma", "block_types": ["recurrent", "mlp"]}`:                                                     `block_types: "mlp" is not supported (supported: recurrent`,
		`{"model_type": "recurrent_gemma", "block_types": []}`:                                                                       "block_types: is empty",
		`{"model_type": "recurrent_gemma", "lru_width": 2561}`:                                                                       "lru_width: 2561 is not a multiple of the 10 attention heads",
		`{"model_type": "recurrent_gemma", "intermediate_size": 1}`:                                                                  "intermediate_size: got 1, want at least 2",
		`{"model_type": "recurrent_gemma", "rope_scaling": {"rope_type": "linear", "factor": 2}}`:                                    "rope_scaling: only ropes of type default",
		`{"model_type": "zamba2", "num_hidden_layers": 3}`:                                                                           "layers_block_type: missing, and the config class has no defaults for 3 layers",
		`{"model_type": "zamba2", "num_hidden_layers": 2, "layers_block_type": ["hybrid"]}`:                                          "layers_block_type: 1 types for 2 layers",
		`{"model_type": "zamba2", "num_hidden_layers": 1, "layers_block_type": ["attention"]}`:                                       `layers_block_type: "attention" is not supported`,
		`{"model_type": "zamba2", "hybrid_layer_ids": [6, 12]}`:                                                                      "hybrid_layer_ids: got [6 12], want [6 12 18",
		`{"model_type": "zamba2", "use_shared_attention_adapter": true, "num_key_value_heads": 8}`:                                   "use_shared_attention_adapter: true with 32 heads of 160, and 8 of keys",
		`{"model_type": "zamba2", "n_mamba_heads": 6}`:                                                                               "n_mamba_heads: 6 heads of 853 instead of 5120 channels",
		`{"model_type": "zamba2", "attention_hidden_size": 2560}`:                                                                    "attention_hidden_size: got 2560, want 5120",
		`{"model_type": "zamba", "n_mamba_heads": 3}`:                                                                                "n_mamba_heads: 3 does not divide the 7424 channels",
		`{"model_type": "zamba", "num_hidden_layers": 2}`:                                                                            "layers_block_type: missing, and the config class has no defaults for 2 layers",
		`{"model_type": "zamba", "attention_hidden_size": 3712}`:                                                                     "attention_hidden_size: got 3712, want 7424",
		`{"model_type": "jetmoe", "num_experts_per_tok": 9}`:                                                                         "num_experts_per_tok: 9 of 8 experts",
		`{"model_type": "dots1"}`:                                                                                                    "n_routed_experts: missing",
		`{"model_type": "dots1", "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "scoring_func": "softmax"}`: `scoring_func: "softmax" is not supported`,
		`{"model_type": "falcon", "new_decoder_architecture": true, "num_kv_heads": 1, "parallel_attn": false}`:                      "parallel_attn: false with new_decoder_architecture",
		`{"model_type": "falcon", "num_ln_in_parallel_attn": 2}`:                                                                     "num_ln_in_parallel_attn: 2 without new_decoder_architecture",
		`{"model_type": "falcon", "multi_query": false, "num_kv_heads": 1}`:                                                          "num_kv_heads: 1 instead of 71",
		`{"model_type": "olmo", "clip_qkv": 0}`:                                                                                      "clip_qkv: 0 is not",
		`{"model_type": "internlm3", "qkv_bias": true}`:                                                                              "qkv_bias: true beside false of bias",
		`{"model_type": "iquestcoder", "clip_qkv": 4}`:                                                                               "clip_qkv: 4 is not supported",
		`{"model_type": "iquestcoder", "use_sliding_window": true}`:                                                                  "use_sliding_window: true is not supported",
		`{"model_type": "solar_open", "use_qk_norm": true}`:                                                                          "use_qk_norm: true is not supported",
		`{"model_type": "solar_open", "first_k_dense_replace": 1}`:                                                                   "first_k_dense_replace: layers without experts",
		`{"model_type": "exaone_moe", "num_hidden_layers": 2, "mlp_layer_types": ["sparse"]}`:                                        "mlp_layer_types: 1 types for 2 layers",
		`{"model_type": "bamba", "attn_layer_indices": [32]}`:                                                                        "attn_layer_indices: 32 is not one of 32 layers",
		`{"model_type": "opt", "num_attention_heads": 7}`:                                                                            "num_attention_heads: 7 does not divide",
		`{"model_type": "gptj", "rotary_dim": 63}`:                                                                                   "rotary_dim: got 63, want an even number up to the head's 256",
		`{"model_type": "gptj", "rotary_dim": null}`:                                                                                 "rotary_dim: got 64",
		`{"model_type": "gpt_neo", "num_layers": 2}`:                                                                                 "attention_types: 4 types for 2 layers",
		`{"model_type": "gpt_neo", "attention_types": [["local", 24]]}`:                                                              "attention_types: 0 types for 24 layers",
		`{"model_type": "gpt_neo", "attention_types": [24]}`:                                                                         "attention_types: got 24, want pairs",
		`{"model_type": "gpt_neo", "attention_types": [[["sparse"], 24]]}`:                                                           "attention_types: sparse is not supported",
		`{"model_type": "gpt_bigcode", "add_cross_attention": true}`:                                                                 "add_cross_attention: cross attention is not supported",
		`{"model_type": "openai-gpt", "afn": "gelu_new"}`:                                                                            `afn: activation "gelu_new" is not supported (supported: gelu`,
		`{"model_type": "openai-gpt", "n_head": 7}`:                                                                                  "n_head: 7 does not divide the hidden size of 768",
		`{"model_type": "helium", "head_dim": 64}`:                                                                                   "head_dim: 20 heads of 64 are not the hidden size of 2560",
		`{"model_type": "hunyuan_v1_moe", "num_experts": 4, "moe_topk": 5}`:                                                          "moe_topk: 5 of 4 experts",
		`{"model_type": "hunyuan_v1_moe", "num_experts": 4, "moe_topk": [2]}`:                                                        "moe_topk: 1 numbers for 32 layers",
		`{"model_type": "hunyuan_v1_dense", "rope_scaling": {"type": "dynamic", "factor": 1, "alpha": -1}}`:                          "rope_scaling.alpha: -1 for 128 rotated dimensions",
		`{"model_type": "nemotron", "partial_rotary_factor": 2}`:                                                                     "partial_rotary_factor: 2 of a head of 128",
		`{"model_type": "phi", "head_dim": 32, "qk_layernorm": true}`:                                                                "head_dim: 32 heads of 32 with norms",
	} {
		unsupported(t, config, want)
	}
}

// TestUnsupportedValuesOfFurtherFamilies is TestUnsupportedValuesOfFamilies for families of 2025 and 2026.
func TestUnsupportedValuesOfFurtherFamilies(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "cwm", "attention_bias": true}`:                                                                                                   "attention_bias: true is not supported",
		`{"model_type": "axk1", "q_lora_rank": null}`:                                                                                                     "q_lora_rank: null is not supported",
		`{"model_type": "axk1", "mlp_layer_types": ["dense"]}`:                                                                                            "mlp_layer_types: 1 types for 61 layers",
		`{"model_type": "cohere2_moe", "rope_scaling": {"type": "linear", "factor": 2}}`:                                                                  "rope_scaling: is not supported for this model_type",
		`{"model_type": "cohere2_moe", "first_k_dense_replace": 1}`:                                                                                       "prefix_dense_intermediate_size: missing",
		`{"model_type": "cohere2_moe", "expert_selection_fn": "topk"}`:                                                                                    `expert_selection_fn: "topk" is not supported`,
		`{"model_type": "cohere2_moe", "num_shared_experts": 1, "shared_expert_combination_strategy": "concat"}`:                                          `shared_expert_combination_strategy: "concat" is not supported`,
		`{"model_type": "mellum", "rope_scaling": {"type": "linear", "factor": 2}}`:                                                                       "rope_scaling: is not supported for this model_type",
		`{"model_type": "mellum", "rope_parameters": {"sliding_attention": {"rope_theta": 1}}}`:                                                           "rope_parameters.full_attention: missing",
		`{"model_type": "sarvam_mla", "rope_scaling": {"type": "deepseek_ntk"}}`:                                                                          `rope_scaling.type: "deepseek_ntk" is not supported`,
		`{"model_type": "minimax_m3_vl_text", "swiglu_alpha": 0}`:                                                                                         "swiglu_alpha: 0",
		`{"model_type": "minimax_m3_vl_text", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]}`:                                              `layer_types: "sliding_attention" is not supported`,
		`{"model_type": "minimax_m3_vl_text", "num_hidden_layers": 2, "moe_layer_freq": [1]}`:                                                             "moe_layer_freq: 1 values for 2 layers",
		`{"model_type": "minimax_m3_vl_text", "num_hidden_layers": 1, "layer_types": ["minimax_m3_sparse"], "index_n_heads": 7}`:                          "index_n_heads: 7 does not divide the 64 attention heads",
		`{"model_type": "minimax_m3_vl_text", "num_hidden_layers": 1, "layer_types": ["minimax_m3_sparse"], "index_local_blocks": 17}`:                    "index_local_blocks: 17 of 16 blocks",
		`{"model_type": "minimax_m3_vl_text", "num_hidden_layers": 1, "sparse_attention_config": {"sparse_attention_freq": [1], "sparse_index_dim": 63}}`: "index_head_dim: 63, an odd number less than the 128 channels that rope turns",
		`{"model_type": "diffllama", "num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 60}`:                                              "num_key_value_heads: 3 is odd",
		`{"model_type": "mllama", "text_config": {"num_hidden_layers": 2, "cross_attention_layers": [2]}}`:                                                "text_config.cross_attention_layers: 2 is not one of 2 layers",
		`{"model_type": "mllama", "text_config": {"num_hidden_layers": 1, "cross_attention_layers": [0]}}`:                                                "text_config.cross_attention_layers: all 1 layers attend to images",
		`{"model_type": "dbrx", "tie_word_embeddings": true}`:                                                                                             "tie_word_embeddings: true is not supported",
		`{"model_type": "dbrx", "ffn_config": {"moe_normalize_expert_weights": 2}}`:                                                                       "ffn_config.moe_normalize_expert_weights: 2 is not supported",
		`{"model_type": "dbrx", "ffn_config": {"moe_num_experts": 4, "moe_top_k": 5}}`:                                                                    "ffn_config.moe_top_k: 5 of 4 experts",
		`{"model_type": "doge", "is_moe": true}`:                                                                                                          "is_moe: true is not supported",
		`{"model_type": "doge", "sliding_window": 9, "keep_window_size": 8}`:                                                                              "sliding_window: 9, more than keep_window_size, 8",
		`{"model_type": "hy_v4", "q_lora_rank": null}`:                                                                                                    "q_lora_rank: sparse attention needs a rank",
		`{"model_type": "hy_v4", "index_head_dim": 32}`:                                                                                                   "index_head_dim: 32, less than the 64 channels",
		`{"model_type": "hy_v4", "swiglu_limit": 0}`:                                                                                                      "swiglu_limit: 0 is not",
		`{"model_type": "hy_v4", "num_hidden_layers": 1, "layer_types": ["full_attention"]}`:                                                              `layer_types: "full_attention" is not supported`,
		`{"model_type": "hy_v4", "num_hidden_layers": 1, "indexer_types": ["shared"]}`:                                                                    "indexer_types: the first layer shares",
		`{"model_type": "qwen4_exp_text"}`:                                                                                                                "indexer_n_heads: missing, but there are layers of type indexed_attention",
		`{"model_type": "qwen4_exp_text", "num_hidden_layers": 1, "ple_layer_ids": [1]}`:                                                                  "eos_token_id: missing, but there are embeddings of n-grams",
		`{"model_type": "qwen4_exp_text", "num_hidden_layers": 1, "ple_layer_ids": [1], "eos_token_id": 1, "ple_embed_dim": 24}`:                          "ple_embed_dim: 24 channels for 16 hashes",
		`{"model_type": "qwen4_exp_text", "num_hidden_layers": 1, "ple_layer_ids": [2], "eos_token_id": 1}`:                                               "ple_layer_ids",
		`{"model_type": "qwen4_exp_text", "num_hidden_layers": 1, "ple_layer_ids": [1], "eos_token_id": 1, "ngram_vocab_size_base": 2000000000}`:          "ngram_vocab_size_base: a table of more than 2147483647 rows",
		`{"model_type": "qwen4_exp_text", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]}`:                                                  `layer_types: "sliding_attention" is not supported`,
		`{"model_type": "qwen4_exp_text", "num_hidden_layers": 1, "hidden_act": "gelu"}`:                                                                  "output_gate_type: the gate of a delta net is neither silu nor sigmoid",
		`{"model_type": "mistral4", "head_dim": 64}`:                                                                                                      "head_dim: 64, want qk_nope_head_dim and qk_rope_head_dim, 128",
		`{"model_type": "mistral4", "n_group": 2, "topk_group": 3}`:                                                                                       "topk_group: 3 of 2 groups",
		`{"model_type": "mistral4", "rope_parameters": {"rope_type": "default"}}`:                                                                         "rope_type default is not supported",
		`{"model_type": "afmoe", "n_group": 2}`:                                                                                                           "n_group: 2 is not supported",
		`{"model_type": "afmoe", "route_norm": false}`:                                                                                                    "route_norm: false is not supported",
		`{"model_type": "afmoe", "score_func": "tanh"}`:                                                                                                   `score_func: "tanh" is not supported`,
		`{"model_type": "gemma3n_text", "use_bidirectional_attention": true}`:                                                                             "use_bidirectional_attention",
		`{"model_type": "gemma3n_text", "intermediate_size": [64, 64]}`:                                                                                   "intermediate_size: 2 widths for 35 layers",
		`{"model_type": "gemma3n_text", "activation_sparsity_pattern": [0.5]}`:                                                                            "activation_sparsity_pattern: 1 shares for 35 layers",
		`{"model_type": "gemma3n_text", "num_hidden_layers": 1, "num_kv_shared_layers": 0, "activation_sparsity_pattern": [1]}`:                           "activation_sparsity_pattern: 1: got a share of 1 or more",
		`{"model_type": "gemma3n_text", "altup_active_idx": 4}`:                                                                                           "altup_active_idx: 4 is not within",
		`{"model_type": "gemma3n_text", "num_hidden_layers": 16}`:                                                                                         "no layer before them is of the type",
		`{"model_type": "bitnet", "head_dim": 64}`:                                                                                                        "head_dim: 20 heads of 64 are not the hidden size of 2560",
		`{"model_type": "exaone", "num_layers": 0}`:                                                                                                       "num_hidden_layers: 0 is not within",
	} {
		unsupported(t, config, want)
	}
}

func unsupported(t *testing.T, config, want string) {
	t.Helper()
	_, err := newFrom(config)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s:\n got  %v\n want %s", config, err, want)
	}
}

// TestQwen2MoESavedByTheReference: transformers writes a window of 0 where windows are off, which was
// an error.
func TestQwen2MoESavedByTheReference(t *testing.T) {
	if _, err := newFrom(`{"model_type": "qwen2_moe", "use_sliding_window": false, "sliding_window": 0}`); err != nil {
		t.Error(err)
	}
}

func TestQueriesOfMinistral3Grow(t *testing.T) {
	a := specOf[AttentionSpec](t, `{"model_type": "ministral3"}`, "model.layers.0.self_attn")
	if q := a.QueryRope; q.Growth != 0.1 || q.GrowthEvery != 16384 || a.Rope.Growth != 0 || q.Type != RopeYarn || q.Factor != 16 || q.Theta != 1e6 {
		t.Errorf("queries %+v, keys %+v", q, a.Rope)
	}
}

func TestLayersWithoutRope(t *testing.T) {
	for config, roped := range map[string][]bool{
		`{"model_type": "smollm3", "num_hidden_layers": 4}`:                                                         {true, true, true, false},
		`{"model_type": "cohere2", "num_hidden_layers": 4}`:                                                         {true, true, true, false},
		`{"model_type": "exaone4", "num_hidden_layers": 4}`:                                                         {true, true, true, false},
		`{"model_type": "exaone4", "num_hidden_layers": 2, "sliding_window": null}`:                                 {true, true},
		`{"model_type": "smollm3", "num_hidden_layers": 3, "no_rope_layers": [0, 1, 0]}`:                            {false, true, false},
		`{"model_type": "cohere2", "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]}`: {false, true},
	} {
		m, err := newFrom(config)
		if err != nil {
			t.Fatal(err)
		}
		for i, layer := range m.Root.Find("model.layers").Children {
			if got := layer.Child("self_attn").Spec.(*AttentionSpec).Rope != nil; got != roped[i] {
				t.Errorf("%s: layer %d has rope: %v, want %v", config, i, got, roped[i])
			}
		}
	}
}

// TestCohere2HasAHeadDimension: the reference derives it only where the file has none.
func TestCohere2HasAHeadDimension(t *testing.T) {
	for config, want := range map[string]int{
		`{"model_type": "cohere2", "hidden_size": 64, "num_attention_heads": 4, "head_dim": 6}`: 6,
		`{"model_type": "cohere2", "hidden_size": 64, "num_attention_heads": 4}`:                16,
	} {
		m, err := newFrom(config)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Root.Find("model.layers.0.self_attn").Spec.(*AttentionSpec).HeadDim; got != want {
			t.Errorf("%s: heads of %d, want %d", config, got, want)
		}
	}
}

// TestSquareStacksOfExperts: where the experts' first projection is square, the second one says whether the file has
// both transposed, as Qwen3-VL is published.
func TestSquareStacksOfExperts(t *testing.T) {
	const at = "model.language_model.layers.0.mlp.experts."
	config := `{"model_type": "qwen3_vl_moe", "vision_config": {}, "text_config": {"model_type": "qwen3_vl_moe_text", "num_hidden_layers": 1,
		"hidden_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1, "moe_intermediate_size": 12, "num_experts": 4, "num_experts_per_tok": 2}}`
	for _, c := range []struct {
		down       []int
		transposed bool
	}{{[]int{4, 12, 24}, true}, {[]int{4, 24, 12}, false}} {
		cfg, err := ReadConfig([]byte(config))
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(cfg, shapedHeader{}.add(at+"gate_up_proj", BFloat16, 4, 24, 24).add(at+"down_proj", BFloat16, c.down...))
		if err != nil {
			t.Fatal(err)
		}
		experts := m.Root.Find("model.language_model.layers.0.mlp.experts")
		for _, name := range []string{"gate_up_proj", "down_proj"} {
			if s := experts.Param(name).Sources; len(s) != 1 || s[0].Transposed != c.transposed {
				t.Errorf("%s beside down_proj of %v: %+v, want transposed %v", name, c.down, s, c.transposed)
			}
		}
	}
}

// TestOddRotaryDimensionsRoundUp: the reference rotates as many dimensions as its cosines have, with the frequencies of
// the odd number.
func TestOddRotaryDimensionsRoundUp(t *testing.T) {
	for _, config := range []string{
		`{"model_type": "glm", "head_dim": 10, "partial_rotary_factor": 0.5}`,
		`{"model_type": "glm4", "head_dim": 10, "partial_rotary_factor": 0.5}`,
		`{"model_type": "glm4_moe", "head_dim": 10, "partial_rotary_factor": 0.5}`,
		`{"model_type": "gpt_neox", "hidden_size": 40, "num_attention_heads": 4, "rotary_pct": 0.5}`,
		`{"model_type": "minimax_m2", "head_dim": 10, "rotary_dim": 5}`,
		`{"model_type": "nemotron", "head_dim": 10, "partial_rotary_factor": 0.5}`,
		`{"model_type": "qwen3_5_text", "head_dim": 10, "partial_rotary_factor": 0.5, "layer_types": ["full_attention"], "num_hidden_layers": 1}`,
	} {
		m, err := newFrom(config)
		if err != nil {
			t.Errorf("%s: %v", config, err)
			continue
		}
		var rope *RopeSpec
		for _, n := range m.Root.Walk() {
			if s, ok := n.Spec.(*AttentionSpec); ok {
				rope = s.Rope
				break
			}
		}
		if rope.Dim != 6 || rope.Divisor != 5 {
			t.Errorf("%s: %d dimensions with the frequencies of %d, want 6 and 5", config, rope.Dim, rope.Divisor)
		}
	}
}

// TestLimitsMayBeInfinite: Python's json writes Infinity, which is no JSON, and transformers 5 an object.
func TestLimitsMayBeInfinite(t *testing.T) {
	for _, limit := range []string{`Infinity`, `{"__float__": "Infinity"}`} {
		config := `{"model_type": "mamba2", "x": "Infinity \" Infinity", "time_step_limit": [0.5, ` + limit + `]}`
		s := specOf[Mamba2Spec](t, config, "backbone.layers.0.mixer")
		if s.StepMin != 0.5 || !math.IsInf(float64(s.StepMax), 1) {
			t.Errorf("%s: from %g to %g", limit, s.StepMin, s.StepMax)
		}
	}
	if _, err := newFrom(`{"model_type": "mamba2", "vocab_size": Infinity}`); err == nil || !strings.Contains(err.Error(), "vocab_size: number 1e999 out of range") {
		t.Error(err)
	}
}

// TestLayersNamedWithLeadingZeros: transformers 5.24 saves per_layer_config with keys such as "05" where a model
// has more than ten layers, which were ignored, so that Gemma 4 as saved was an error.
func TestLayersNamedWithLeadingZeros(t *testing.T) {
	const config = `{"model_type": "gemma4_text", "num_hidden_layers": 12, "head_dim": 256,
		"per_layer_config": {"05": {"head_dim": 512}, "11": {"head_dim": 512}}}`
	for path, want := range map[string]int{"model.layers.4.self_attn": 256, "model.layers.5.self_attn": 512, "model.layers.11.self_attn": 512} {
		if got := specOf[AttentionSpec](t, config, path).HeadDim; got != want {
			t.Errorf("%s: heads of %d values, want %d", path, got, want)
		}
	}
}

// TestPhiMoEIgnoresExpertsPerToken: the router chooses two experts whatever num_experts_per_tok says, as in transformers.
func TestPhiMoEIgnoresExpertsPerToken(t *testing.T) {
	m, err := newFrom(`{"model_type": "phimoe", "num_hidden_layers": 1, "num_local_experts": 2, "num_experts_per_tok": 4}`)
	if err != nil {
		t.Fatal(err)
	}
	if s := m.Root.Find("model.layers.0.mlp").Spec.(*MoESpec); s.TopK != 2 || s.Count != 2 {
		t.Errorf("%d of %d experts, want 2 of 2", s.TopK, s.Count)
	}
}

// TestLongcatRefusesWhatNothingComputes: a biased router has a bias that transformers does not add, and experts of other kinds.
func TestLongcatRefusesWhatNothingComputes(t *testing.T) {
	for field, want := range map[string]string{
		`"router_bias": true`: "router_bias: true is not supported", `"zero_expert_type": "copy"`: "zero_expert_type", `"q_lora_rank": null`: "q_lora_rank: null is not supported",
		`"moe_topk": 9, "n_routed_experts": 4, "zero_expert_num": 4`: "moe_topk: 9 of 8 experts",
	} {
		if _, err := newFrom(`{"model_type": "longcat_flash", "num_layers": 1, ` + field + `}`); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", field, err, want)
		}
	}
}

// TestApertus15HeadsMayBeShorter: the vocabulary of requests and logits is that of the head, and the embedding has more rows.
func TestApertus15HeadsMayBeShorter(t *testing.T) {
	const config = `{"model_type": "apertus1p5_text", "num_hidden_layers": 1, "vocab_size": 100, "output_vocab_size": `
	m, err := newFrom(config + `60}`)
	if err != nil {
		t.Fatal(err)
	}
	head, embed := m.Root.Find("lm_head").Param("weight").Shape[0], m.Root.Find("model.embed_tokens").Param("weight").Shape[0]
	if v := m.Root.Spec.(*CausalLMSpec).Vocab; v != 60 || head != 60 || embed != 100 {
		t.Errorf("vocabulary %d, head of %d rows, embedding of %d, want 60, 60 and 100", v, head, embed)
	}
	if _, err := newFrom(config + `60, "tie_word_embeddings": true}`); err == nil {
		t.Error("a short head that is the embedding is no error")
	}
}

// TestGroupsRankByTwo: every family whose reference ranks groups of experts by the sum of their best two scores says so. That
// scores are sigmoids once meant it, whatever the spec said.
func TestGroupsRankByTwo(t *testing.T) {
	const grouped = `, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "n_routed_experts": 8, "num_experts": 8, "n_shared_experts": 1, "num_hidden_layers": 8, "hidden_size": 3072}`
	for modelType, more := range map[string]string{
		"axk1": "", "beam": "", "bailing_hybrid": "", "deepseek_v3": "", "deepseek_v32": "", "dots1": "", "exaone_moe": "", "glm4_moe": "", "glm4_moe_lite": "", "glm_moe_dsa": "",
		"kimi_k2": "", "kimi_linear": "", "mimo_v2_flash": "", "mistral4": "", "mistral_large4": "", "nemotron_h": `, "layers_block_type": ["moe"]`, "sarvam_mla": "", "sarvam_moe": "", "solar_open": "",
		"deepseek_v2": `, "topk_method": "group_limited_greedy"`,
	} {
		found := false
		for _, m := range build(t, []byte(`{"model_type": "`+modelType+`"`+more+grouped)).Root.Walk() {
			spec, ok := m.Spec.(*MoESpec)
			if found = found || ok; ok && (spec.Groups != 2 || spec.GroupsByTwo != (modelType != "deepseek_v2")) {
				t.Errorf("%s: %+v", modelType, spec)
			}
		}
		if !found {
			t.Errorf("%s: no mixture", modelType)
		}
	}
}

// TestRopeOfDBRXIsThatOfItsAttention reads the base of the rope where published files have it, unless the config has one.
func TestRopeOfDBRXIsThatOfItsAttention(t *testing.T) {
	for config, want := range map[string]float64{
		`{"model_type": "dbrx", "attn_config": {"rope_theta": 500000}}`:                     500000,
		`{"model_type": "dbrx", "attn_config": {"rope_theta": 500000}, "rope_theta": 1000}`: 1000,
		`{"model_type": "dbrx"}`: 10000,
	} {
		a := build(t, []byte(config)).Root.Find("transformer.blocks.0.norm_attn_norm.attn").Spec.(*AttentionSpec)
		if a.Rope.Theta != want || a.KVHeads != 1 {
			t.Errorf("%s: base %g and %d heads of keys, want %g and 1", config, a.Rope.Theta, a.KVHeads, want)
		}
	}
}

// TestHeadsOfGPTNeoXJapaneseDivideTheHiddenSize: the reference fails with a shape otherwise.
func TestHeadsOfGPTNeoXJapaneseDivideTheHiddenSize(t *testing.T) {
	unsupported(t, `{"model_type": "gpt_neox_japanese", "hidden_size": 40, "num_attention_heads": 3}`,
		"num_attention_heads: 3 does not divide the hidden size of 40")
}

// TestUnsupportedValuesOfModernBERTDecoderAndCTRL checks the errors of the two.
func TestUnsupportedValuesOfModernBERTDecoderAndCTRL(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "modernbert-decoder", "local_attention": null}`:                     "local_attention: a window of 0 tokens",
		`{"model_type": "modernbert-decoder", "sliding_window": -1}`:                        "sliding_window: a window of -1 tokens",
		`{"model_type": "modernbert-decoder", "classifier_activation": "relu3"}`:            `classifier_activation: activation "relu3" is not supported`,
		`{"model_type": "modernbert-decoder", "hidden_size": 40, "num_attention_heads": 3}`: "num_attention_heads: 3 does not divide the hidden size of 40",
		`{"model_type": "ctrl", "n_embd": 45, "n_head": 5}`:                                 "n_embd: 45 is odd or not a multiple of the 5 heads",
	} {
		unsupported(t, config, want)
	}
}

// TestWindowOfModernBERTDecoderIsWhatTransformersSaves: transformers prefers the field that it saves to half of local_attention.
func TestWindowOfModernBERTDecoderIsWhatTransformersSaves(t *testing.T) {
	for config, want := range map[string]int{
		`{"model_type": "modernbert-decoder", "local_attention": 9}`:                      4,
		`{"model_type": "modernbert-decoder", "local_attention": 9, "sliding_window": 7}`: 7,
	} {
		if a := build(t, []byte(config)).Root.Find("model.layers.1.attn").Spec.(*AttentionSpec); a.Window != want {
			t.Errorf("%s: window %d, want %d", config, a.Window, want)
		}
	}
}
