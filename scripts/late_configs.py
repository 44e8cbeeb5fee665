"""Configs of small models of families of late 2026, for make-family-fixtures.py.

LATE is the part of family_configs.FAMILIES for these families.
"""

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

MODEL_FOR_CAUSAL_LM_MAPPING._model_mapping["mistral4"] = "Mistral4ForCausalLM"  # which transformers has among models of images


def kinds(R, n, *types):
    """Types of n layers, all of them among the first."""
    first = list(types)
    R.shuffle(first)
    return (first + [R.choice(first) for _ in range(n)])[:n]


def windowed(R, c, some=0.7):
    c["sliding_window"] = R.choice([5, 8])
    if R.random() < some:
        c["layer_types"] = kinds(R, c["num_hidden_layers"], "full_attention", "sliding_attention")
    return c


def experts(R, c):
    c.update(num_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), moe_intermediate_size=R.choice([10, 12]),
             shared_expert_intermediate_size=R.choice([12, 18]))
    return c


def kolibri1(R, llama):
    c = experts(R, windowed(R, llama(R, "kolibri1")))
    c.pop("intermediate_size")
    c.update(norm_topk_prob=R.random() < 0.6, head_dim=R.choice([6, 8, 14]))
    if R.random() < 0.2:
        c.update(sliding_window=None, layer_types=["full_attention"] * c["num_hidden_layers"])
    return c


def flint(R, llama):
    c = experts(R, windowed(R, llama(R, "flint")))
    c.update(norm_topk_prob=R.random() < 0.6, head_dim=R.choice([6, 8, 14]), attention_bias=R.random() < 0.3)
    if R.random() < 0.7:
        c["mlp_only_layers"] = R.choice([[], [0], [1]])
    if R.random() < 0.3:
        c["decoder_sparse_step"] = 2
    return c


def muse_glimmer(R, llama, wrap):
    t = windowed(R, llama(R, "muse_glimmer_text", ropes=("default", "default", "linear", "yarn")))
    n = t["num_hidden_layers"]
    if "hidden_act" in t:
        t["hidden_activation"] = t.pop("hidden_act")
    t.update(head_dim=R.choice([6, 8, 14]), attention_bias=R.random() < 0.3, qk_scale_factor=R.choice([0.7, 3.87]), output_multiplier=R.choice([0.2, 1.0]),
             final_logit_softcapping=R.choice([3.0, 20.0]), post_norm_eps=R.choice([1e-8, 1e-3]))
    if R.random() < 0.6:
        t["layer_rope_theta"] = kinds(R, n, 0, t.get("rope_parameters", t)["rope_theta"])
    vision = dict(model_type="muse_glimmer_vision", patch_size=2, pos_emb_height=2, pos_emb_width=2, num_attention_heads=1, num_hidden_layers=1, hidden_size=8, intermediate_size=8)
    return wrap("muse_glimmer", t, vision, "dtype" in t, image_token_id=1005, video_token_id=1006, out_hidden_size=32, projector_hidden_size=8,
                tie_word_embeddings=t.pop("tie_word_embeddings"))


def lara_mini(R, llama):
    c = experts(R, llama(R, "lara_mini", dims=(6, 8)))
    keys = R.choice([1, 2, 3])
    for name in ("intermediate_size", "hidden_act"):
        c.pop(name, None)
    c.update(norm_topk_prob=R.random() < 0.6, head_dim=R.choice([6, 8, 14]), attention_bias=R.random() < 0.3, sliding_window=R.choice([5, 8]),
             linear_num_key_heads=keys, linear_num_value_heads=keys * R.choice([1, 2]), linear_key_head_dim=R.choice([6, 8]), linear_value_head_dim=R.choice([4, 8, 10]),
             linear_conv_kernel_dim=R.choice([2, 3, 4]), num_hidden_layers=R.choice([3, 4]))
    if R.random() < 0.7:
        c["layer_types"] = kinds(R, c["num_hidden_layers"], "linear_attention", "full_attention", "sliding_attention")
    else:
        c["num_hidden_layers"] = 4  # the last of which sees all tokens
    return c


