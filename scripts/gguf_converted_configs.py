"""Configs of the models of make-gguf-converted.py: for each name the config of transformers, and options: fields of config.json that
published models have beside it (config), those that they lack (without), flags of the converter, a change of the saved folder
(published) or of weights (weights), the targets of an adapter (adapter), and whether the converter sees the config without what transformers adds (raw)."""
import json
import re

from families.reference import step3p5_published  # and registers Step 3.5
from safetensors.torch import load_file, save_file
import torch

VOCAB, HIDDEN, INNER = 64, 32, 48
BASE = dict(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=128, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)
NO_INNER = {k: v for k, v in BASE.items() if k != "intermediate_size"}
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
ROPE = dict(rope_type="default", rope_theta=10000.0)
DELTA = dict(num_hidden_layers=4, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
             linear_conv_kernel_dim=4, layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"],
             rope_parameters=dict(ROPE, partial_rotary_factor=0.5))
SHARED = dict(EXPERTS, shared_expert_intermediate_size=24)
MIXER = dict(mamba_n_heads=8, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=8, mamba_d_conv=4, mamba_conv_bias=True, mamba_chunk_size=8)
HYBRID = ["mamba", "attention", "mamba"]
NEMOTRON = dict({k: v for k, v in BASE.items() if k != "num_hidden_layers"}, model_type="nemotron_h", head_dim=8, mamba_num_heads=8, mamba_head_dim=8, n_groups=2,
                ssm_state_size=8, conv_kernel=4, chunk_size=8, expand=2, layer_norm_epsilon=1e-5)
MAMBA = dict(vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=2, expand=2, state_size=8, conv_kernel=4, bos_token_id=1, eos_token_id=2, pad_token_id=0,
             tie_word_embeddings=False)
JAMBA = dict(model_type="jamba", num_experts_per_tok=1, mamba_expand=2, mamba_d_state=8, mamba_d_conv=4, mamba_dt_rank=4, rms_norm_eps=1e-5)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0)
MLA = dict(q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8, num_key_value_heads=4)
DEEP = dict(n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1, moe_intermediate_size=16, first_k_dense_replace=1,
            routed_scaling_factor=2.5, norm_topk_prob=True)
KIMI_FILE = dict(linear_attn_config=dict(head_dim=8, num_heads=4, short_conv_kernel_size=4, full_attn_layers=[2, 4], kda_layers=[1, 3]), num_shared_experts=1,
                 first_k_dense_replace=1, num_experts=4, num_experts_per_token=2, num_expert_group=1, topk_group=1, moe_renormalize=True,
                 moe_router_activation_func="sigmoid")
KIMI = dict(BASE, **MLA, **KIMI_FILE, model_type="kimi_linear", num_hidden_layers=4, rms_norm_eps=1e-5, routed_scaling_factor=2.5, moe_intermediate_size=16)
INDEXER = dict(index_topk=6, index_n_heads=4, index_head_dim=16)
GEMMA4 = dict(BASE, model_type="gemma4_text", num_hidden_layers=4, head_dim=8, global_head_dim=16, sliding_window=8, rms_norm_eps=1e-5, hidden_size_per_layer_input=0,
              tie_word_embeddings=True, final_logit_softcapping=8.0, attention_k_eq_v=False, num_kv_shared_layers=0,
              layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"], rope_parameters=dict(
                  full_attention=dict(rope_type="proportional", rope_theta=50000.0, partial_rotary_factor=0.25), sliding_attention=dict(rope_type="default", rope_theta=1000.0)))
GEMMA3N = dict(BASE, model_type="gemma3n_text", num_hidden_layers=4, head_dim=8, sliding_window=8, rms_norm_eps=1e-5, tie_word_embeddings=True, final_logit_softcapping=8.0,
               layer_types=["sliding_attention", "sliding_attention", "full_attention", "full_attention"], hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCAB,
               num_kv_shared_layers=1, laurel_rank=4, altup_num_inputs=4, activation_sparsity_pattern=[0.95, 0.5, 0.0, 0.0],
               rope_parameters=dict(full_attention=dict(rope_type="default", rope_theta=50000.0), sliding_attention=dict(rope_type="default", rope_theta=10000.0)))
WINDOWS = dict(num_hidden_layers=4, sliding_window=8, layer_types=["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"])


def without_decays(folder):
    """Leaves out the decays of lightning attention, which transformers computes."""
    file = folder / "model.safetensors"
    tensors = {n: t for n, t in load_file(file).items() if not n.endswith(("_decay", "slope_rate"))}
    save_file(tensors, file, metadata={"format": "pt"})


def as_ling(folder):
    """Gives a glm4_moe model the names of Ling 2.0, whose queries, keys and values are one projection."""
    file = folder / "model.safetensors"
    tensors, out = load_file(file), {}
    for name, t in tensors.items():
        for a, b in (("embed_tokens", "word_embeddings"), ("self_attn.o_proj", "attention.dense"), ("self_attn.q_norm", "attention.query_layernorm"),
                     ("self_attn.k_norm", "attention.key_layernorm"), ("gate.e_score_correction_bias", "gate.expert_bias")):
            name = name.replace(a, b)
        out[name] = t
    for name in [n for n in out if re.search(r"self_attn\.q_proj", n)]:
        parts = [out.pop(name.replace("q_proj", p)) for p in ("q_proj", "k_proj", "v_proj")]
        out[name.replace("self_attn.q_proj", "attention.query_key_value")] = torch.cat(parts)
    save_file(out, file, metadata={"format": "pt"})


