"""Makers of decoders with mixtures of experts."""
from families.latent import sparse
from families.shapes import (SCALINGS, common, kinds, llama, mixture, multipliers, partial, routed, typed_ropes, windowed, windowed_kinds, windows)


def glm4_moe(R):
    c = llama(R, "glm4_moe")
    groups = R.choice([1, 2])
    routed(R, c)
    c.update(use_qk_norm=R.random() < 0.5, attention_bias=R.random() < 0.5, n_group=groups, topk_group=1,
             n_shared_experts=R.choice([1, 2]), first_k_dense_replace=R.choice([0, 1]), norm_topk_prob=R.random() < 0.5,
             routed_scaling_factor=R.choice([1.0, 2.5]))
    if R.random() < 0.5:
        (c["rope_parameters"] if "rope_parameters" in c else c)["partial_rotary_factor"] = 1.0
    elif c.get("head_dim") in (6, 14) or c["hidden_size"] // c["num_attention_heads"] in (6, 10):
        c["head_dim"] = 8
    return c


def minimax_m2(R):
    c = llama(R, "minimax_m2", head_dim=False)
    c.update(head_dim=R.choice([8, 12]), num_local_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]))
    if "rope_parameters" in c:
        c["rope_parameters"]["partial_rotary_factor"] = R.choice([0.5, 1.0])
    else:
        c["rotary_dim"] = R.choice([4, 8])
    return c


def hy_v3(R):
    c = llama(R, "hy_v3", head_dim=False)
    routed(R, c, "num_experts")
    c.update(head_dim=R.choice([6, 8, 14]), attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3,
             num_shared_experts=R.choice([1, 2]), router_scaling_factor=R.choice([1.0, 2.826]))
    if R.random() < 0.5:
        c["mlp_layer_types"] = ["sparse"] + [R.choice(["dense", "sparse"]) for _ in range(c["num_hidden_layers"] - 1)]
    return c


def qwen2_moe(R):
    c = llama(R, "qwen2_moe")
    routed(R, c, "num_experts")
    c.update(norm_topk_prob=R.random() < 0.5, shared_expert_intermediate_size=R.choice([14, 20]), qkv_bias=R.random() < 0.7,
             decoder_sparse_step=R.choice([1, 1, 2]), mlp_only_layers=R.choice([[], [0]]))
    if R.random() < 0.5:
        c.update(use_sliding_window=True, sliding_window=8, max_window_layers=R.choice([1, 3]))
    return c


def olmoe(R):
    c = llama(R, "olmoe", head_dim=False)
    c.update(num_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), norm_topk_prob=R.random() < 0.5,
             attention_bias=R.random() < 0.3, clip_qkv=None)
    return c


def granitemoe(R):
    c = llama(R, "granitemoe", head_dim=False)
    c.update(num_local_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), attention_bias=R.random() < 0.3,
             embedding_multiplier=R.choice([1.0, 6.0]), logits_scaling=R.choice([0.5, 2.0]), residual_multiplier=R.choice([0.3, 1.0]),
             attention_multiplier=R.choice([0.2, 0.5]))
    return c


def qwen3_moe(R):
    c = llama(R, "qwen3_moe")
    routed(R, c, "num_experts")
    c.update(norm_topk_prob=R.random() < 0.5, decoder_sparse_step=R.choice([1, 1, 2]), mlp_only_layers=R.choice([[], [0]]))
    return c


def ernie4_5_moe(R):
    c = llama(R, "ernie4_5_moe")
    c.update(use_bias=R.random() < 0.3, moe_num_experts=R.choice([4, 6]), moe_k=R.choice([1, 2, 3]), moe_intermediate_size=R.choice([10, 12]),
             moe_num_shared_experts=R.choice([0, 1, 2]), moe_layer_start_index=R.choice([0, 1]), moe_layer_interval=R.choice([1, 1, 2]))
    return c