def laguna(R, llama):
    c = experts(R, windowed(R, llama(R, "laguna", ropes=("default",))))
    n, keys = c["num_hidden_layers"], c["num_key_value_heads"]
    for name in ("rope_parameters", "rope_theta", "rope_scaling"):
        c.pop(name, None)
    c.update(head_dim=R.choice([8, 16]), attention_bias=R.random() < 0.3, gating=R.choice([True, "per-head", "per-element"]),
             moe_routed_scaling_factor=R.choice([1.0, 2.5]), moe_router_logit_softcapping=R.choice([0.0, 0.0, 1.5]))
    if R.random() < 0.6:
        c["num_attention_heads_per_layer"] = [keys * R.choice([1, 2, 3]) for _ in range(n)]
    if R.random() < 0.5:
        c["mlp_layer_types"] = ["sparse"] + [R.choice(["dense", "sparse"]) for _ in range(n - 1)]
    if R.random() < 0.6:
        full = R.choice([dict(rope_type="default"), dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)])
        c["rope_parameters"] = dict(full_attention=dict(full, rope_theta=50000.0, partial_rotary_factor=R.choice([0.5, 1.0])),
                                    sliding_attention=dict(rope_type="default", rope_theta=1000.0))
    return c


def lfm3(R, llama):
    c = llama(R, "lfm3")
    n = R.choice([3, 4])
    for name in ("rope_parameters", "rope_theta", "rope_scaling", "hidden_act"):
        c.pop(name, None)
    c.update(num_hidden_layers=n, norm_eps=c.pop("rms_norm_eps"), head_dim=R.choice([6, 8, 16]), conv_L_cache=R.choice([2, 3, 7]), conv_bias=R.random() < 0.3,
             sliding_window=R.choice([5, 8]), attention_bias=R.random() < 0.3, use_sandwich_norm=R.random() < 0.7, use_attention_gate=R.random() < 0.8)
    if R.random() < 0.8:
        c["layer_types"] = kinds(R, n, "conv", "full_attention", "sliding_attention")
    if R.random() < 0.5:
        c["rope_parameters"] = dict(full_attention=dict(rope_type="proportional", rope_theta=50000.0, partial_rotary_factor=R.choice([0.25, 0.5, 1.0])),
                                    sliding_attention=dict(rope_type=R.choice(["default", "linear"]), rope_theta=1000.0, factor=2.0))
    return c


def gemma4_unified_text(R, gemma4):
    c = gemma4(R, R.choice(["dense", "small"]))
    c["model_type"] = "gemma4_unified_text"
    for name in ("hidden_size_per_layer_input", "vocab_size_per_layer_input"):
        c.pop(name, None)
    return c


def gemma4_unified(R, gemma4, wrap):
    """The text of a model without a vision tower: patches and sound enter by projections."""
    t = gemma4_unified_text(R, gemma4)
    tie = dict(tie_word_embeddings=t.pop("tie_word_embeddings"))
    vision = dict(model_type="gemma4_unified_vision", patch_size=2, pooling_kernel_size=1, mm_embed_dim=8, mm_posemb_size=4, output_proj_dims=t["hidden_size"])
    return wrap("gemma4_unified", t, vision, True, audio_config=None, image_token_id=1005, video_token_id=1006, audio_token_id=1007, boi_token_id=1008,
                eoi_token_id=1009, boa_token_id=1010, eoa_token_index=1011, **tie)


def kimi_delta(R, deepseek, model_type):
    """A config of delta attention and latent attention, under the names of published files or DeepSeek's."""
    c = deepseek(R, model_type)
    n = R.choice([3, 4, 5])
    for name in ("n_routed_experts", "first_k_dense_replace", "hidden_act"):
        c.pop(name, None)
    c.update(num_hidden_layers=n, num_experts=8, norm_topk_prob=R.random() < 0.5)
    if R.random() < 0.7:
        c["layer_types"] = kinds(R, n, "full_attention", "linear_attention")
    if R.random() < 0.6:
        c["mlp_layer_types"] = kinds(R, n, "dense", "sparse")
    else:
        c["first_k_dense_replace"] = R.choice([0, 1, 2])
    if R.random() < 0.6:
        for name, other in (("norm_topk_prob", "moe_renormalize"), ("n_group", "num_expert_group"), ("num_experts_per_tok", "num_experts_per_token"),
                            ("n_shared_experts", "num_shared_experts"), ("max_position_embeddings", "model_max_length")):
            if name in c and R.random() < 0.8:
                c[other] = c.pop(name)
    if R.random() < 0.3:
        c["hidden_act"] = R.choice(["gelu", "relu"])
    return c