def as_kimi(folder):
    """Gives MLPs of layers without experts their published names."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    save_file({re.sub(r"block_sparse_moe\.((gate|up|down)_proj)", r"mlp.\1", name): t for name, t in tensors.items()}, file, metadata={"format": "pt"})


def with_words(folder):
    """Adds a tokenizer's list of tokens, which the converter counts."""
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {str(i): i for i in range(VOCAB)}}, "added_tokens": []}))


def as_internlm2(folder):
    """Gives a llama model the names of InternLM2, whose queries, keys and values are one projection, a group of heads after another."""
    file = folder / "model.safetensors"
    tensors, out = load_file(file), {}
    for name, t in tensors.items():
        for a, b in (("embed_tokens", "tok_embeddings"), ("lm_head", "output"), ("self_attn.o_proj", "attention.wo"), ("input_layernorm", "attention_norm"),
                     ("post_attention_layernorm", "ffn_norm"), ("mlp.gate_proj", "feed_forward.w1"), ("mlp.up_proj", "feed_forward.w3"), ("mlp.down_proj", "feed_forward.w2")):
            name = name.replace(a, b)
        out[name] = t
    for name in [n for n in out if "self_attn.q_proj" in n]:
        q, k, v = (out.pop(name.replace("q_proj", p)).reshape(2, -1, HIDDEN) for p in ("q_proj", "k_proj", "v_proj"))
        out[name.replace("self_attn.q_proj", "attention.wqkv")] = torch.cat([q, k, v], 1).reshape(-1, HIDDEN)
    save_file(out, file, metadata={"format": "pt"})


def as_bitnet(folder):
    """Gives a model the names of the norms that BitNet's first models have."""
    file = folder / "model.safetensors"
    save_file({name.replace("attn_sub_norm", "inner_attn_ln").replace("ffn_sub_norm", "ffn_layernorm"): t for name, t in load_file(file).items()}, file, metadata={"format": "pt"})


def signs(name, p):
    """Makes the values of projections equal but for their signs, which BitNet's scale and rounding leave as they are."""
    if name.endswith("proj.weight"):
        p.copy_(torch.where(p < 0, -0.25, 0.25))


QWEN4 = dict(NO_INNER, **DELTA, **SHARED, model_type="qwen4_exp_text", hc_count=2, hc_lowrank=8, indexer_n_heads=7, indexer_kv_heads=1, indexer_head_dim=16,
             indexer_compress_ratio=2, indexer_budget=8, ple_layer_ids=[2], ple_embed_dim=32, ple_conv_kernel_size=3, ngram_size=3, heads_per_ngram=2, ngram_vocab_size_base=20,
             make_ngram_vocab_size_divisible_by=8, split_ngram_parts=3, seed=5, norm_topk_prob=True)