def phimoe(R):
    c = llama(R, "phimoe", head_dim=False, ropes=("default",))
    c.update(num_local_experts=R.choice([2, 5, 8]), num_experts_per_tok=2, router_jitter_noise=R.choice([0.01, 0.2, 0.6]),
             attention_bias=R.random() < 0.5, lm_head_bias=R.random() < 0.5, sliding_window=R.choice([None, 8, 64]))
    kind = R.choice(["default", "longrope", "longrope", "linear", "dynamic", "yarn", "llama3"])
    if c["tie_word_embeddings"]:
        c["lm_head_bias"] = False
    if kind == "default":
        return c
    scaling = dict(SCALINGS.get(kind, {}), short_mscale=R.choice([1.0, 1.2]), long_mscale=R.choice([1.3, 0.9]), original_max_position_embeddings=10)
    if kind == "longrope":
        half = c["hidden_size"] // c["num_attention_heads"] // 2
        scaling.update(short_factor=[1 + i / 8 for i in range(half)], long_factor=[2.0 + i for i in range(half)])
    if "rope_parameters" in c:
        c["rope_parameters"].update(scaling, rope_type=kind)
    else:
        c["rope_scaling"] = {R.choice(["type", "rope_type"]): kind, **scaling}
    return c


def mimo_v2_flash(R):
    c = llama(R, "mimo_v2_flash", heads=4, head_dim=False)
    routed(R, c)
    groups = R.choice([1, 2])
    for name in ("rope_theta", "rope_scaling", "rope_parameters"):
        c.pop(name, None)
    c.update(num_hidden_layers=R.choice([3, 4]), num_key_value_heads=R.choice([1, 2]), head_dim=R.choice([8, 12, 16, 24]), v_head_dim=R.choice([6, 8, 16]),
             n_group=groups, topk_group=1, norm_topk_prob=R.random() < 0.7, routed_scaling_factor=R.choice([None, 1.0, 2.5]),
             attention_bias=R.random() < 0.3, attention_value_scale=R.choice([None, 0.707, 1.5]))
    c["sliding_window_size" if R.random() < 0.3 else "sliding_window"] = 8
    if R.random() < 0.6:
        c["layer_types"] = windowed_kinds(R, c["num_hidden_layers"])
    if R.random() < 0.5:
        c["mlp_layer_types"] = ["sparse"] + [R.choice(["dense", "sparse"]) for _ in range(c["num_hidden_layers"] - 1)]
    if R.random() < 0.6:
        c["rope_parameters"] = {
            "full_attention": dict(rope_type="default", rope_theta=50000.0, partial_rotary_factor=R.choice([0.334, 0.5, 1.0])),
            "sliding_attention": dict(rope_type=R.choice(["default", "linear"]), rope_theta=1000.0, factor=4.0)}
    return c


def llama4_text(R):
    c = llama(R, "llama4_text", head_dim=False, heads=4)
    n = R.choice([3, 4])
    c.update(num_hidden_layers=n, head_dim=R.choice([6, 8, 12, 16]), intermediate_size_mlp=R.choice([18, 28]), num_local_experts=R.choice([3, 4, 6]),
             num_experts_per_tok=R.choice([1, 1, 2]), attention_bias=R.random() < 0.3, use_qk_norm=R.random() < 0.7,
             attention_chunk_size=R.choice([5, 8, 16]), attn_temperature_tuning=R.random() < 0.8, floor_scale=R.choice([3, 8]),
             attn_scale=R.choice([0.1, 0.6]))
    if R.random() < 0.4:
        c["moe_layers"] = sorted(R.sample(range(n), R.choice([0, 1, 2])))
    else:
        c["interleave_moe_layer_step"] = R.choice([1, 1, 2])
    if R.random() < 0.6:
        c["no_rope_layers"] = [1, 0] + [R.choice([0, 1]) for _ in range(n - 2)]
    else:
        c["no_rope_layer_interval"] = R.choice([2, 3])
    if R.random() < 0.3:
        c["layer_types"] = [R.choice(["chunked_attention", "full_attention"]) for _ in range(n)]
    return c