def kimi_linear(R, deepseek):
    c = kimi_delta(R, deepseek, "kimi_linear")
    for name in ("rope_parameters", "rope_theta", "rope_scaling"):
        c.pop(name, None)
    if "layer_types" not in c:
        c["num_hidden_layers"] = 5  # the last of which has attention
        if "mlp_layer_types" in c:
            c["mlp_layer_types"] = kinds(R, 5, "dense", "sparse")
    n, own = c["num_hidden_layers"], dict(head_dim=R.choice([4, 6, 8, 16]), num_heads=R.choice([1, 2, 3]), short_conv_kernel_size=R.choice([2, 3, 4]))
    if R.random() < 0.4:
        c.update(linear_head_dim=own["head_dim"], linear_num_heads=own["num_heads"], linear_conv_kernel_dim=own["short_conv_kernel_size"])
        return c
    c["linear_attn_config"] = own
    if R.random() < 0.8:
        c.pop("layer_types", None)
        full = [i + 1 for i, kind in enumerate(kinds(R, n, True, False)) if kind]
        own.update(full_attn_layers=full, kda_layers=[i for i in range(1, n + 1) if i not in full])
    return c


def bailing_hybrid(R, deepseek):
    c = kimi_delta(R, deepseek, "bailing_hybrid")
    c.update(head_dim=R.choice([4, 6, 8, 16]), short_conv_kernel_size=R.choice([2, 3, 4]), kda_safe_gate=R.random() < 0.7, num_nextn_predict_layers=0)
    if c["kda_safe_gate"] and R.random() < 0.5:
        c["kda_lower_bound"] = R.choice([-1.0, -2.5])
    if "layer_types" not in c:
        c["layer_group_size"] = R.choice([2, 3])
    return c


def mamba(R, llama, model_type):
    c = llama(R, model_type, head_dim=False, ropes=("default",))
    for name in ("rope_parameters", "rope_theta", "rope_scaling", "rms_norm_eps", "intermediate_size", "num_attention_heads",
                 "num_key_value_heads", "max_position_embeddings"):
        c.pop(name, None)
    c.update(expand=R.choice([1, 2, 3]), hidden_size=R.choice([12, 20, 36]), state_size=R.choice([1, 4, 7, 16]), conv_kernel=R.choice([2, 3, 4]),
             layer_norm_epsilon=R.choice([1e-5, 1e-3]), use_bias=R.random() < 0.3, use_conv_bias=R.random() < 0.7, num_hidden_layers=R.choice([2, 3, 4]))
    if R.random() < 0.6:
        c["time_step_rank"] = R.choice([1, 3, 5, "auto"])
    if model_type == "falcon_mamba" and R.random() < 0.5:
        c["mixer_rms_eps"] = R.choice([1e-5, 1e-2])
    return c


def jamba(R, llama):
    c = llama(R, "jamba", head_dim=False, ropes=("default",))
    for name in ("rope_parameters", "rope_theta", "rope_scaling"):
        c.pop(name, None)
    period, experts = R.choice([2, 3]), R.choice([1, 2, 3])
    c.update(num_hidden_layers=R.choice([3, 4, 5]), attn_layer_period=period, attn_layer_offset=R.randrange(period), expert_layer_period=experts,
             expert_layer_offset=R.randrange(experts), num_experts=R.choice([1, 4, 6]), mamba_expand=R.choice([1, 2, 3]), mamba_d_state=R.choice([1, 4, 16]),
             mamba_d_conv=R.choice([2, 3, 4]), mamba_conv_bias=R.random() < 0.7, mamba_proj_bias=R.random() < 0.3)
    c["num_experts_per_tok"] = R.choice([1, 2, 3]) if c["num_experts"] > 1 else 1
    if R.random() < 0.6:
        c["mamba_dt_rank"] = R.choice([1, 3, 5, "auto"])
    return c


def without_idle_experts(model):
    """Takes the weights of experts that do nothing out of LongCat's mixtures. Published files do not have them, and nothing reads them."""
    for m in model.modules():
        if hasattr(m, "identity_expert"):
            m.gate_up_proj = type(m.gate_up_proj)(m.gate_up_proj.detach()[:m.num_routed_experts].clone())
    return model