QWEN4["layer_types"] = ["linear_attention", "linear_attention", "indexed_attention", "linear_attention"]
QWEN4_FILE = dict(layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"], rope_theta=10000.0)

DOTS3 = dict(BASE, **dict(MLA, **DEEP, **INDEXER), model_type="dots3_note_text", num_hidden_layers=4, rms_norm_eps=1e-5, shared_experts_intermediate_size=16, sliding_window=8,
             swa_num_attention_heads=2, swa_num_key_value_heads=2, swa_q_lora_rank=16, swa_kv_lora_rank=24, swa_qk_nope_head_dim=16, swa_qk_rope_head_dim=8, swa_head_dim=24, swa_v_head_dim=12,
             rope_theta=50000.0, swa_rope_theta=1000.0, layer_types=["indexed_attention", "sliding_attention", "sliding_attention", "indexed_attention"],
             mlp_layer_types=["dense", "sparse", "sparse", "sparse"])
DOTS3_FILE = dict({k: DOTS3[k] for k in DOTS3 if k.startswith("swa_")}, architectures=["Dots3NoteForCausalLM"], apply_mla_qkv_lora_rescale=True, scoring_func="sigmoid", sliding_window_size=8,
                  first_k_dense_replace=1, moe_shared_expert_intermediate_size=16, num_key_value_heads=4, rope_theta=50000.0,
                  layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"])


def as_qwen4(folder):
    """Gives the tables of n-grams the parts that published files have."""
    file = folder / "model.safetensors"
    tensors = {}
    for name, t in load_file(file).items():
        if name.endswith("ngram_embedding.weight"):
            parts = QWEN4["split_ngram_parts"]
            rows = (t.shape[0] + parts - 1) // parts
            tensors.update({name.replace(".weight", f".shard_{i}.weight"): t[i * rows : (i + 1) * rows].contiguous() for i in range(parts)})
        else:
            tensors[name] = t
    save_file(tensors, file, metadata={"format": "pt"})



MODELS = {
    "bamba": (dict(BASE, **MIXER, model_type="bamba", num_hidden_layers=3, mamba_expand=2, attn_layer_indices=[1]),
              dict(config=dict(attn_layer_indices=[1], num_key_value_heads=2), raw=True, adapter=["q_proj", "k_proj", "o_proj", "out_proj"])),
    "bamba-v5": (dict(BASE, **MIXER, model_type="bamba", mamba_expand=2, attn_layer_indices=[0], rope_parameters=dict(ROPE, rope_theta=1000.0)), {}),
    "bloom": (dict(model_type="bloom", vocab_size=VOCAB, hidden_size=HIDDEN, n_layer=2, n_head=4, layer_norm_epsilon=1e-5, bos_token_id=1, eos_token_id=2),
              dict(config=dict(seq_length=128))),
    "mpt": (dict(model_type="mpt", vocab_size=VOCAB, d_model=HIDDEN, n_layers=2, n_heads=4, max_seq_len=128, attn_config=dict(alibi=True, alibi_bias_max=8)),
            dict(config=dict(architectures=["MPTForCausalLM"]))),
    "bitnet": (dict(BASE, model_type="bitnet", tie_word_embeddings=True, hidden_act="silu"),
               dict(weights=signs, published=as_bitnet, config=dict(architectures=["BitnetForCausalLM"]))),
    "xverse": (dict(BASE, model_type="llama"), dict(config=dict(architectures=["XverseForCausalLM"]))),
    "internlm2": (dict(BASE, model_type="llama"), dict(config=dict(architectures=["InternLM2ForCausalLM"]), published=as_internlm2)),
    "pangu": (dict(BASE, model_type="llama", attention_bias=True), dict(config=dict(architectures=["PanguEmbeddedForCausalLM"]))),
    "minicpm": (dict(BASE, model_type="granite", embedding_multiplier=6.0, residual_multiplier=0.5, logits_scaling=2.0, attention_multiplier=8 ** -0.5),
                dict(config=dict(architectures=["MiniCPMForCausalLM"], scale_emb=6.0, scale_depth=0.5 * 2 ** 0.5, dim_model_base=16))),
    "qwen3next": (dict(NO_INNER, **DELTA, **SHARED, model_type="qwen3_next", norm_topk_prob=True), dict(flags=["--no-mtp"])),
    "qwen35": (dict(BASE, **DELTA, model_type="qwen3_5_text"), dict(flags=["--no-mtp"])),
    "qwen35moe": (dict(NO_INNER, **DELTA, **SHARED, model_type="qwen3_5_moe_text"), dict(flags=["--no-mtp"])),
    "qwen35-grouped": (dict(BASE, **dict(DELTA, linear_num_key_heads=2, linear_num_value_heads=6), model_type="qwen3_5_text", tie_word_embeddings=True),
                       dict(flags=["--no-mtp"], adapter=["in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj", "q_proj", "o_proj", "down_proj"])),
    "mamba2": (dict(model_type="mamba2", vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=2, num_heads=8, head_dim=8, expand=2, n_groups=2, state_size=8,
                    conv_kernel=4, use_bias=False, use_conv_bias=True, chunk_size=8, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0), {}),
    "mamba": (dict(MAMBA, model_type="mamba"), {}),
    "mamba-ranked": (dict(MAMBA, model_type="mamba", state_size=1, conv_kernel=3, time_step_rank=5, use_conv_bias=True, tie_word_embeddings=True), {}),
    "falcon-mamba": (dict(MAMBA, model_type="falcon_mamba", layer_norm_epsilon=1e-5), {}),
    "jamba": (dict(BASE, **JAMBA, num_hidden_layers=4, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=0, num_experts=4), {}),
    "jamba-dense": (dict(BASE, **JAMBA, num_hidden_layers=3, attn_layer_period=8, attn_layer_offset=1, num_experts=1), {}),
    "kimi-linear": (dict(KIMI), dict(config=KIMI_FILE, without=["layer_types", "mlp_layer_types", "rope_parameters"], published=as_kimi, raw=True)),
    "nemotron_h": (dict(NEMOTRON, layers_block_type=["mamba", "attention", "mlp", "mamba"]), dict(config=dict(hybrid_override_pattern="M*-M", num_hidden_layers=4), without=["num_experts_per_tok", "layers_block_type", "layer_types"], raw=True)),
    "nemotron_h_moe": (dict(NEMOTRON, layers_block_type=["mamba", "moe", "attention", "moe"], n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                            moe_shared_expert_intermediate_size=24, n_shared_experts=1, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5,
                            moe_latent_size=16), dict(flags=["--no-mtp"])),
    "granitehybrid": (dict(BASE, **MIXER, model_type="granitemoehybrid", num_hidden_layers=3, layer_types=HYBRID, mamba_expand=2, shared_intermediate_size=24,
                           num_local_experts=0, num_experts_per_tok=0, embedding_multiplier=6.0, logits_scaling=2.0, residual_multiplier=0.5, attention_multiplier=0.25,
                           position_embedding_type="nope"), dict(config=dict(layer_types=HYBRID), raw=True)),
    "granitehybrid-moe": (dict(BASE, **MIXER, model_type="granitemoehybrid", num_hidden_layers=3, layer_types=HYBRID, mamba_expand=2, shared_intermediate_size=24,
                               num_local_experts=4, num_experts_per_tok=2, intermediate_size=16, embedding_multiplier=6.0, logits_scaling=2.0, residual_multiplier=0.5,
                               attention_multiplier=0.25, position_embedding_type="nope"), dict(config=dict(layer_types=HYBRID), raw=True)),
    "granitehybrid-v5": (dict(BASE, **MIXER, model_type="granitemoehybrid", layer_types=HYBRID[:2], mamba_expand=2, shared_intermediate_size=24, num_local_experts=0,
                              num_experts_per_tok=0, attention_multiplier=0.25, position_embedding_type="nope"), {}),
    "granitemoeshared": (dict(BASE, model_type="granitemoeshared", num_local_experts=4, num_experts_per_tok=2, intermediate_size=16, shared_intermediate_size=24,
                              embedding_multiplier=6.0, logits_scaling=2.0, residual_multiplier=0.5, attention_multiplier=0.25), {}),
    "falcon-h1": (dict(BASE, **MIXER, model_type="falcon_h1", head_dim=8, mamba_expand=2, mamba_d_ssm=64, mamba_rms_norm=True, mamba_norm_before_gate=False,
                       lm_head_multiplier=0.5, embedding_multiplier=4.0, key_multiplier=0.5, attention_in_multiplier=2.0, attention_out_multiplier=0.25,
                       ssm_in_multiplier=0.5, ssm_out_multiplier=2.0, mlp_multipliers=[0.5, 2.0], ssm_multipliers=[0.5, 2.0, 0.25, 4.0, 0.5]), {}),
    "lfm2": (dict(BASE, model_type="lfm2", num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], conv_L_cache=3, conv_bias=False, norm_eps=1e-5,
                  block_multiple_of=16, block_ffn_dim_multiplier=1.0, block_auto_adjust_ff_dim=True, tie_word_embeddings=True), {}),
    "lfm2moe": (dict(BASE, **EXPERTS, model_type="lfm2_moe", num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], conv_L_cache=3, conv_bias=False,
                     norm_eps=1e-5, num_dense_layers=1, use_expert_bias=True, norm_topk_prob=True, routed_scaling_factor=1.0, tie_word_embeddings=True), {}),
    "gemma4": (dict(GEMMA4, attention_k_eq_v=True, num_global_key_value_heads=1), dict(published=with_words)),
    "gemma4-moe": (dict(GEMMA4, num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"], enable_moe_block=True, num_experts=4, top_k_experts=2,
                        moe_intermediate_size=16), dict(published=with_words)),
    "gemma4-small": (dict(GEMMA4, hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCAB, num_kv_shared_layers=2, use_double_wide_mlp=True), dict(published=with_words)),
    "gemma3n": (dict(GEMMA3N, altup_active_idx=1), dict(published=with_words)),
    "gemma3n-wide": (dict(GEMMA3N, intermediate_size=[INNER, INNER, 32, 64], num_kv_shared_layers=0), dict(published=with_words)),
    "mistral3": (dict(BASE, model_type="ministral3", head_dim=8, rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.5,
                      original_max_position_embeddings=8)), {}),
    "mistral-small": (dict(BASE, model_type="mistral", head_dim=16, sliding_window=None), dict(config=dict(architectures=["Mistral3ForConditionalGeneration"]))),
    "llama4": (dict(BASE, model_type="llama4_text", num_hidden_layers=4, head_dim=8, intermediate_size=16, intermediate_size_mlp=INNER, num_local_experts=4,
                    num_experts_per_tok=1, interleave_moe_layer_step=2, use_qk_norm=True), {}),
    "phimoe": (dict(BASE, model_type="phimoe", num_local_experts=4, num_experts_per_tok=2, intermediate_size=16, attention_bias=True, lm_head_bias=True,
                    sliding_window=None, router_jitter_noise=0.01), dict(config=dict(architectures=["PhiMoEForCausalLM"], rope_scaling=dict(original_max_position_embeddings=128)))),
    "exaone": (dict(BASE, model_type="llama", rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                    original_max_position_embeddings=32)),
               dict(config=dict(architectures=["ExaoneForCausalLM"], activation_function="silu", layer_norm_epsilon=1e-6))),
    "exaone-moe": (dict(BASE, **WINDOWS, **EXPERTS, model_type="exaone_moe", head_dim=8, num_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1,
                        routed_scaling_factor=2.5, norm_topk_prob=True, mlp_layer_types=["dense", "sparse", "sparse", "sparse"]),
                   dict(config=dict(first_k_dense_replace=1, scoring_func="sigmoid", num_nextn_predict_layers=0))),
    "ernie4_5-moe": (dict(BASE, model_type="ernie4_5_moe", head_dim=8, num_hidden_layers=3, moe_num_experts=4, moe_k=2, moe_intermediate_size=16, moe_num_shared_experts=1,
                          moe_layer_start_index=1, moe_layer_interval=1, use_bias=False, tie_word_embeddings=True), {}),
    "mimo2": (dict(BASE, **WINDOWS, model_type="mimo_v2_flash", rms_norm_eps=1e-5, num_key_value_heads=1, head_dim=16, v_head_dim=8, n_routed_experts=4, num_experts_per_tok=2,
                   moe_intermediate_size=16, n_group=1, topk_group=1, norm_topk_prob=True, attention_value_scale=0.707,
                   mlp_layer_types=["dense", "sparse", "sparse", "sparse"], rope_parameters={
                       "full_attention": dict(rope_type="default", rope_theta=50000.0, partial_rotary_factor=0.5),
                       "sliding_attention": dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.5)}),
              dict(config=dict(swa_head_dim=16, swa_v_head_dim=8, swa_num_attention_heads=4, swa_num_key_value_heads=2, topk_method="noaux_tc", scoring_func="sigmoid",
                               hybrid_layer_pattern=[1, 1, 1, 0], partial_rotary_factor=0.5, rope_theta=50000.0, swa_rope_theta=1000.0, layernorm_epsilon=1e-5),
                   without=["rope_parameters"], flags=["--no-mtp"], raw=True)),
    "afmoe": (dict(BASE, **WINDOWS, **EXPERTS, model_type="afmoe", head_dim=8, num_shared_experts=1, num_dense_layers=1, route_scale=2.5, route_norm=True,
                   mup_enabled=True), {}),
    "muse-glimmer": (dict(model_type="muse_glimmer", out_hidden_size=HIDDEN, projector_hidden_size=8, image_token_id=1, video_token_id=2, tie_word_embeddings=False,
                          vision_config=dict(model_type="muse_glimmer_vision", patch_size=2, pos_emb_height=2, pos_emb_width=2, num_attention_heads=1, num_hidden_layers=1,
                                             hidden_size=8, intermediate_size=8),
                          text_config=dict(BASE, **WINDOWS, model_type="muse_glimmer_text", head_dim=8, qk_scale_factor=1.7, output_multiplier=0.5, final_logit_softcapping=20.0)), {}),
    "minimax-01": (dict(BASE, model_type="minimax", num_hidden_layers=4, head_dim=8, num_local_experts=4, num_experts_per_tok=2, rms_norm_eps=1e-6, block_size=16,
                        full_attn_alpha_factor=1.5, linear_attn_alpha_factor=1.5, mlp_alpha_factor=1.5, full_attn_beta_factor=1.0, linear_attn_beta_factor=1.0,
                        mlp_beta_factor=1.0, layer_types=["linear_attention", "full_attention", "linear_attention", "full_attention"],
                        rope_parameters=dict(ROPE, partial_rotary_factor=0.5)),
                   dict(config=dict(architectures=["MiniMaxText01ForCausalLM"], rotary_dim=4, layernorm_full_attention_alpha=1.5, layernorm_linear_attention_alpha=1.5,
                                    layernorm_mlp_alpha=1.5, layernorm_full_attention_beta=1.0, layernorm_linear_attention_beta=1.0, layernorm_mlp_beta=1.0),
                        published=without_decays)),
    "hrm_text": (dict({k: v for k, v in BASE.items() if k != "num_key_value_heads"}, model_type="hrm_text", num_layers_per_stack=2, num_hidden_layers=8, head_dim=8, H_cycles=2,
                      L_cycles=1, initializer_range=0.5, embedding_scale=1.5, rope_parameters=dict(ROPE, rope_theta=500.0)),
                 dict(weights=lambda name, p: p.mul_(0.5) if "_module" in name else None)),
    "hy_v3": (dict(BASE, **EXPERTS, model_type="hy_v3", num_hidden_layers=3, head_dim=8, num_shared_experts=1, router_scaling_factor=2.5,
                   mlp_layer_types=["dense", "sparse", "sparse"]), dict(config=dict(first_k_dense_replace=1, route_norm=True))),
    "cohere2moe": (dict(BASE, **WINDOWS, model_type="cohere2_moe", head_dim=8, num_experts=4, num_experts_per_tok=2, intermediate_size=16, num_shared_experts=1,
                        shared_expert_combination_strategy="average", expert_selection_fn="sigmoid", norm_topk_prob=True, prefix_dense_intermediate_size=INNER,
                        first_k_dense_replace=1, mlp_layer_types=["dense", "sparse", "sparse", "sparse"], logit_scale=0.25, rms_norm_eps=1e-5, tie_word_embeddings=True), {}),
    "mellum": (dict(NO_INNER, **WINDOWS, **EXPERTS, model_type="mellum", head_dim=8, norm_topk_prob=True, rope_parameters=dict(
                   full_attention=dict(YARN, rope_theta=50000.0), sliding_attention=dict(rope_type="default", rope_theta=1000.0))), {}),
    "apertus": (dict(BASE, model_type="apertus", num_hidden_layers=3, hidden_act="xielu", rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0,
                     low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)), {}),
    "jais2": (dict(BASE, model_type="jais2", layer_norm_eps=1e-5), {}),
    "starcoder": (dict(model_type="gpt_bigcode", vocab_size=VOCAB, n_embd=HIDDEN, n_layer=2, n_head=4, n_positions=128, n_inner=4 * HIDDEN, multi_query=True,
                       bos_token_id=1, eos_token_id=2), {}),
    "chatglm": (dict(BASE, model_type="glm", head_dim=8, attention_bias=True, rms_norm_eps=1e-5), dict(config=dict(seq_length=128, layernorm_epsilon=1e-5))),
    "bailingmoe2": (dict(BASE, **DEEP, model_type="glm4_moe", num_hidden_layers=3, head_dim=8, use_qk_norm=True, attention_bias=False,
                         rope_parameters=dict(ROPE, partial_rotary_factor=0.5)),
                    dict(config=dict(architectures=["BailingMoeV2ForCausalLM"], num_experts=4, num_shared_experts=1, score_function="sigmoid"), published=as_ling)),
    "solar-open": (dict(BASE, **dict(DEEP, first_k_dense_replace=0), model_type="solar_open", head_dim=8, rope_parameters=dict(YARN, partial_rotary_factor=1.0)), {}),
    "deepseek32": (dict(BASE, **dict(MLA, **DEEP, **INDEXER), model_type="deepseek_v32", num_hidden_layers=3), dict(config=dict(scoring_func="sigmoid"), flags=["--no-mtp"])),
    "glm-dsa": (dict(BASE, **dict(MLA, **DEEP, **INDEXER), model_type="glm_moe_dsa", num_hidden_layers=3, indexer_types=["full", "full", "shared"]),
                dict(config=dict(scoring_func="sigmoid"), flags=["--no-mtp"])),
    "deepseek2-unstated": (dict(BASE, **dict(MLA, **DEEP), model_type="deepseek_v3"), dict(without=["first_k_dense_replace"])),
    "minicpm3": (dict(BASE, **{k: v for k, v in MLA.items() if k != "v_head_dim"}, model_type="minicpm3", hidden_size=32, dim_model_base=256, rms_norm_eps=1e-5,
                      tie_word_embeddings=True, rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1, 1.3, 1.5], long_factor=[1.0, 1.1, 1.3, 1.5],
                      original_max_position_embeddings=128)), {}),
    "youtu": (dict(BASE, **MLA, model_type="youtu"), {}),
    "glm4-lite": (dict(BASE, **MLA, **DEEP, model_type="glm4_moe_lite", num_hidden_layers=3, mlp_layer_types=["dense", "sparse", "sparse"]),
                  dict(config=dict(scoring_func="sigmoid", first_k_dense_replace=1), flags=["--no-mtp"])),
    "qwen35moe-fused": (dict(NO_INNER, **DELTA, **SHARED, model_type="qwen3_5_moe_text"), dict(flags=["--no-mtp", "--fuse-gate-up-exps", "--fuse-qkv"])),
    "phi2-fused": (dict(dict(BASE, num_key_value_heads=4, intermediate_size=4 * HIDDEN), model_type="phi", partial_rotary_factor=0.5), dict(flags=["--fuse-qkv"])),
    "llama-fused": (dict(BASE, model_type="llama", attention_bias=True), dict(flags=["--fuse-qkv"])),
    "glm4-images": (dict(BASE, model_type="glm4", head_dim=16, attention_bias=True, rope_parameters=dict(ROPE, partial_rotary_factor=0.5)),
                    dict(config=dict(rope_parameters=dict(ROPE, partial_rotary_factor=0.5, mrope_section=[1, 2, 1])))),
    # The text model of PaddleOCR-VL computes what Llama does.
    "paddleocr": (dict(BASE, model_type="llama", head_dim=16, rope_parameters=dict(ROPE)),
                  dict(config=dict(architectures=["PaddleOCRVLForConditionalGeneration"], rope_parameters=dict(ROPE, mrope_section=[2, 3, 3])))),
    "granite-dense": (dict(BASE, **MIXER, model_type="granitemoehybrid", layer_types=["attention"] * 2, mamba_expand=2, shared_intermediate_size=24, num_local_experts=0,
                           num_experts_per_tok=0, embedding_multiplier=6.0, attention_multiplier=0.25, position_embedding_type="rope"),
                      dict(config=dict(layer_types=["attention"] * 2), without=["num_experts_per_tok"], raw=True)),
    "gpt-oss": (dict(BASE, model_type="gpt_oss", head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=8, intermediate_size=16,
                     rope_parameters=dict(YARN, truncate=False)), {}),
    "minimax-m2": (dict(BASE, model_type="minimax_m2", intermediate_size=16, head_dim=8, num_local_experts=4, num_experts_per_tok=2,
                        rope_parameters=dict(ROPE, partial_rotary_factor=0.5)), dict(config=dict(rotary_dim=4, scoring_func="sigmoid"))),
    "phi3-long": (dict(BASE, model_type="phi3", original_max_position_embeddings=32, rope_parameters=dict(rope_type="longrope", rope_theta=10000.0,
                       short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[2.0, 3.0, 4.0, 5.0], original_max_position_embeddings=32)), {}),
    "deepseek2-yarn": (dict(BASE, **dict(MLA, **DEEP), model_type="deepseek_v3", rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0)),
                       dict(config=dict(scoring_func="sigmoid"))),
}