def gemma4_text(R, kind=None):
    """kind is one of dense, experts, small; the last has inputs by layer and shared keys."""
    kind = kind or R.choice(["dense", "experts", "small"])
    c = common(R, "gemma4_text", True)
    n = R.choice([4, 5, 6])
    for name in ("hidden_act",):
        c.pop(name, None)
    c.update(num_hidden_layers=n, head_dim=R.choice([8, 14, 16]), global_head_dim=R.choice([8, 16, 24]), sliding_window=8, rms_norm_eps=1e-5,
             attention_bias=R.random() < 0.3, tie_word_embeddings=R.random() < 0.7, final_logit_softcapping=R.choice([None, 8.0]),
             hidden_activation=R.choice(["gelu_pytorch_tanh", "gelu_pytorch_tanh", "silu"]), attention_k_eq_v=R.random() < 0.5,
             hidden_size_per_layer_input=0)
    if c["attention_k_eq_v"] and R.random() < 0.7:
        c["num_global_key_value_heads"] = R.choice([k for k in (1, 2, 3, 4) if c["num_attention_heads"] % k == 0])
    first = R.choice([["full_attention", "sliding_attention"], ["sliding_attention", "full_attention"]])
    c["layer_types"] = first + [R.choice(first) for _ in range(n - 3)] + ["full_attention"]
    if R.random() < 0.5:
        c["rope_parameters"] = dict(
            full_attention=dict(rope_type="proportional", rope_theta=R.choice([5000.0, 50000.0]), partial_rotary_factor=R.choice([0.25, 0.5, 1.0])),
            sliding_attention=dict(rope_type=R.choice(["default", "linear"]), rope_theta=1000.0, factor=2.0))
    if kind == "experts":
        c.update(enable_moe_block=True, num_experts=R.choice([4, 6]), top_k_experts=R.choice([1, 2, 3]), moe_intermediate_size=R.choice([10, 12]))
    if kind == "small":
        c.update(hidden_size_per_layer_input=R.choice([4, 6]), vocab_size_per_layer_input=c["vocab_size"], num_kv_shared_layers=R.choice([0, 1, 2, n - 2]),
                 use_double_wide_mlp=R.random() < 0.5)
    return c


def hunyuan(R, llama, moe):
    c = llama(R, "hunyuan_v1_moe" if moe else "hunyuan_v1_dense", ropes=("default", "default", "linear"))
    c.setdefault("head_dim", R.choice([6, 8, 14]))
    c["attention_bias"] = R.random() < 0.3
    if R.random() < 0.6:
        scaling = dict(alpha=R.choice([3.0, 1000.0]), factor=1.0)
        if "rope_parameters" in c:
            c["rope_parameters"] = dict(rope_type="dynamic", rope_theta=10000.0, **scaling)
        else:
            c["rope_scaling"] = dict(type="dynamic", beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0, **scaling)
    if moe:
        c["num_experts"] = R.choice([4, 6])
        c["moe_topk"] = R.choice([2, [R.choice([1, 2, 3]) for _ in range(c["num_hidden_layers"])]])
    return c


def dots1(R):
    c = llama(R, "dots1")
    groups = R.choice([1, 1, 2])
    c.update(n_routed_experts=R.choice([4, 6]), num_experts_per_tok=2, n_shared_experts=R.choice([1, 2]), moe_intermediate_size=R.choice([10, 12]),
             first_k_dense_replace=R.choice([0, 1]), n_group=groups, topk_group=1, norm_topk_prob=R.random() < 0.7,
             routed_scaling_factor=R.choice([1.0, 2.5]), attention_bias=R.random() < 0.3, sliding_window=R.choice([None, 8]),
             scoring_func=R.choice(["noaux_tc", "sigmoid"]))
    if R.random() < 0.5:
        c["max_window_layers"] = 1
    elif c["sliding_window"]:
        c["layer_types"] = ["sliding_attention", "full_attention", "sliding_attention"][:c["num_hidden_layers"]]
    return c