def longcat_flash(R, deepseek):
    c = deepseek(R, "longcat_flash")
    for name in ("first_k_dense_replace", "n_shared_experts", "n_group", "topk_group", "norm_topk_prob", "num_experts_per_tok", "num_nextn_predict_layers", "rope_interleave"):
        c.pop(name, None)
    c.update(head_dim=c["qk_rope_head_dim"], num_layers=R.choice([1, 2, 3]), ffn_hidden_size=c.pop("intermediate_size"), expert_ffn_hidden_size=c.pop("moe_intermediate_size"), n_routed_experts=R.choice([2, 4, 7]),
             zero_expert_num=R.choice([0, 1, 3, 6]), moe_topk=2, q_lora_rank=R.choice([6, 10]), kv_lora_rank=R.choice([8, 12]))
    c.pop("num_hidden_layers", None)
    if c["n_routed_experts"] > 2:
        c["moe_topk"] = R.choice([2, 3])
    if R.random() < 0.5:
        c.update(zero_expert_type="identity", routed_scaling_factor=R.choice([1.0, 2.5]))
    return c


def apertus1p5_text(R, llama):
    c = llama(R, "apertus1p5_text", ropes=("llama3", "llama3", "default", "linear"))
    c["attention_bias"] = R.random() < 0.3
    if R.random() < 0.8:
        c["hidden_act"] = "xielu"
    if R.random() < 0.7:
        c.update(output_vocab_size=c["vocab_size"] - R.choice([0, 6, 17]), tie_word_embeddings=False)
    return c


def apertus1p5(R, llama, wrap):
    """The text of a model whose images and sound are tokens of the vocabulary."""
    t = apertus1p5_text(R, llama)
    tie = dict(tie_word_embeddings=t.pop("tie_word_embeddings"))
    at = t["vocab_size"] - 12
    vision = dict(model_type="apertus1p5_vision_tokenizer", codebook_size=8, embed_dim=4, latent_channels=4, base_channels=32, channel_multiplier=[1, 1], num_res_blocks=1, resolution=8,
                  attn_resolutions=[])
    audio = dict(model_type="wavtokenizer_encoder", codebook_size=4, num_filters=2, upsampling_ratios=[2, 2], num_lstm_layers=1, hidden_size=8, codebook_dim=8)
    return wrap("apertus1p5", t, vision, "dtype" in t, audio_config=audio, image_token_id=5, audio_token_id=6, image_token_offset=at, audio_token_offset=at + 8, **tie)


def mistral4(R, deepseek):
    c = deepseek(R, "mistral4")
    for name in ("rope_parameters", "rope_theta", "rope_scaling"):
        c.pop(name, None)
    rope = dict(rope_theta=10000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=R.choice([4, 8, 10]), llama_4_scaling_beta=R.choice([0.1, 0.5]),
                **R.choice([dict(mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0, beta_slow=1.0), {}]))
    c["rope_parameters"] = rope  # transformers turns too many dimensions beside rope_scaling
    if R.random() < 0.3:
        c["rope_interleave"] = False
    return c


def diffllama(R, llama):
    c = llama(R, "diffllama", dims=(6, 8), heads=R.choice([4, 6]))
    heads = c["num_attention_heads"]
    c.update(num_key_value_heads=R.choice([k for k in (2, 4, 6) if heads % k == 0]), attention_bias=R.random() < 0.3)
    return c


def doge(R, llama):
    c = llama(R, "doge", dims=(6, 8))
    c.update(attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3, keep_window_size=R.choice([3, 6, 100, 100]))
    if R.random() < 0.2:
        c.update(sliding_window=5, keep_window_size=8)
    return c


