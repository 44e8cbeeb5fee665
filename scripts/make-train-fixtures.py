#!/usr/bin/env python3
"""Makes tiny models of many architectures with their gradients by torch.

    python scripts/make-train-fixtures.py testdata/golden/train/gradients [NAME...]

Between them they have every kind of attention, norm, gate and router that is served. Weights are random
numbers of bfloat16, arithmetic is float32. golden.json holds a batch with its loss and, of each tensor's
gradient under its name in the checkpoint: sum, l2, the product with cos(0), cos(1), …, and the first eight.
Some steep models are computed in float64. Models whose layers have a state for each sequence are too, and also
have steps: the losses of three steps of AdamW, and [norm, product with cosines] of each weight behind them; and long: the loss and
[norm, product with cosines] of the gradients of a text of 60 tokens.
"""
import gzip
import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

import packed
from in_double import in_double
from families.reference import without_idle_experts  # and registers Step 3.5

VOCAB, LENGTH, IGNORED = 40, 11, -100
SIZES = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def rope(theta=10000.0, **more):
    return dict(dict(rope_type="default"), rope_theta=theta, **more)


# name: model type, fields
SPARSE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=12)
MODELS = {
    "gemma2": ("gemma2", dict(head_dim=8, sliding_window=4, attn_logit_softcapping=2.0, final_logit_softcapping=3.0, query_pre_attn_scalar=8)),
    "gemma3": ("gemma3_text", dict(head_dim=8, sliding_window=4, num_hidden_layers=3, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention"], query_pre_attn_scalar=8)),
    "gpt-oss": ("gpt_oss", dict(head_dim=8, sliding_window=4, num_local_experts=4, num_experts_per_tok=2, swiglu_limit=0.5, layer_types=[
        "sliding_attention", "full_attention"], rope_parameters=rope(150000.0))),
    "deepseek-v3": ("deepseek_v3", dict(
        num_key_value_heads=4, first_k_dense_replace=1, kv_lora_rank=6, q_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6,
        moe_intermediate_size=8, n_group=4, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=3, topk_group=2, norm_topk_prob=True,
        routed_scaling_factor=2.5, rope_parameters=rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0))),
    "cohere": ("cohere", dict(use_qk_norm=True, logit_scale=0.5, rope_parameters=rope())),
    "stablelm-parallel": ("stablelm", dict(use_parallel_residual=True, qk_layernorm=True, rope_parameters=rope(partial_rotary_factor=0.5))),
    "gpt-neox": ("gpt_neox", dict(num_key_value_heads=None, rotary_pct=0.5, use_parallel_residual=True)),
    "qwen3-moe": ("qwen3_moe", dict(head_dim=8, moe_intermediate_size=8, num_experts=6, num_experts_per_tok=3, norm_topk_prob=False,
                                    decoder_sparse_step=1, mlp_only_layers=[])),
    "granite": ("granite", dict(embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.5, attention_multiplier=0.2)),
    "olmo2": ("olmo2", dict()),
    "phi3": ("phi3", dict(rope_parameters=rope(partial_rotary_factor=1.0))),
    "starcoder2": ("starcoder2", dict(sliding_window=5, use_bias=True)),
    "cohere2": ("cohere2", dict(sliding_window=4, layer_types=["sliding_attention", "full_attention"], logit_scale=0.5)),
    "deepseek-v2": ("deepseek_v2", dict(
        num_key_value_heads=4, first_k_dense_replace=1, kv_lora_rank=6, q_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6,
        moe_intermediate_size=8, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=3, topk_method="group_limited_greedy", n_group=4,
        topk_group=2, routed_scaling_factor=2.0)),
    "ernie4-5-moe": ("ernie4_5_moe", dict(use_bias=True, moe_num_experts=4, moe_k=2, moe_intermediate_size=8, moe_num_shared_experts=1)),
    "ernie4-5": ("ernie4_5", dict(head_dim=8, use_bias=True)),
    "exaone4": ("exaone4", dict(sliding_window=4, layer_types=["sliding_attention", "full_attention"])),
    "gemma": ("gemma", dict(head_dim=8)),
    "gemma4": ("gemma4_text", dict(head_dim=6, global_head_dim=8, sliding_window=4, attention_k_eq_v=True, num_global_key_value_heads=1, hidden_size_per_layer_input=0,
                                   layer_types=["sliding_attention", "full_attention"])),
    "glm4": ("glm4", dict(head_dim=8)),
    "glm4-moe": ("glm4_moe", dict(head_dim=8, use_qk_norm=True, moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2,
                                  first_k_dense_replace=1, norm_topk_prob=False, routed_scaling_factor=2.0)),
    "glm4-moe-lite": ("glm4_moe_lite", dict(
        num_key_value_heads=4, kv_lora_rank=6, q_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6,
        moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2)),
    "granitemoe": ("granitemoe", dict(num_local_experts=4, embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.5,
                                      attention_multiplier=0.2)),
    "hy-v3": ("hy_v3", dict(head_dim=8, moe_intermediate_size=8, num_experts=4, num_experts_per_tok=2)),
    "minimax": ("minimax", dict(num_local_experts=4, num_experts_per_tok=2, block_size=4, layer_types=["linear_attention", "full_attention"], linear_attn_alpha_factor=1.5,
                               linear_attn_beta_factor=0.5, mlp_alpha_factor=0.5)),
    "minimax-m2": ("minimax_m2", dict(head_dim=8, num_local_experts=4, num_experts_per_tok=2, rope_parameters=rope(partial_rotary_factor=0.5))),
    "mimo-v2-flash": ("mimo_v2_flash", dict(head_dim=8, v_head_dim=6, num_key_value_heads=1, moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2,
                                            sliding_window=4, layer_types=["sliding_attention", "full_attention"], mlp_layer_types=["sparse", "dense"])),
    "llama4": ("llama4_text", dict(head_dim=8, intermediate_size_mlp=12, num_local_experts=4, num_experts_per_tok=2, attention_chunk_size=4, floor_scale=3,
                                   attn_scale=0.5, no_rope_layers=[1, 0], moe_layers=[1])),
    "arcee": ("arcee", dict(attention_bias=True, mlp_bias=True)),
    "dots1": ("dots1", dict(moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1,
                            sliding_window=4, layer_types=["sliding_attention", "full_attention"], norm_topk_prob=True, routed_scaling_factor=2.0)),
    "helium": ("helium", dict(head_dim=4)),
    "hunyuan-dense": ("hunyuan_v1_dense", dict(head_dim=8, rope_parameters=rope(rope_type="dynamic", alpha=1000.0, factor=1.0))),
    "hunyuan-moe": ("hunyuan_v1_moe", dict(head_dim=8, num_experts=4, moe_topk=[2, 1])),
    "nemotron": ("nemotron", dict(rope_parameters=rope(partial_rotary_factor=0.5))),
    "phi": ("phi", dict(qk_layernorm=True, rope_parameters=rope(partial_rotary_factor=0.5))),
    "minicpm3": ("minicpm3", dict(num_key_value_heads=4, kv_lora_rank=6, q_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6, scale_emb=3.0, scale_depth=1.2,
                                  dim_model_base=8)),
    "olmo": ("olmo", dict()),
    "olmo-clip": ("olmo", dict(clip_qkv=0.75)),
    "falcon-grouped": ("falcon", dict(new_decoder_architecture=True, num_kv_heads=2, bias=True)),
    "falcon-alibi": ("falcon", dict(alibi=True, multi_query=False, parallel_attn=False, bias=True)),
    "falcon-shared": ("falcon", dict(parallel_attn=False)),
    "gpt-neox-japanese": ("gpt_neox_japanese", dict(intermediate_multiple_size=2, hidden_dropout=0.0, attention_dropout=0.0)),
    "ctrl": ("ctrl", dict(n_embd=16, n_head=4, n_layer=2, dff=24, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0)),
    "modernbert-decoder": ("modernbert-decoder", dict(local_attention=6, layer_types=["full_attention", "sliding_attention"], norm_bias=True, classifier_bias=True)),
    "rwkv": ("rwkv", dict(intermediate_size=20, rescale_every=1)),
    "zaya": ("zaya", dict(head_dim=8, num_key_value_heads=2, num_experts=3, moe_intermediate_size=10, router_hidden_size=6, attention_bias=True, lm_head_bias=True, sliding_window=4,
                          layer_types=["hybrid_sliding", "hybrid"])),
    "persimmon": ("persimmon", dict(rope_parameters=rope(partial_rotary_factor=0.5))),
    "exaone-moe": ("exaone_moe", dict(moe_intermediate_size=8, num_experts=4, num_experts_per_tok=2, sliding_window=4, layer_types=["sliding_attention", "full_attention"])),
    "flex-olmo": ("flex_olmo", dict(num_experts=4, num_experts_per_tok=2)),
    "ministral": ("ministral", dict(head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"])),
    "solar-open": ("solar_open", dict(head_dim=8, moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2)),
    "ministral3": ("ministral3", dict(head_dim=8, rope_parameters=rope(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=4, llama_4_scaling_beta=0.5))),
    "olmo3": ("olmo3", dict(sliding_window=4, layer_types=["sliding_attention", "full_attention"])),
    "olmoe": ("olmoe", dict(num_experts=4, num_experts_per_tok=2)),
    "qwen2-moe": ("qwen2_moe", dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=12)),
    "seed-oss": ("seed_oss", dict(head_dim=8, attention_out_bias=True)),
    "smollm3": ("smollm3", dict(no_rope_layers=[1, 0])),
    "gpt-neo": ("gpt_neo", dict(num_key_value_heads=None, attention_types=[[["local", "global"], 1]], window_size=4)),
    "gptj": ("gptj", dict(num_key_value_heads=None, intermediate_size=None, n_inner=20, rotary_dim=2)),
    "codegen": ("codegen", dict(num_key_value_heads=None, intermediate_size=None, n_inner=20, rotary_dim=2)),
    "gpt-bigcode": ("gpt_bigcode", dict(num_key_value_heads=None, intermediate_size=None, n_inner=20)),
    "openai-gpt": ("openai-gpt", dict(num_key_value_heads=None, intermediate_size=None, afn="gelu")),
    "gpt-bigcode-heads": ("gpt_bigcode", dict(num_key_value_heads=None, intermediate_size=None, n_inner=20, multi_query=False)),
    "cwm": ("cwm", dict(head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"], rope_parameters=rope())),
    "vaultgemma": ("vaultgemma", dict(head_dim=8, sliding_window=4, attn_logit_softcapping=2.0, final_logit_softcapping=3.0, query_pre_attn_scalar=8)),
    "granitemoeshared": ("granitemoeshared", dict(num_local_experts=4, shared_intermediate_size=12, embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.2)),
    "granite-swa": ("granite_swa", dict(sliding_window=4, layer_types=["sliding_attention", "full_attention"], layer_rope_theta=[300.0, 0], mlp_bias=True,
                                        embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.2)),
    "granitemoe-swa": ("granitemoe_swa", dict(sliding_window=4, layer_types=["full_attention", "sliding_attention"], num_local_experts=4, shared_intermediate_size=12,
                                              attention_multiplier=0.2)),
    "hyperclovax": ("hyperclovax", dict(logits_scaling=0.5, residual_multiplier=0.5)),
    "jais2": ("jais2", dict()),
    "youtu": ("youtu", dict(num_key_value_heads=4, kv_lora_rank=6, q_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6, tie_word_embeddings=False)),
    "axk1": ("axk1", dict(num_key_value_heads=4, kv_lora_rank=6, q_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6, moe_intermediate_size=8,
                          n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, mlp_layer_types=["dense", "sparse"])),
    "cohere-compass": ("cohere_compass_text", dict(sliding_window=4, layer_types=["sliding_attention", "full_attention"], logit_scale=0.5,
                                                    rope_parameters=dict(full_attention=None, sliding_attention=rope()))),
    "cohere2-moe": ("cohere2_moe", dict(head_dim=8, sliding_window=4, num_experts=4, num_experts_per_tok=2, num_shared_experts=1, layer_types=["sliding_attention", "full_attention"],
                                        logit_scale=0.5, expert_selection_fn="sigmoid")),
    "mellum": ("mellum", dict(head_dim=8, sliding_window=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, layer_types=["sliding_attention", "full_attention"])),
    "nanochat": ("nanochat", dict(final_logit_softcapping=4.0)),
    "bitnet": ("bitnet", dict()),
    "afmoe": ("afmoe", dict(head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, num_shared_experts=1, num_dense_layers=1, sliding_window=4, mup_enabled=True,
                            layer_types=["full_attention", "sliding_attention"])),
    "opt": ("opt", dict(num_key_value_heads=None, intermediate_size=None, ffn_dim=20, word_embed_proj_dim=16)),
    "bloom": ("bloom", dict(hidden_size=24, n_layer=2, n_head=6, num_hidden_layers=None, num_attention_heads=None, num_key_value_heads=None,
                            intermediate_size=None, max_position_embeddings=None)),
    "mpt": ("mpt", dict(d_model=24, n_layers=2, n_heads=6, max_seq_len=64, hidden_size=None, num_hidden_layers=None, num_attention_heads=None,
                        num_key_value_heads=None, intermediate_size=None, max_position_embeddings=None)),
    "flint": ("flint", dict(head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"], mlp_only_layers=[0], **SPARSE)),
    "kolibri1": ("kolibri1", dict(head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"], intermediate_size=None, norm_topk_prob=True, **SPARSE)),
    "lara-mini": ("lara_mini", dict(head_dim=8, sliding_window=4, linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=12, linear_value_head_dim=4, linear_conv_kernel_dim=3,
                                    num_hidden_layers=3, layer_types=["linear_attention", "sliding_attention", "full_attention"], intermediate_size=None, **SPARSE)),
    "laguna": ("laguna", dict(head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"], num_attention_heads_per_layer=[2, 4], gating="per-head",
                              moe_router_logit_softcapping=1.5, moe_routed_scaling_factor=2.0, **SPARSE)),
    "laguna-channels": ("laguna", dict(head_dim=8, gating="per-element", mlp_layer_types=["dense", "sparse"], **SPARSE)),
    "lfm3": ("lfm3", dict(head_dim=8, conv_L_cache=3, sliding_window=4, num_hidden_layers=3, layer_types=["conv", "sliding_attention", "full_attention"])),
    "gemma4-unified": ("gemma4_unified_text", dict(head_dim=6, global_head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"])),
    "lfm2": ("lfm2", dict(conv_L_cache=3, block_auto_adjust_ff_dim=False, layer_types=["conv", "full_attention"], rope_parameters=rope())),
    "lfm2-moe": ("lfm2_moe", dict(conv_L_cache=4, conv_bias=True, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, num_dense_layers=1,
                                  num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], routed_scaling_factor=1.5, rope_parameters=rope())),
}

DELTA_NET = dict(head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=5, linear_conv_kernel_dim=4,
                 layer_types=["linear_attention", "full_attention"], rope_parameters=rope(partial_rotary_factor=0.5))
MIXER = dict(mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=7, mamba_d_conv=4, mamba_chunk_size=4)
MODELS |= {
    "qwen3-next": ("qwen3_next", dict(DELTA_NET, **SPARSE, mlp_only_layers=[], decoder_sparse_step=1)),
    "olmo-hybrid": ("olmo_hybrid", dict({k: v for k, v in DELTA_NET.items() if k != "head_dim"}, linear_num_value_heads=2)),
    "qwen3-5": ("qwen3_5_text", dict(DELTA_NET, linear_num_value_heads=2)),
    "qwen3-5-moe": ("qwen3_5_moe_text", dict(DELTA_NET, **SPARSE, intermediate_size=None)),
    "mamba2": ("mamba2", dict(intermediate_size=None, num_attention_heads=None, num_key_value_heads=None, max_position_embeddings=None, num_heads=4, head_dim=8,
                              expand=2, n_groups=2, state_size=7, conv_kernel=4, chunk_size=4)),
    "nemotron-h": ("nemotron_h", dict(num_hidden_layers=None, layers_block_type=["mamba", "attention", "moe", "mlp"], head_dim=8, mamba_num_heads=4, mamba_head_dim=6,
                                      n_groups=2, ssm_state_size=7, conv_kernel=3, chunk_size=4, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
                                      moe_shared_expert_intermediate_size=12, routed_scaling_factor=2.0)),
    "granitemoehybrid": ("granitemoehybrid", dict(MIXER, layer_types=["mamba", "attention"], mamba_expand=1, num_local_experts=4, num_experts_per_tok=2,
                                                  shared_intermediate_size=12, embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.5,
                                                  attention_multiplier=0.2, position_embedding_type="rope", rope_parameters=rope())),
    "falcon-h1": ("falcon_h1", dict(MIXER, head_dim=8, mamba_d_ssm=24, mamba_d_head=6, mamba_rms_norm=True, mamba_norm_before_gate=False, attention_out_multiplier=0.7,
                                    ssm_in_multiplier=1.2, ssm_out_multiplier=0.8, ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.7], key_multiplier=0.6,
                                    lm_head_multiplier=0.7, time_step_limit=[0.3, 0.9], rope_parameters=rope())),
    "bamba": ("bamba", dict(MIXER, mamba_expand=1, attn_layer_indices=[1], mamba_proj_bias=True, rope_parameters=rope())),
}
SCAN = dict(intermediate_size=None, num_attention_heads=None, num_key_value_heads=None, max_position_embeddings=None, expand=5, state_size=5, conv_kernel=4, time_step_rank=3)
KIMI = dict(num_key_value_heads=4, kv_lora_rank=6, q_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6, moe_intermediate_size=8, num_experts=4,
            num_experts_per_tok=2, n_group=2, topk_group=1, routed_scaling_factor=2.0, layer_types=["linear_attention", "full_attention"], mlp_layer_types=["dense", "sparse"])
MODELS |= {
    "mamba": ("mamba", SCAN),
    "falcon-mamba": ("falcon_mamba", dict(SCAN, use_bias=True)),
    "jamba": ("jamba", dict(attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, num_experts=4, num_experts_per_tok=2,
                            mamba_d_state=5, mamba_d_conv=3, mamba_expand=2, mamba_dt_rank=3, use_mamba_kernels=False)),
    "kimi-linear": ("kimi_linear", dict(KIMI, linear_attn_config=dict(head_dim=6, num_heads=3, short_conv_kernel_size=4))),
    "bailing-hybrid": ("bailing_hybrid", dict(KIMI, head_dim=4, short_conv_kernel_size=4, kda_safe_gate=True, kda_lower_bound=-2.5, num_nextn_predict_layers=0)),
}
MODELS["longcat-flash"] = ("longcat_flash", dict(
    intermediate_size=None, num_key_value_heads=4, num_layers=2, ffn_hidden_size=20, expert_ffn_hidden_size=8, n_routed_experts=4, zero_expert_num=3, moe_topk=3,
    num_hidden_layers=None, kv_lora_rank=6, q_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, head_dim=4, v_head_dim=6, routed_scaling_factor=2.5, rope_parameters=rope()))
MODELS["mistral4"] = ("mistral4", dict(
    num_key_value_heads=4, kv_lora_rank=6, q_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6, moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2,
    first_k_dense_replace=1, rope_parameters=rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=4, llama_4_scaling_beta=0.5, mscale=1.0, mscale_all_dim=1.0)))
MODELS["minimax-m3"] = ("minimax_m3_vl_text", dict(
    head_dim=8, dense_intermediate_size=20, intermediate_size=8, shared_intermediate_size=10, num_local_experts=4, num_experts_per_tok=2, swiglu_limit=0.5, mlp_layer_types=["dense", "sparse"],
    rope_parameters=rope(partial_rotary_factor=0.5)))
MODELS["apertus"] = ("apertus", dict(hidden_act="xielu"))
MODELS["apertus1p5"] = ("apertus1p5_text", dict(hidden_act="xielu", output_vocab_size=VOCAB))
FOUR = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
MODELS |= {
    "gemma3n": ("gemma3n_text", dict(num_hidden_layers=4, layer_types=FOUR, head_dim=8, sliding_window=4, hidden_size_per_layer_input=4, vocab_size_per_layer_input=VOCAB - 9,
                                     num_kv_shared_layers=2, laurel_rank=3, altup_num_inputs=3, altup_active_idx=1, activation_sparsity_pattern=[0.5, 0.0, 0.3, 0.95],
                                     intermediate_size=[20, 22, 24, 20], final_logit_softcapping=8.0)),
    "gemma3n-plain": ("gemma3n_text", dict(num_hidden_layers=2, layer_types=FOUR[1:3], head_dim=6, sliding_window=4, hidden_size_per_layer_input=4, vocab_size_per_layer_input=VOCAB,
                                           num_kv_shared_layers=0, laurel_rank=5, altup_num_inputs=4, altup_correct_scale=False, activation_sparsity_pattern=[0.0, 0.7],
                                           tie_word_embeddings=False, attention_bias=True)),
    "gemma4-small": ("gemma4_text", dict(num_hidden_layers=3, layer_types=FOUR[:3], head_dim=6, global_head_dim=8, sliding_window=4, hidden_size_per_layer_input=4,
                                         vocab_size_per_layer_input=VOCAB, num_kv_shared_layers=1, use_double_wide_mlp=True)),
    "gemma4-experts": ("gemma4_text", dict(layer_types=FOUR[:2], head_dim=6, global_head_dim=8, sliding_window=4, hidden_size_per_layer_input=0,
                                           enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=10)),
}
M3 = dict(MODELS["minimax-m3"][1], num_hidden_layers=2)
MODELS |= {
    "diffllama": ("diffllama", dict(num_key_value_heads=2)),
    "doge": ("doge", dict(keep_window_size=2048)),
    "doge-chosen": ("doge", dict(keep_window_size=5)),
    "minimax-m3-sparse": ("minimax_m3_vl_text", dict(M3, index_n_heads=2, index_head_dim=8, index_block_size=2, index_topk_blocks=3, index_local_blocks=1, layer_types=["minimax_m3_sparse", "full_attention"])),
}
LATENT = dict(MODELS["deepseek-v3"][1], n_routed_experts=4, n_group=1, topk_group=1, num_experts_per_tok=2, rope_parameters=rope(), index_topk=5, index_n_heads=8, index_head_dim=4)  # with many heads no scores are 0 alike
MODELS |= {
    "step3p5": ("step3p5", dict(head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"], num_sliding_attention_heads=6, n_routed_experts=4, num_experts_per_tok=2,
                                moe_intermediate_size=8, share_expert_dim=12, mlp_layer_types=["dense", "sparse"], swiglu_limits=[0, 0.3], swiglu_limits_shared=[0.4, 0.5], moe_router_scaling_factor=2.0)),
    "beam": ("beam", dict(head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"], mlp_layer_types=["dense", "sparse"], moe_intermediate_size=8, num_experts=4, num_experts_per_tok=2,
                          n_group=2, topk_group=1, final_logit_softcapping=3.0)),
    "jetmoe": ("jetmoe", dict(num_attention_heads=None, kv_channels=6, intermediate_size=8, num_local_experts=3, num_experts_per_tok=2)),
    "zamba": ("zamba", dict(num_hidden_layers=3, layers_block_type=["linear_attention", "hybrid", "hybrid"], num_attention_heads=2, num_key_value_heads=1, mamba_d_state=4, n_mamba_heads=4,
                            mamba_dt_rank=2, mamba_proj_bias=True)),
    "zamba2": ("zamba2", dict(num_hidden_layers=3, layers_block_type=["linear_attention", "hybrid", "hybrid"], num_attention_heads=2, mamba_d_state=4, n_mamba_heads=4, mamba_ngroups=2,
                              adapter_rank=3, use_shared_attention_adapter=True, use_mem_rope=True)),
    "recurrent-gemma": ("recurrent_gemma", dict(num_hidden_layers=2, block_types=["recurrent", "attention"], attention_window_size=4, lru_width=12, logits_soft_cap=5.0, hidden_act=None)),
    "deepseek-v32": ("deepseek_v32", LATENT),
    "axk2": ("axk2", dict(LATENT, n_group=None, topk_group=None, gated_norm_rank=3, mlp_layer_types=["dense", "sparse"], first_k_dense_replace=None)),
    "hy-v4": ("hy_v4", dict(LATENT, n_group=None, topk_group=None, first_k_dense_replace=None, mlp_layer_types=["dense", "sparse", "sparse"], num_hidden_layers=3, hc_mult=3, swiglu_limit=0.3,
                            indexer_types=["full", "shared", "full"])),
    "qwen4-exp": ("qwen4_exp_text", dict(
        SPARSE, intermediate_size=None, layer_types=["linear_attention", "indexed_attention"], head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4,
        linear_key_head_dim=4, linear_value_head_dim=6, linear_conv_kernel_dim=3, hc_count=2, hc_lowrank=3, indexer_n_heads=8, indexer_kv_heads=1, indexer_head_dim=8, indexer_compress_ratio=2,
        indexer_budget=4, ple_layer_ids=[1], ple_embed_dim=8, ple_conv_kernel_size=3, ngram_size=3, heads_per_ngram=2, ngram_vocab_size_base=20, make_ngram_vocab_size_divisible_by=8, seed=5)),
    "hrm-text": ("hrm_text", dict(num_hidden_layers=1, head_dim=4, H_cycles=2, L_cycles=2, initializer_range=0.5)),
    "dory": ("dory", dict(num_hidden_layers=3, head_dim=8, n_input_layers=1, n_recurrent_layers=1, n_output_layers=1, n_recurrent_loops=2, sliding_window=4, initializer_range=0.6,
                          ngpt_alpha_init=0.3, layer_types=["full_attention", "sliding_attention", "full_attention"])),
    "phimoe": ("phimoe", dict(num_local_experts=4, attention_bias=True, lm_head_bias=True, router_jitter_noise=0.2)),
    "dots3-note": ("dots3_note_text", dict(
        {k: v for k, v in LATENT.items() if k != "rope_parameters"}, n_group=None, topk_group=None, head_dim=16, first_k_dense_replace=None, mlp_layer_types=["dense", "sparse", "sparse"],
        num_hidden_layers=3, layer_types=["full_attention", "sliding_attention", "full_attention"], sliding_window=4, shared_experts_intermediate_size=10, swa_num_attention_heads=2,
        swa_num_key_value_heads=2, swa_q_lora_rank=6, swa_kv_lora_rank=8, swa_qk_nope_head_dim=4, swa_v_head_dim=6, swa_head_dim=8)),
    "inkling": ("inkling_text", dict(
        vocab_size=VOCAB + 6, unpadded_vocab_size=VOCAB, head_dim=6, swa_head_dim=4, swa_num_attention_heads=4, swa_num_key_value_heads=2, d_rel=4, rel_extent=6, sliding_window_size=4,
        conv_kernel_size=3, layer_types=["hybrid_sliding", "hybrid"], mlp_layer_types=["dense", "sparse"], moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=2,
        route_scale=2.0, log_scaling_n_floor=3, log_scaling_alpha=0.5, logits_mup_width_multiplier=2.0, tie_word_embeddings=False)),
    "glm-moe-dsa": ("glm_moe_dsa", dict(LATENT, indexer_types=["full", "shared"])),
    "mistral-large4": ("mistral_large4", dict(LATENT, q_lora_rank=None, num_hidden_layers=4, no_rope_layers=[1, 0, 1, 0], kv_source_layers=[0, 1, 0, 1], indexer_types=["full", "shared", "full", "shared"],
                                              mlp_layer_types=["dense", "sparse", "dense", "dense"], final_logit_softcapping=3.0, rope_parameters=rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=8))),
}
V4_ROPE = dict(partial_rotary_factor=0.5)
MODELS["deepseek-v4"] = ("deepseek_v4", dict(
    intermediate_size=None, num_key_value_heads=1, head_dim=8, q_lora_rank=6, o_groups=2, o_lora_rank=5, sliding_window=3, index_n_heads=8, index_head_dim=8, index_topk=2, hc_mult=2, hc_sinkhorn_iters=4,
    moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2, swiglu_limit=0.4, num_hidden_layers=3, mlp_layer_types=["hash_moe", "moe", "moe"], tie_word_embeddings=False,
    layer_types=["compressed_sparse_attention", "heavily_compressed_attention", "sliding_attention"], compress_rates=dict(compressed_sparse_attention=2, heavily_compressed_attention=3),
    rope_parameters=dict(main=rope(**V4_ROPE), compress=rope(40000.0, **V4_ROPE)), **V4_ROPE))
STATES = ("linear_attn_alpha_factor", "conv_L_cache", "linear_num_key_heads", "state_size", "ssm_state_size", "mamba_d_state", "lru_width", "linear_attn_config", "kda_safe_gate", "compress_rates", "conv_kernel_size")
MODELS["inkling-published"] = ("inkling_mm_model", dict({k: v for k, v in MODELS["inkling"][1].items() if k not in ("tie_word_embeddings", "unpadded_vocab_size")}, n_shared_experts=1))  # rows of gate and up in turn
IMAGES = ("model.visual.", "model.audio.", "vision_encoder.", "vision_language_adapter.", "patch_merger.", "pre_mm_projector_norm.")  # parts of models that Heft does not read
STEEP = ("num_kv_shared_layers", "enable_moe_block")  # of Gemma 3n and 4, whose scores are not scaled: float32 is too short
SCALES = {"zamba": 0.7, "zamba2": 0.7}  # of weights, where float32 is too short for gradients of larger ones; 1.2 of others


def without_none(fields):
    return {k: v for k, v in fields.items() if v is not None}


def build(kind, fields):
    torch.manual_seed(len(kind))
    fields = without_none(dict(SIZES, **fields))
    auto = AutoModelForCausalLM
    if kind == "mistral_large4":  # transformers has no text model alone
        vision = dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, head_dim=4, image_size=8, patch_size=4)
        auto, fields = AutoModelForImageTextToText, dict(text_config=fields, vision_config=vision, image_token_index=0)
    if kind == "inkling_mm_model":
        auto, fields = AutoModelForImageTextToText, dict(text_config=fields, vision_config=dict(patch_size=2, temporal_patch_size=2, num_hidden_layers=3), audio_config=dict(n_mel_bins=2, mel_vocab_size=4))
    config = AutoConfig.for_model(kind, **fields)
    config._attn_implementation = "sdpa" if fields.get("alibi") else "eager"  # Falcon's eager one adds its biases twice
    model = without_idle_experts(auto.from_config(config, dtype=torch.float32, experts_implementation="eager").eval())
    with torch.no_grad():
        for _, t in list(model.named_parameters()) + [(n, b) for n, b in model.named_buffers() if "correction" in n or "balancing" in n or "layer_scalar" in n]:
            if t.dim() > 1:
                t.normal_(0, SCALES.get(kind, 1.2) / t.shape[-1] ** 0.5)
            else:
                t.add_(torch.randn_like(t) * 0.2)
            t.copy_(t.to(torch.bfloat16).float())
        for n, t in model.named_buffers():
            if n.endswith("tid2eid"):  # the experts of each token
                t.copy_(torch.rand(t.shape[0], config.n_routed_experts).argsort(-1)[:, :t.shape[1]])
    return model


def digits(x):
    return float(f"{x:.8g}")


def summary(g):
    g = g.double().flatten()
    return dict(sum=digits(g.sum()), l2=digits(g.norm()), along=digits((g * torch.arange(len(g), dtype=torch.float64).cos()).sum()),
                first=[digits(v) for v in g[:8]])


def saved(model):
    """Parameters under the checkpoint's names."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(pathlib.Path(folder) / "model.safetensors")
    return {n: t for n, t in sorted(tensors.items()) if t.is_floating_point() and not n.startswith(IMAGES) and ("correction_coefs" in n or not any(buffer in n for buffer in ("correction", "balancing", "expert_bias", "ffn.gate.bias", "mlp.gate.bias", "layer_scalar", "act_fn.beta", "act_fn.eps", "slope_rate", "_decay")))}


def gradients(model, ids, labels):
    """The loss, and the gradients under the checkpoint's names: they are saved in place of the weights."""
    loss = model(torch.tensor(ids), labels=torch.tensor(labels), use_cache=False).loss
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
    return loss.item(), {n: summary(t) for n, t in saved(model).items()}


def steps(model, ids, labels):
    """Three steps of AdamW. With this eps an element whose gradient is rounding hardly moves."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1)
    losses = []
    for _ in range(3):
        loss = model(torch.tensor(ids), labels=torch.tensor(labels), use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    after = {n: summary(t) for n, t in saved(model).items()}
    return dict(losses=losses, after={n: [s["l2"], s["along"]] for n, s in after.items()})


def make(folder, name, kind, fields):
    model = build(kind, fields)
    out = folder / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    model.save_pretrained(out)
    path = out / "model.safetensors"
    save_file({n: t.to(torch.bfloat16) if t.is_floating_point() else t for n, t in load_file(path).items() if not n.startswith(IMAGES)}, path, metadata={"format": "pt"})
    path.chmod(0o644)
    (out / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((out / "config.json").read_text())
    if kind == "dots3_note_text":  # as published: transformers writes layers with windows as exceptions
        config = dict(without_none(dict(SIZES, **fields)), model_type=kind, architectures=config["architectures"], dtype="bfloat16")
    (out / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    g = torch.Generator().manual_seed(7)
    ids = torch.randint(3, VOCAB, (2, LENGTH), generator=g).tolist()
    labels = [list(row) for row in ids]
    labels[0][:3], labels[1][-2:] = [IGNORED] * 3, [IGNORED] * 2
    has_state = any(name in fields for name in STATES)
    double = has_state or any(name in fields for name in STEEP)
    with in_double(model, double):
        loss, grads = gradients(model, ids, labels)
    golden = dict(name=name, model_type=kind, compute="float64" if double else "float32", versions=dict(torch=torch.__version__, transformers=transformers.__version__),
                  input_ids=ids, labels=labels, loss=loss, gradients=grads)
    if has_state:
        with in_double(build(kind, fields)) as model:
            golden["steps"] = steps(model, ids, labels)
        with in_double(build(kind, fields)) as model:
            text = torch.randint(3, VOCAB, (1, 60), generator=g).tolist()
            of_text, slopes = gradients(model, text, text)
            golden["long"] = dict(input_ids=text, labels=text, loss=of_text, gradients={n: [s["l2"], s["along"]] for n, s in slopes.items()})
    (out / "golden.json.gz").write_bytes(gzip.compress(json.dumps(golden).encode(), mtime=0))
    packed.pack(path)
    print(name, loss, sum(f.stat().st_size for f in out.iterdir()), "bytes")


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, (kind, fields) in MODELS.items():
        if not sys.argv[2:] or name in sys.argv[2:]:
            make(folder, name, kind, fields)


if __name__ == "__main__":
    main()