def solar_open(R):
    c = partial(R, mixture(R, llama(R, "solar_open"), "n_routed_experts"), 1.0)
    c.pop("intermediate_size")
    c.update(attention_bias=R.random() < 0.3, n_shared_experts=R.choice([1, 2]))
    return c


def exaone_moe(R):
    c = windows(R, mixture(R, llama(R, "exaone_moe"), "num_experts"))
    c.update(num_shared_experts=R.choice([1, 2]), sliding_window=8)
    if R.random() < 0.5:
        c["mlp_layer_types"] = ["dense", "sparse", "sparse"][:c["num_hidden_layers"]]
    else:
        c["first_k_dense_replace"] = R.choice([0, 1])
    if "layer_types" not in c:
        c["sliding_window_pattern"] = R.choice([2, 3])
    return c


def flex_olmo(R):
    c = llama(R, "flex_olmo", head_dim=False)
    c.update(num_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), norm_topk_prob=R.random() < 0.5, attention_bias=R.random() < 0.3)
    return c


def jetmoe(R):
    c = llama(R, "jetmoe", head_dim=False, dims=(6, 8, 10))
    for name in ("intermediate_size", "num_attention_heads"):
        c.pop(name)
    c["activation_function"] = c.pop("hidden_act", "silu")
    c.update(num_hidden_layers=2, num_key_value_heads=R.choice([1, 2, 3]), kv_channels=R.choice([6, 8]), intermediate_size=R.choice([6, 10]),
             num_local_experts=R.choice([3, 4, 5]), num_experts_per_tok=R.choice([1, 2, 3]))
    return c


def granitemoeshared(R):
    c = multipliers(R, llama(R, "granitemoeshared", head_dim=False))
    c.update(num_local_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), shared_intermediate_size=R.choice([0, 12, 18]))
    return c


def granite_swa(R, kind):
    """Windows, and a rope's base for each layer, or none."""
    c = multipliers(R, llama(R, kind, head_dim=kind == "granite_swa"))
    n = c["num_hidden_layers"]
    c["sliding_window"] = R.choice([4, 8])
    if R.random() < 0.6:
        c["layer_types"] = windowed_kinds(R, n)
    if R.random() < 0.7:
        c["layer_rope_theta"] = [R.choice([0, 10000, 50000.0, 300.0]) for _ in range(n)]
    if kind == "granite_swa":
        c["mlp_bias"] = R.random() < 0.3
    else:
        c.update(num_local_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), shared_intermediate_size=R.choice([0, 12, 18]))
    return c


def sarvam_moe(R):
    c = mixture(R, llama(R, "sarvam_moe"), "num_experts")
    c.update(num_shared_experts=R.choice([1, 2]), first_k_dense_replace=R.choice([0, 1]), use_qk_norm=R.random() < 0.7,
             head_dim=R.choice([6, 8, 14]))
    c["use_qkv_bias" if R.random() < 0.5 else "attention_bias"] = R.random() < 0.4
    return c


def cohere2_moe(R):
    c = llama(R, "cohere2_moe")
    if c.get("rope_scaling"):  # which the reference ignores
        c["rope_parameters"] = dict(rope_theta=c.pop("rope_theta"), **{"rope_type" if k == "type" else k: v for k, v in c.pop("rope_scaling").items()})
    eps = c.pop("rms_norm_eps")
    c[R.choice(["rms_norm_eps", "layer_norm_eps"])] = eps
    c.setdefault("head_dim", 8)
    n = R.choice([3, 4])
    c.update(num_hidden_layers=n, num_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), num_shared_experts=R.choice([0, 1, 2]), sliding_window=8,
             shared_expert_combination_strategy=R.choice(["average", "sum"]), expert_selection_fn=R.choice(["softmax", "sigmoid"]), norm_topk_prob=R.random() < 0.6,
             prefix_dense_intermediate_size=R.choice([18, 30]), prefix_dense_sliding_window_pattern=R.choice([1, 1, 2]), attention_bias=R.random() < 0.3,
             logit_scale=R.choice([0.25, 0.5]))
    form = R.choice(["lists", "pattern"])
    if form == "lists":
        c["layer_types"] = windowed_kinds(R, n)
        c["mlp_layer_types"] = [R.choice(["dense", "sparse"]), "sparse"] + [R.choice(["dense", "sparse"]) for _ in range(n - 2)]
    else:
        c.update(first_k_dense_replace=R.choice([0, 1]), sliding_window_pattern=2)
    return c