def minimax(R, llama):
    c = llama(R, "minimax", dims=(6, 8))
    n, names = R.choice([2, 3, 4]), ("full_attn", "linear_attn", "mlp")
    c.update(num_hidden_layers=n, num_local_experts=R.choice([3, 4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), block_size=R.choice([3, 5, 8]))
    if R.random() < 0.7:
        c["layer_types"] = kinds(R, n, "full_attention", "linear_attention")
    if R.random() < 0.7:
        c.update({f"{name}_{factor}_factor": R.choice([0.5, 1.0, 1.5]) for name in names for factor in ("alpha", "beta")})
    if R.random() < 0.3:
        c["sliding_window"] = R.choice([5, 8])
    return c


MINIMAX_VISION = dict(model_type="minimax_m3_vl_vision", hidden_size=12, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=2)


def minimax_m3_vl_text(R, llama):
    c = llama(R, "minimax_m3_vl_text", head_dim=False, dims=(6, 8))
    n, keys, dim = R.choice([2, 3, 4]), c["num_key_value_heads"], R.choice([8, 12])
    c.update(num_hidden_layers=n, head_dim=dim, num_local_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), dense_intermediate_size=R.choice([18, 26]),
             shared_intermediate_size=R.choice([10, 14]), routed_scaling_factor=R.choice([1.0, 2.0]), swiglu_limit=R.choice([0.5, 7.0]))
    if R.random() < 0.5:
        (c["rope_parameters"] if "rope_parameters" in c else c)["partial_rotary_factor"] = 0.5
    count = R.choice([1, 2, 3])
    keys = R.choice([keys, keys, 1, c["num_attention_heads"]])
    index = dict(num_index_heads=keys, index_dim=R.choice([dim, dim + 4, 16]), block_size=R.choice([1, 2, 3, 5]), topk_blocks=count, local_block=R.choice([0, 1, min(2, count)]))
    sparse, mixture = [k == "minimax_m3_sparse" for k in kinds(R, n, "minimax_m3_sparse", "full_attention")], kinds(R, n, 1, 0)
    if R.random() < 0.5:  # as published
        c["sparse_attention_config"] = dict({f"sparse_{name}": v for name, v in index.items()}, sparse_attention_freq=[int(s) for s in sparse], use_sparse_attention=True)
        c["moe_layer_freq"] = mixture
    else:
        c.update(index_n_heads=keys, index_head_dim=index["index_dim"], index_block_size=index["block_size"], index_topk_blocks=count, index_local_blocks=index["local_block"],
                 layer_types=["minimax_m3_sparse" if s else "full_attention" for s in sparse], mlp_layer_types=["sparse" if m else "dense" for m in mixture])
    return c


def minimax_m3_vl(R, llama, wrap):
    t = minimax_m3_vl_text(R, llama)
    tie = dict(tie_word_embeddings=t.pop("tie_word_embeddings")) if R.random() < 0.7 else {}
    return wrap("minimax_m3_vl", t, MINIMAX_VISION, "dtype" in t, image_token_index=5, video_token_index=6, projector_hidden_size=8, **tie)


def hy_v4(R, deepseek):
    c = deepseek(R, "hy_v4")
    n = R.choice([2, 3, 4])
    for name in ("first_k_dense_replace", "rope_interleave", "scoring_func", "topk_method", "num_nextn_predict_layers"):
        c.pop(name, None)
    c.update(num_hidden_layers=n, q_lora_rank=R.choice([6, 10]), kv_lora_rank=R.choice([8, 12]), index_topk=R.choice([4, 6, 9]), index_head_dim=c["qk_rope_head_dim"] + R.choice([0, 4]),
             index_n_heads=R.choice([7, 8]), hc_mult=R.choice([1, 2, 3]), swiglu_limit=R.choice([0.3, 10.0]))
    if R.random() < 0.5:
        c["mlp_layer_types"] = kinds(R, n, "dense", "sparse")
    if R.random() < 0.6:
        c["indexer_types"] = ["full"] + [R.choice(["full", "shared", "shared"]) for _ in range(n - 1)]
    if R.random() < 0.5:
        c.update(hc_eps=R.choice([1e-6, 1e-2]), hc_magnitude=R.choice([1.0, 1.5]))
    return c


