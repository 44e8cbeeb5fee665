"""Configs of the newest models of make-gguf-converted.py, in the form of gguf_converted_configs.py, which adds them to its own."""
import re

from safetensors.torch import load_file, save_file

import latest_configs  # registers Step 3.5
import torch
from latest_configs import step3p5_published


def newest(BASE, EXPERTS, DELTA, MLA, DEEP, INDEXER, YARN, ROPE):
    """The models, as MODELS of gguf_converted_configs.py, whose parts of configs the arguments are."""
    HIDDEN = BASE["hidden_size"]
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
    return {
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
        "dbrx": (dict(model_type="dbrx", vocab_size=BASE["vocab_size"], d_model=HIDDEN, n_heads=4, n_layers=2, max_seq_len=128, attn_config=dict(clip_qkv=2.0, kv_n_heads=2, rope_theta=10000.0),
                      ffn_config=dict(ffn_hidden_size=16, moe_num_experts=4, moe_top_k=2)), dict(raw=True)),
        "granite-swa": (dict(BASE, model_type="granite_swa", num_hidden_layers=4, sliding_window=8, embedding_multiplier=6.0, logits_scaling=2.0, residual_multiplier=0.5,
                             attention_multiplier=0.25, rms_norm_eps=1e-5), {}),
        "granitemoe-swa": (dict(BASE, model_type="granitemoe_swa", num_hidden_layers=4, sliding_window=8, embedding_multiplier=6.0, logits_scaling=2.0, residual_multiplier=0.5,
                                attention_multiplier=0.25, rms_norm_eps=1e-5, num_local_experts=4, num_experts_per_tok=2, intermediate_size=16, shared_intermediate_size=24), {}),
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