def mellum(R):
    c = llama(R, "mellum")
    c.update(num_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), moe_intermediate_size=R.choice([10, 12]), norm_topk_prob=R.random() < 0.6,
             head_dim=R.choice([6, 8, 14]), sliding_window=8, attention_bias=R.random() < 0.3)
    if R.random() < 0.8:
        c["layer_types"] = windowed_kinds(R, c["num_hidden_layers"])
    if R.random() < 0.5:
        c["mlp_layer_types"] = ["sparse"] + [R.choice(["dense", "sparse"]) for _ in range(c["num_hidden_layers"] - 1)]
    return typed_ropes(R, c, dict(rope_type=R.choice(["default", "yarn"]), rope_theta=50000.0, factor=4.0, original_max_position_embeddings=32),
                       dict(rope_type="default", rope_theta=1000.0))


def afmoe(R):
    c = llama(R, "afmoe")
    c.update(head_dim=R.choice([6, 8, 14]), num_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), moe_intermediate_size=R.choice([10, 12]),
             num_shared_experts=R.choice([1, 2]), num_dense_layers=R.choice([0, 1]), route_scale=R.choice([1.0, 2.5]), mup_enabled=R.random() < 0.6,
             attention_bias=R.random() < 0.3, sliding_window=8)
    if R.random() < 0.6:
        c["layer_types"] = windowed_kinds(R, c["num_hidden_layers"])
    else:
        c["global_attn_every_n_layers"] = 2
    return c


def minimax_m3_vl_text(R):
    c = llama(R, "minimax_m3_vl_text", head_dim=False, dims=(6, 8))
    n, keys, dim = R.choice([2, 3, 4]), c["num_key_value_heads"], R.choice([8, 12])
    c.update(num_hidden_layers=n, head_dim=dim, num_local_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), dense_intermediate_size=R.choice([18, 26]),
             shared_intermediate_size=R.choice([10, 14]), routed_scaling_factor=R.choice([1.0, 2.0]), swiglu_limit=R.choice([0.5, 7.0]))
    if R.random() < 0.5:
        (c["rope_parameters"] if "rope_parameters" in c else c)["partial_rotary_factor"] = 0.5
    count = R.choice([1, 2, 3])
    keys = R.choice([keys, keys, 1, c["num_attention_heads"]])
    index = dict(num_index_heads=keys, index_dim=R.choice([4, 6] if getattr(R, "wide", False) and R.random() < 0.3 else [dim, dim + 4, 16]), block_size=R.choice([1, 2, 3, 5]), topk_blocks=count, local_block=R.choice([0, 1, min(2, count)]))
    sparse, mixture = [k == "minimax_m3_sparse" for k in kinds(R, n, "minimax_m3_sparse", "full_attention")], kinds(R, n, 1, 0)
    if R.random() < 0.5:  # as published
        c["sparse_attention_config"] = dict({f"sparse_{name}": v for name, v in index.items()}, sparse_attention_freq=[int(s) for s in sparse], use_sparse_attention=True)
        c["moe_layer_freq"] = mixture
    else:
        c.update(index_n_heads=keys, index_head_dim=index["index_dim"], index_block_size=index["block_size"], index_topk_blocks=count, index_local_blocks=index["local_block"],
                 layer_types=["minimax_m3_sparse" if s else "full_attention" for s in sparse], mlp_layer_types=["sparse" if m else "dense" for m in mixture])
    return c


