#!/usr/bin/env python3
"""Writes the configs of well-known models to testdata/known, for the table of memory in docs/models.md.

usage: make-known-models.py [OUT]      (transformers 5.24)

A config is transformers' own for the model type, with the fields in which the published model differs. Beside
it is the published number of parameters, in billions, without towers for images and layers that predict several
tokens: the table's generator fails where Heft counts another, so that no wrong field that decides a size goes
unnoticed.
"""

import json
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
from transformers import CONFIG_MAPPING  # noqa: E402

FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def llama(hidden, inner, layers, heads):
    return dict(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=8, head_dim=128,
                vocab_size=128256, max_position_embeddings=131072, rms_norm_eps=1e-5, rope_parameters=LLAMA3)


def qwen3(hidden, inner, layers, heads, kv, **more):
    return dict(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv, head_dim=128, vocab_size=151936,
                max_position_embeddings=40960, rope_parameters={"rope_type": "default", "rope_theta": 1e6}, tie_word_embeddings=False, layer_types=None, **more)


def qwen3_moe(hidden, inner, layers, heads, expert):
    return qwen3(hidden, inner, layers, heads, 4, moe_intermediate_size=expert, num_experts=128, num_experts_per_tok=8, norm_topk_prob=True)


# Name, model type, billions of parameters, what differs from the type's config.
MODELS = [
    ("Llama-3.1-8B", "llama", 8.03, llama(4096, 14336, 32, 32)),
    ("Llama-3.3-70B", "llama", 70.55, llama(8192, 28672, 80, 64)),
    ("Llama-3.1-405B", "llama", 405.85, llama(16384, 53248, 126, 128)),
    ("Mistral-7B-v0.1", "mistral", 7.24, {}),
    ("Mixtral-8x7B-v0.1", "mixtral", 46.7, {}),
    ("Qwen3-8B", "qwen3", 8.19, qwen3(4096, 12288, 36, 32, 8)),
    ("Qwen3-32B", "qwen3", 32.76, qwen3(5120, 25600, 64, 64, 8)),
    ("Qwen3-30B-A3B", "qwen3_moe", 30.53, qwen3_moe(2048, 6144, 48, 32, 768)),
    ("Qwen3-235B-A22B", "qwen3_moe", 235.09, qwen3_moe(4096, 12288, 94, 64, 1536)),
    ("Qwen3-Next-80B-A3B", "qwen3_next", 79.7, {}),
    ("Qwen3.5-35B-A3B", "qwen3_5_moe_text", 34.66, {}),
    ("Gemma-3-27B", "gemma3_text", 27.0, dict(hidden_size=5376, intermediate_size=21504, num_hidden_layers=62, num_attention_heads=32, num_key_value_heads=16, head_dim=128,
                                              vocab_size=262208, sliding_window=1024, query_pre_attn_scalar=168, layer_types=None, max_position_embeddings=131072)),
    ("Phi-3.5-MoE", "phimoe", 41.9, {}),
    ("SmolLM3-3B", "smollm3", 3.08, {}),
    ("gpt-oss-20b", "gpt_oss", 20.9, dict(num_hidden_layers=24, num_local_experts=32, layer_types=None, quantization_config=MXFP4)),
    ("gpt-oss-120b", "gpt_oss", 116.8, dict(quantization_config=MXFP4)),
    ("GLM-4.7-Flash", "glm4_moe_lite", 29.9, {}),
    ("GLM-4.5-Air", "glm4_moe", 106.9, dict(head_dim=128, attention_bias=True, num_nextn_predict_layers=1)),
    ("GLM-4.5", "glm4_moe", 353.0, dict(hidden_size=5120, intermediate_size=12288, num_hidden_layers=92, num_attention_heads=96, num_key_value_heads=8, head_dim=128,
                                        moe_intermediate_size=1536, n_routed_experts=160, first_k_dense_replace=3, routed_scaling_factor=2.5, attention_bias=True, use_qk_norm=True)),
    ("GLM-5", "glm_moe_dsa", 744.0, {}),
    ("MiniMax-M2", "minimax_m2", 228.7, dict(quantization_config=FP8 | {"modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"]})),
    ("Llama-4-Scout", "llama4_text", 107.8, {}),
    ("DeepSeek-V3", "deepseek_v3", 671.0, dict(quantization_config=FP8)),
    ("DeepSeek-V3.2", "deepseek_v32", 671.9, dict(quantization_config=FP8)),
    ("DeepSeek-V4-Flash", "deepseek_v4", 284.3, dict(expert_dtype="fp4", quantization_config=FP8 | {"scale_fmt": "ue8m0"})),
    ("Kimi-K2", "kimi_k2", 1026.4, dict(vocab_size=163840, num_attention_heads=64, num_key_value_heads=64, n_routed_experts=384, n_group=1, topk_group=1, first_k_dense_replace=1,
                                        routed_scaling_factor=2.827, max_position_embeddings=131072, quantization_config=FP8)),
]

# Fields of transformers' own that say nothing of a model.
GENERAL = {"_name_or_path", "architectures", "chunk_size_feed_forward", "id2label", "label2id", "initializer_range", "is_encoder_decoder", "output_attentions", "output_hidden_states",
           "problem_type", "return_dict", "use_cache", "attention_dropout", "bos_token_id", "eos_token_id", "pad_token_id", "pretraining_tp", "transformers_version"}


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "testdata/known")
    out.mkdir(parents=True, exist_ok=True)
    for name, kind, billions, fields in MODELS:
        own = CONFIG_MAPPING["deepseek_v3" if kind == "kimi_k2" else kind](**{k: v for k, v in fields.items() if k != "quantization_config"})
        config = json.loads(own.to_json_string(use_diff=False))
        config = {k: v for k, v in config.items() if v is not None and k not in GENERAL}
        config |= {k: v for k, v in fields.items() if v is not None} | {"model_type": kind, "dtype": "bfloat16"}
        known = {"name": name, "billions": billions, "config": config}
        (out / f"{name}.json").write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


main()