def qwen4_exp_text(R, llama):
    c = llama(R, "qwen4_exp_text", head_dim=False, dims=(6, 8), ropes=("default",))
    n, keys = R.choice([2, 3, 4]), R.choice([1, 2])
    for name in ("intermediate_size", "hidden_act"):
        c.pop(name, None)
    c.update(num_hidden_layers=n, head_dim=R.choice([6, 8]), linear_num_key_heads=keys, linear_num_value_heads=keys * R.choice([1, 2]), linear_key_head_dim=R.choice([4, 6]),
             linear_value_head_dim=R.choice([4, 6]), linear_conv_kernel_dim=R.choice([2, 3]), attention_bias=R.random() < 0.3, num_experts=R.choice([4, 6]),
             num_experts_per_tok=R.choice([1, 2, 3]), moe_intermediate_size=R.choice([6, 10]), shared_expert_intermediate_size=R.choice([8, 12]), norm_topk_prob=R.random() < 0.6,
             hc_count=R.choice([2, 3, 4]), hc_lowrank=R.choice([3, 5]), output_gate_type=R.choice([None, "sigmoid", "silu"]))
    full = R.choice(["full_attention", "indexed_attention"])  # the first is that of published files
    types = kinds(R, n, "linear_attention", full)
    if R.random() < 0.7:
        c["layer_types"] = types
    else:
        c["full_attention_interval"] = 2
        types = ["linear_attention", full] * 2
    ratio = R.choice([1, 2, 3, 5])
    c.update(indexer_n_heads=R.choice([7, 8]), indexer_kv_heads=1, indexer_head_dim=c["head_dim"] + R.choice([0, 4]), indexer_compress_ratio=ratio,
             indexer_budget=ratio * R.choice([1, 2, 3]))
    size, heads = R.choice([2, 3, 4]), R.choice([1, 2, 3])
    ids = [i + 1 for i in range(n) if types[i] == "linear_attention"]
    c.update(ple_layer_ids=sorted(R.sample(ids, R.choice([1, len(ids)]))), ple_embed_dim=(size - 1) * heads * R.choice([2, 4]), ple_conv_kernel_size=R.choice([2, 3, 4]),
             ngram_size=size, heads_per_ngram=heads, ngram_vocab_size_base=R.choice([5, 20, 30]), make_ngram_vocab_size_divisible_by=R.choice([1, 8]),
             split_ngram_parts=R.choice([1, 3, 7]), seed=R.choice([5, 1234]), eos_token_id=R.choice([2, 4, [7, 2]]), vocab_size=R.choice([24, 60]))
    return c


def qwen4_exp(R, llama, wrap):
    t = qwen4_exp_text(R, llama)
    vision = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_patch_size=1, out_hidden_size=t["hidden_size"],
                  num_position_embeddings=4)
    return wrap("qwen4_exp", t, vision, "dtype" in t, tie_word_embeddings=t.pop("tie_word_embeddings"))


def late(llama, gemma4, wrap, deepseek):
    """The makers, each with the seeds of the committed fixtures. llama and gemma4 are family_configs'."""
    return {
        "apertus1p5_text": (lambda R: apertus1p5_text(R, llama), [1, 2, 3]),
        "apertus1p5": (lambda R: apertus1p5(R, llama, wrap), [1]),
        "bailing_hybrid": (lambda R: bailing_hybrid(R, deepseek), [1, 2, 3]),
        "diffllama": (lambda R: diffllama(R, llama), [3, 7]),
        "doge": (lambda R: doge(R, llama), [1, 5]),
        "falcon_mamba": (lambda R: mamba(R, llama, "falcon_mamba"), [1, 2]),
        "flint": (lambda R: flint(R, llama), [1, 2]),
        "gemma4_unified_text": (lambda R: gemma4_unified_text(R, gemma4), [1]),
        "gemma4_unified": (lambda R: gemma4_unified(R, gemma4, wrap), [1]),
        "hy_v4": (lambda R: hy_v4(R, deepseek), [6, 7]),
        "jamba": (lambda R: jamba(R, llama), [1, 3, 21]),
        "mamba": (lambda R: mamba(R, llama, "mamba"), [1, 2]),
        "kimi_linear": (lambda R: kimi_linear(R, deepseek), [1, 2, 3]),
        "kolibri1": (lambda R: kolibri1(R, llama), [1, 2]),
        "laguna": (lambda R: laguna(R, llama), [1, 2, 3]),
        "lara_mini": (lambda R: lara_mini(R, llama), [1, 2]),
        "minimax": (lambda R: minimax(R, llama), [1, 2]),
        "minimax_m3_vl_text": (lambda R: minimax_m3_vl_text(R, llama), [6, 7]),
        "minimax_m3_vl": (lambda R: minimax_m3_vl(R, llama, wrap), [1]),
        "mistral4": (lambda R: mistral4(R, deepseek), [1, 2]),
        "muse_glimmer": (lambda R: muse_glimmer(R, llama, wrap), [1]),
        "qwen4_exp_text": (lambda R: qwen4_exp_text(R, llama), [1]),
        "qwen4_exp": (lambda R: qwen4_exp(R, llama, wrap), [1]),
        "longcat_flash": (lambda R: longcat_flash(R, deepseek), [1, 2, 3]),
        "lfm3": (lambda R: lfm3(R, llama), [1, 2]),
    }