def minimax_m3_narrow(R):
    """Its indexer's heads have fewer channels than the rope turns, and its gates another alpha."""
    c = minimax_m3_vl_text(R)
    for name in ("rope_parameters", "partial_rotary_factor", "sparse_attention_config", "moe_layer_freq", "mlp_layer_types"):
        c.pop(name, None)
    n = c["num_hidden_layers"] = 2
    c.update(head_dim=8, num_local_experts=2, num_experts_per_tok=1, intermediate_size=8, shared_intermediate_size=6, dense_intermediate_size=6, swiglu_alpha=R.choice([0.9, 3.0]), swiglu_limit=0.5, index_n_heads=c["num_key_value_heads"], index_head_dim=R.choice([4, 6]), index_block_size=2, index_topk_blocks=2,
             index_local_blocks=1, layer_types=["minimax_m3_sparse"] * n)
    return c


def step3p5(R):
    c = windowed(R, llama(R, "step3p5", ropes=("default",), dims=(6, 8)))
    n, keys = R.choice([3, 4]) if getattr(R, "wide", False) else 3, c["num_key_value_heads"]
    for name in ("rope_parameters", "rope_theta", "rope_scaling", "hidden_act"):
        c.pop(name, None)
    c.update(num_hidden_layers=n, head_dim=R.choice([8, 16] if getattr(R, "wide", False) else [8]), attention_bias=R.random() < 0.2, mlp_bias=R.random() < 0.2, moe_intermediate_size=R.choice([10, 12]),
             moe_router_scaling_factor=R.choice([1.0, 3.0]), layer_types=kinds(R, n, "full_attention", "sliding_attention"))
    sizes = dict(n_routed_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), share_expert_dim=R.choice([12, 18]))
    limits = lambda *of: [R.choice(of) for _ in range(n)]
    if R.random() < 0.8:
        c.update(swiglu_limits=limits(0, 0.3, 0.7, None), swiglu_limits_shared=limits(0.0, 0.4, 16))
    window, sparse = keys * R.choice([1, 2, 3]), [i for i in range(n) if R.random() < 0.7] or [n - 1]
    full = R.choice([dict(rope_type="default"), dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32),
                     dict(rope_type="llama3", factor=2.0, original_max_position_embeddings=32, low_freq_factor=1.0, high_freq_factor=4.0)])
    partial = R.choice([0.5, 1.0])
    if "dtype" in c:  # as transformers saves it
        c.update(sizes, mlp_layer_types=["sparse" if i in sparse else "dense" for i in range(n)], rope_parameters=dict(
            full_attention=dict(full, rope_theta=50000.0, partial_rotary_factor=partial), sliding_attention=dict(rope_type="default", rope_theta=1000.0)))
        if R.random() < 0.5:
            c["num_sliding_attention_heads"] = window
        if R.random() < 0.4:
            c["per_layer_config"] = {str(i): dict(num_attention_heads=keys * R.choice([1, 2, 3])) for i in range(n) if R.random() < 0.6}
        return c
    ahead = R.choice([0, 0, 1])  # layers that predict several tokens ahead, of which the lists speak
    c.update(num_attention_groups=c.pop("num_key_value_heads"), moe_num_experts=sizes["n_routed_experts"], moe_top_k=sizes["num_experts_per_tok"],
             share_expert_dim=sizes["share_expert_dim"], attention_other_setting=dict(num_attention_heads=window, num_attention_groups=keys),
             num_nextn_predict_layers=ahead)
    if R.random() < 0.7:
        c["moe_layers_enum"] = R.choice([",".join(map(str, sparse + [n] * ahead)), sparse])
    by_kind = lambda a, b: [a if kind == "full_attention" else b for kind in c["layer_types"]] + [b] * ahead
    thetas = [by_kind(50000.0, 1000.0), 10000.0] + ([[R.choice([500.0, 9000.0]) for _ in range(n)]] if getattr(R, "wide", False) else [])
    c.update(rope_theta=R.choice(thetas), rope_scaling=R.choice([full, None]))
    if R.random() < 0.7:
        c["partial_rotary_factors"] = by_kind(partial, 1.0)
    for name, more in ("layer_types", "sliding_attention"), ("swiglu_limits", 0.0), ("swiglu_limits_shared", 0.0):
        if name in c:
            c[name] = c[name] + [more] * ahead
    return c