def as_step(folder):
    """Gives tensors their published names."""
    file = folder / "model.safetensors"
    save_file(dict(pair for name, t in load_file(file).items() for pair in step3p5_published(name, t)), file, metadata={"format": "pt"})


FOUR_BITS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def as_four_bits(name, p):
    """Gives routed experts values that four bits have, with one scale."""
    if ".mlp.experts." in name:
        p.copy_(FOUR_BITS[((p.abs() * 8)[..., None] - FOUR_BITS).abs().argmin(-1)].to(p.dtype) / 8 * p.sign())


def as_deepseek4(folder):
    """Gives tensors the names of DeepSeek-V4's files, and routed experts four bits with scales that are powers of two."""
    file, out = folder / "model.safetensors", {}
    names = {"model.embed_tokens.weight": "embed.weight", "lm_head.weight": "head.weight", "model.hc_head.hc_fn": "hc_head_fn", "model.hc_head.hc_base": "hc_head_base",
             "model.hc_head.hc_scale": "hc_head_scale"}
    for name, t in load_file(file).items():
        name = names.get(name, name.removeprefix("model.")).replace("attn.norm.weight", "attn.kv_norm.weight")
        if ".experts." in name and "shared" not in name:
            codes = ((t.float().abs() * 8)[..., None] - FOUR_BITS).abs().argmin(-1) | (t < 0).long() << 3
            out[name] = (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8).view(torch.int8)
            t, name = torch.full((t.shape[0], t.shape[1] // 32), 1 / 8).to(torch.float8_e8m0fnu), name.replace(".weight", ".scale")
        out[name] = t
    save_file(out, file, metadata={"format": "pt"})


def as_minimax3(folder):
    """Gives tensors the names of MiniMax M3's files, which have the maps of each expert, and gates apart."""
    file, out = folder / "model.safetensors", {}
    for name, t in load_file(file).items():
        name = re.sub(r"self_attn\.indexer\.", "self_attn.index_", name).replace("mlp.gate.e_score", "block_sparse_moe.e_score")
        name = re.sub(r"mlp\.(gate\.|experts\.|shared_experts)", r"block_sparse_moe.\1", name)
        if ".experts." in name:
            parts = dict(w1=t.chunk(2, 1)[0], w3=t.chunk(2, 1)[1]) if name.endswith("gate_up_proj") else dict(w2=t)
            out.update({f"{name.rpartition('.')[0]}.{i}.{w}.weight": m.contiguous() for w, all in parts.items() for i, m in enumerate(all)})
        elif "gate_up_proj" in name:
            out.update({name.replace("gate_up", part): half.contiguous() for part, half in zip(("gate", "up"), t.chunk(2))})
        else:
            out[name] = t
    save_file(out, file, metadata={"format": "pt"})


def as_hy4(folder):
    """Gives weights of streams their published names, where transformers writes another order of their parts."""
    file = folder / "model.safetensors"
    rename = lambda name: re.sub(r"hc_pre\.(hc_(?:attn|mlp)_layer)\.", r"\1.hc_pre.", name).replace("model.hc_pre.hc_head.", "model.hc_head.").replace("mlp.linear_gate.", "mlp.gate_proj.") \
        .replace("experts.linear_gate.", "experts.gate_proj.")
    save_file({rename(name): t for name, t in load_file(file).items()}, file, metadata={"format": "pt"})


SLIDING = ["full_attention", "sliding_attention", "sliding_attention"]
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
STEP = dict(BASE, model_type="step3p5", num_hidden_layers=3, head_dim=16, rms_norm_eps=1e-5, layer_types=SLIDING, sliding_window=8, num_sliding_attention_heads=6, n_routed_experts=4,
            num_experts_per_tok=2, moe_intermediate_size=16, share_expert_dim=24, moe_router_scaling_factor=3.0, swiglu_limits=[0.0, 0.5, 0.0], swiglu_limits_shared=[0.0, 0.0, 0.4],
            mlp_layer_types=["dense", "sparse", "sparse"])
STEP_FILE = dict(num_attention_groups=2, attention_other_setting=dict(num_attention_heads=6, num_attention_groups=2), moe_num_experts=4, moe_top_k=2, moe_layers_enum="1,2",
                 partial_rotary_factors=[0.5, 1.0, 1.0], rope_theta=[50000.0, 1000.0, 1000.0], layer_types=SLIDING, norm_expert_weight=True)
TYPED = lambda full: dict(full_attention=dict(full, rope_theta=50000.0, partial_rotary_factor=0.5), sliding_attention=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=1.0))
LAGUNA = dict(BASE, **EXPERTS, model_type="laguna", num_hidden_layers=3, head_dim=16, layer_types=SLIDING, sliding_window=8, num_attention_heads_per_layer=[4, 6, 2],
              shared_expert_intermediate_size=24, moe_routed_scaling_factor=2.5, mlp_layer_types=["dense", "sparse", "sparse"])
LING = dict(BASE, **dict(MLA, **DEEP), model_type="bailing_hybrid", num_local_experts=4, num_hidden_layers=4, head_dim=8, short_conv_kernel_size=4, rope_theta=10000.0, kda_safe_gate=True, kda_lower_bound=-5.0, layer_group_size=2, num_mtp_layers=0)
V4 = dict(model_type="deepseek_v4", vocab_size=BASE["vocab_size"], hidden_size=HIDDEN, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=1, head_dim=16, qk_rope_head_dim=8,
          q_lora_rank=16, o_groups=2, o_lora_rank=8, sliding_window=8, index_n_heads=8, index_head_dim=16, index_topk=3, hc_mult=2, hc_sinkhorn_iters=3, hc_eps=1e-6,
          moe_intermediate_size=32, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, num_hash_layers=1, compress_ratios=[0, 4, 128, 4], compress_rate_csa=4,
          compress_rate_hca=128, rope_theta=10000.0, compress_rope_theta=40000.0, scoring_func="sqrtsoftplus", swiglu_limit=10.0, routed_scaling_factor=1.5, norm_topk_prob=True,
          rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=32, beta_slow=1), max_position_embeddings=128, rms_norm_eps=1e-6,
          bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
M3 = dict(BASE, model_type="minimax_m3_vl_text", num_hidden_layers=3, head_dim=16, intermediate_size=16, dense_intermediate_size=48, shared_intermediate_size=16, num_local_experts=4,
          num_experts_per_tok=2, routed_scaling_factor=2.0, index_n_heads=2, index_head_dim=16, index_block_size=3, index_topk_blocks=2, index_local_blocks=1,
          layer_types=["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"], mlp_layer_types=["dense", "sparse", "sparse"], rope_parameters=dict(ROPE, partial_rotary_factor=0.5))
M3_FILE = dict(architectures=["MiniMaxM3SparseForCausalLM"], n_shared_experts=1, scoring_func="sigmoid", rotary_dim=8, moe_layer_freq=[0, 1, 1], sparse_attention_config=dict(
    sparse_num_index_heads=2, sparse_index_dim=16, sparse_topk_blocks=2, sparse_block_size=3, sparse_local_block=1, sparse_attention_freq=[0, 1, 1]))
HY4 = dict(BASE, **dict(MLA, **DEEP, **INDEXER), model_type="hy_v4", num_hidden_layers=3, hc_mult=2, hc_eps=1e-6, hc_magnitude=2.0, swiglu_limit=0.5, mlp_layer_types=["dense", "sparse", "sparse"],
           indexer_types=["full", "full", "shared"])
MODELS |= {
    "deepseek4": (V4, dict(config=V4, weights=as_four_bits, published=as_deepseek4)),
    "minimax-m3": (M3, dict(config=M3_FILE, published=as_minimax3, raw=True)),
    "hy_v4": (HY4, dict(config=dict(first_k_dense_replace=1), published=as_hy4)),
    "step35": (dict(STEP, rope_parameters=TYPED(dict(rope_type="default"))), dict(config=STEP_FILE, published=as_step, without=["rope_parameters"], raw=True)),
    "step35-llama3": (dict(STEP, rope_parameters=TYPED(LLAMA3)),
                      dict(config=dict(STEP_FILE, rope_scaling=LLAMA3), published=as_step, without=["rope_parameters"], raw=True)),
    "laguna": (dict(LAGUNA, num_hidden_layers=5, layer_types=SLIDING + ["sliding_attention", "full_attention"], num_attention_heads_per_layer=[4, 6, 2, 2, 2],
                    mlp_layer_types=["dense", "dense", "sparse", "dense", "sparse"], gating="per-head", rope_parameters=TYPED(dict(YARN))), {}),
    "laguna-channels": (dict(LAGUNA, gating="per-element", rope_parameters=TYPED(dict(rope_type="default"))), {}),
    "mistral4": (dict(BASE, **dict(MLA, **DEEP), model_type="mistral4", num_hidden_layers=3, head_dim=16,
                      rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1, original_max_position_embeddings=8)),
                 dict(config=dict(architectures=["Mistral3ForConditionalGeneration"]))),
    "bailingmoe3": (dict(LING), dict(config=dict(no_kda_lora=True, gated_attention_proj_granularity_type="head_wise", architectures=["BailingMoeV3ForCausalLM"], num_experts=4, num_shared_experts=1, moe_shared_expert_intermediate_size=16, rope_theta=10000.0, score_function="sigmoid", norm_topk_prob=True, n_group=1, topk_group=1, num_experts_per_tok=2),
                                     raw=True)),
    "dots3note": (DOTS3, dict(config=DOTS3_FILE, without=["rope_parameters", "per_layer_config"], raw=True)),
    "qwen4exp": (QWEN4, dict(config=QWEN4_FILE, published=as_qwen4, raw=True)),
    "qwen4exp-even": (dict(QWEN4, linear_num_value_heads=2, ple_layer_ids=[], num_hidden_layers=2, layer_types=["linear_attention", "indexed_attention"],
                           attention_bias=True, tie_word_embeddings=True), dict(config=dict(QWEN4_FILE, layer_types=["linear_attention", "full_attention"]), published=as_qwen4, raw=True)),
    "dbrx": (dict(model_type="dbrx", vocab_size=BASE["vocab_size"], d_model=HIDDEN, n_heads=4, n_layers=2, max_seq_len=128, attn_config=dict(clip_qkv=2.0, kv_n_heads=2, rope_theta=10000.0),
                  ffn_config=dict(ffn_hidden_size=16, moe_num_experts=4, moe_top_k=2)), dict(raw=True)),
    "granite-swa": (dict(BASE, model_type="granite_swa", num_hidden_layers=4, sliding_window=8, embedding_multiplier=6.0, logits_scaling=2.0, residual_multiplier=0.5,
                         attention_multiplier=0.25, rms_norm_eps=1e-5), {}),
    "granitemoe-swa": (dict(BASE, model_type="granitemoe_swa", num_hidden_layers=4, sliding_window=8, embedding_multiplier=6.0, logits_scaling=2.0, residual_multiplier=0.5,
                            attention_multiplier=0.25, rms_norm_eps=1e-5, num_local_experts=4, num_experts_per_tok=2, intermediate_size=16, shared_intermediate_size=24), {}),
}