def beam(R):
    c = llama(R, "beam", ropes=("default",), dims=(6, 8))
    n, theta = R.choice([2, 3, 4]), R.choice([1000.0, 50000.0])
    for name in ("rope_parameters", "rope_theta", "rope_scaling", "dtype", "torch_dtype"):
        kept = c.pop(name, None)
        if "dtype" in name and kept:
            c["dtype"] = kept
    c.update(num_hidden_layers=n, head_dim=R.choice([6, 8]), attention_bias=R.random() < 0.3, sliding_window=R.choice([4, 8]), moe_intermediate_size=R.choice([10, 12]),
             num_experts=R.choice([4, 8]), num_experts_per_tok=R.choice([1, 2]), n_group=2, topk_group=R.choice([1, 2]), routed_scaling_factor=R.choice([1.0, 2.5]),
             norm_topk_prob=R.random() < 0.7, final_logit_softcapping=R.choice([3.0, 30.0, None]), mlp_layer_types=kinds(R, n, "dense", "sparse"),
             layer_types=kinds(R, n, "sliding_attention", "full_attention"))
    roped = dict(rope_type="default", rope_theta=theta)
    if R.random() < 0.6:
        yarn = dict(rope_type="yarn", rope_theta=theta, factor=4.0, original_max_position_embeddings=32)
        c["rope_parameters"] = dict(sliding_attention=R.choice([roped, roped, yarn, None] if getattr(R, "wide", False) else [roped]), full_attention=R.choice([None, None, roped]))
    return c


def zaya(R):
    c = llama(R, "zaya", ropes=("default",), dims=(6, 8))
    n, wide, theta = R.choice([2, 3, 4]), getattr(R, "wide", False), R.choice([1000.0, 50000.0])
    for name in ("rope_parameters", "rope_theta", "rope_scaling", "intermediate_size"):
        c.pop(name, None)
    keys = R.choice([1, 2, 3] if wide else [1, 2])
    c.update(num_hidden_layers=n, head_dim=R.choice([6, 8, 12] if wide else [8]), num_key_value_heads=keys, num_attention_heads=keys * R.choice([1, 2, 3]), attention_bias=R.random() < 0.3,
             moe_intermediate_size=R.choice([10, 12]), num_experts=R.choice([3, 4]), router_hidden_size=R.choice([6, 10]), cca_time0=R.choice([2, 2, 3, 4]), lm_head_bias=R.random() < 0.3)
    if R.random() < 0.6:
        c.update(sliding_window=R.choice([3, 8]), layer_types=kinds(R, n, "hybrid_sliding", "hybrid"))
    if R.random() < 0.7:
        more = lambda: R.choice([{}, {}, dict(rope_type="linear", factor=2.0), dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)] if wide else [{}])
        partial = [dict(partial_rotary_factor=p) if p else {} for p in (R.choice([0.5, None, 1.0]), 0.5)]
        c["rope_parameters"] = {kind: dict(dict(rope_type="default", rope_theta=t, **p), **more()) for kind, t, p in (("hybrid", theta, partial[0]), ("hybrid_sliding", 500.0, partial[1]))}
    return c


def dbrx(R):
    c = llama(R, "dbrx", head_dim=False, ropes=("default",))
    heads, theta = c["num_attention_heads"], R.choice([10000.0, 500000.0])
    for name in ("rope_parameters", "rope_scaling", "rope_theta", "rms_norm_eps", "hidden_act", "tie_word_embeddings"):
        c.pop(name, None)
    experts = R.choice([4, 6])
    c.update(d_model=c.pop("hidden_size"), n_heads=c.pop("num_attention_heads"), n_layers=c.pop("num_hidden_layers"), max_seq_len=c.pop("max_position_embeddings"),
             attn_config=dict(clip_qkv=R.choice([0.5, 2.0, 8]), kv_n_heads=c.pop("num_key_value_heads"), rope_theta=theta),
             ffn_config=dict(ffn_hidden_size=c.pop("intermediate_size"), moe_num_experts=experts, moe_top_k=R.choice([1, 2, 3]), moe_jitter_eps=R.choice([0, 0.01])))
    if R.random() < 0.3:
        c["attn_config"]["clip_qkv"] = None
    if R.random() < 0.3:
        c["ffn_config"]["moe_normalize_expert_weights"] = R.choice([None, 1.0])
    if R.random() < 0.3:
        c["ffn_config"]["ffn_act_fn"] = dict(name=R.choice(["gelu", "silu"]))
    if "dtype" in c:
        c["rope_parameters"] = dict(rope_type="default", rope_theta=theta)
    else:
        c["rope_theta"] = theta  # the reference reads no other
    return c


def aria_text(R):
    t = llama(R, "aria_text")
    t.update(moe_num_experts=R.choice([4, 6]), moe_topk=R.choice([1, 2, 3]), moe_num_shared_experts=R.choice([1, 2]), attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3)
    return t


# The makers, each with the seeds of the committed fixtures.
MAKERS = {
    "afmoe": (afmoe, [1, 2]),
    "aria_text": (aria_text, [5]),
    "beam": (beam, [3, 8]),
    "cohere2_moe": (cohere2_moe, [1, 2, 3]),
    "dbrx": (dbrx, [10, 11]),
    "dots1": (dots1, [1, 2]),
    "ernie4_5_moe": (ernie4_5_moe, [1, 2]),
    "exaone_moe": (exaone_moe, [1, 2]),
    "flex_olmo": (flex_olmo, [1]),
    "gemma4_dense": (lambda R: gemma4_text(R, "dense"), [1]),
    "gemma4_experts": (lambda R: gemma4_text(R, "experts"), [1]),
    "gemma4_small": (lambda R: gemma4_text(R, "small"), [1, 2]),
    "glm4_moe": (glm4_moe, [1, 2]),
    "granite_swa": (lambda R: granite_swa(R, "granite_swa"), [1, 2]),
    "granitemoe": (granitemoe, [1]),
    "granitemoe_swa": (lambda R: granite_swa(R, "granitemoe_swa"), [1, 2]),
    "granitemoeshared": (granitemoeshared, [1, 2]),
    "hunyuan_v1_dense": (lambda R: hunyuan(R, llama, False), [1, 2]),
    "hunyuan_v1_moe": (lambda R: hunyuan(R, llama, True), [1, 26]),
    "hy_v3": (hy_v3, [1, 2]),
    "jetmoe": (jetmoe, [1, 2]),
    "llama4_text": (llama4_text, [1, 2, 3]),
    "mellum": (mellum, [1, 2]),
    "mimo_v2_flash": (mimo_v2_flash, [1, 2, 3]),
    "mimo_v2_flash_still": (lambda R: dict(mimo_v2_flash(R), rope_parameters={
        "full_attention": dict(rope_type="default", rope_theta=50000.0, partial_rotary_factor=0.0),
        "sliding_attention": dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=R.choice([0.0, 0.5]))}), [1]),
    "minimax_m2": (minimax_m2, [1, 2]),
    "minimax_m3_vl_text": (minimax_m3_vl_text, [6, 7]),
    "minimax_m3_narrow": (minimax_m3_narrow, [1]),
    "olmoe": (olmoe, [1]),
    "phimoe": (phimoe, [1, 2, 3]),
    "qwen2_moe": (qwen2_moe, [1, 2]),
    "qwen3_moe": (qwen3_moe, [1]),
    "sarvam_moe": (sarvam_moe, [1, 2]),
    "solar_open": (solar_open, [2, 20]),
    "step3p5": (step3p5, [7, 13]),
    "zaya": (zaya, [1, 2]),
}
