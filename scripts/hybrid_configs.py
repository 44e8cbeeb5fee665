"""Configs of small models with states beside keys and values, for make-family-fixtures.py.

HYBRIDS is the part of family_configs.FAMILIES for these families.
"""


def kinds_of(R, n, state):
    """The types of n layers, both of them among the first two."""
    first = R.choice([["full_attention", state], [state, "full_attention"]])
    return first + [R.choice([state, state, "full_attention"]) for _ in range(n - 2)]


def delta_nets(R, c):
    keys, per = R.choice([1, 2, 3]), R.choice([1, 2])
    c.update(linear_num_key_heads=keys, linear_num_value_heads=keys * per, linear_key_head_dim=R.choice([6, 8, 16]),
             linear_value_head_dim=R.choice([4, 8, 10]), linear_conv_kernel_dim=R.choice([2, 3, 4]), head_dim=R.choice([8, 16]),
             num_hidden_layers=R.choice([3, 4, 5]), attention_bias=R.random() < 0.3)
    c.pop("hidden_act", None)
    if R.random() < 0.6:
        c["layer_types"] = kinds_of(R, c["num_hidden_layers"], "linear_attention")
    else:
        c["full_attention_interval"] = R.choice([2, 3])
    if R.random() < 0.5:
        (c["rope_parameters"] if "rope_parameters" in c else c)["partial_rotary_factor"] = R.choice([0.5, 1.0])
    return c


def shared_experts(R, c, name="num_experts"):
    c.update({name: R.choice([4, 6])}, num_experts_per_tok=R.choice([1, 2, 3]), moe_intermediate_size=R.choice([10, 12]),
             shared_expert_intermediate_size=R.choice([14, 20]))
    return c


def olmo_hybrid(R, llama):
    c = delta_nets(R, llama(R, "olmo_hybrid", head_dim=False, ropes=("default",)))
    for name in ("head_dim", "full_attention_interval", "partial_rotary_factor"):
        c.pop(name, None)
    if "rope_parameters" in c:
        c["rope_parameters"].pop("partial_rotary_factor", None)
    heads = c["linear_num_key_heads"]
    c.update(linear_num_value_heads=R.choice([heads, heads, 2 * heads]), linear_allow_neg_eigval=R.random() < 0.7)
    if R.random() < 0.5:  # as the published models, without rope
        if "rope_parameters" in c:
            c["rope_parameters"]["rope_theta"] = None
        else:
            c["rope_theta"] = None
    if R.random() < 0.3:
        del c["linear_num_key_heads"], c["linear_num_value_heads"], c["linear_value_head_dim"]
        c["linear_key_head_dim"] = None
    return c


def qwen3_next(R, llama):
    c = shared_experts(R, delta_nets(R, llama(R, "qwen3_next", ropes=("default",))))
    c.update(norm_topk_prob=R.random() < 0.5, decoder_sparse_step=R.choice([1, 1, 2]), mlp_only_layers=R.choice([[], [0]]))
    return c


def qwen3_5(R, llama, moe):
    c = delta_nets(R, llama(R, "qwen3_5_moe_text" if moe else "qwen3_5_text", ropes=("default",)))
    if moe:
        shared_experts(R, c)
        c.pop("intermediate_size")
    return c


def qwen3_5_wrapped(R, llama, wrap, moe):
    t = qwen3_5(R, llama, moe)
    if "rope_parameters" in t:
        t["rope_parameters"].update(mrope_section=[1, 1, 0], mrope_interleaved=True)
    tie = dict(tie_word_embeddings=t.pop("tie_word_embeddings"))
    vision = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4, spatial_merge_size=2,
                  temporal_patch_size=1, out_hidden_size=t["hidden_size"], num_position_embeddings=4)
    return wrap("qwen3_5_moe" if moe else "qwen3_5", t, vision, "dtype" in t, **tie)


def lfm2(R, llama, moe):
    c = llama(R, "lfm2_moe" if moe else "lfm2", head_dim=False, ropes=("default",))
    c["norm_eps"] = c.pop("rms_norm_eps")
    c.pop("hidden_act", None)
    c.update(num_hidden_layers=R.choice([3, 4, 5]), conv_L_cache=R.choice([2, 3, 4]), conv_bias=R.random() < 0.4)
    kinds = kinds_of(R, c["num_hidden_layers"], "conv")
    if moe or R.random() < 0.5:
        c["layer_types"] = kinds
    else:
        c["full_attn_idxs"] = [i for i, kind in enumerate(kinds) if kind != "conv"]
    if moe:
        c.update(num_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), moe_intermediate_size=R.choice([10, 12]),
                 num_dense_layers=R.choice([0, 1]), use_expert_bias=R.random() < 0.7, norm_topk_prob=R.random() < 0.7,
                 routed_scaling_factor=R.choice([1.0, 1.5]))
    elif R.random() < 0.5:
        c.update(block_auto_adjust_ff_dim=False, block_ff_dim=c.pop("intermediate_size"))
    else:
        c.update(block_multiple_of=R.choice([4, 16]), block_ffn_dim_multiplier=R.choice([1.0, 1.3]))
    if R.random() < 0.4:
        c["tie_embedding"] = c.pop("tie_word_embeddings")
    return c


def step_limit(R, c):
    """A limit of the steps, in one of the forms of published files."""
    chosen = R.choice([None, [0.0, float("inf")], [0.05, 0.6], [0.1, {"__float__": "Infinity"}]])
    if chosen:
        c["time_step_limit"] = chosen
    return c


def mamba2(R, llama):
    c = llama(R, "mamba2", head_dim=False, ropes=("default",))
    for name in ("rope_parameters", "rope_theta", "rope_scaling", "rms_norm_eps", "intermediate_size", "num_attention_heads",
                 "num_key_value_heads", "max_position_embeddings"):
        c.pop(name, None)
    heads = R.choice([2, 4, 6])
    dim, expand = R.choice([4, 6, 9]), R.choice([1, 2])
    c.update(num_heads=heads, head_dim=dim, expand=expand, hidden_size=heads * dim // expand, n_groups=R.choice([1, 2, heads]),
             state_size=R.choice([4, 7, 16]), conv_kernel=R.choice([2, 3, 4]), layer_norm_epsilon=R.choice([1e-5, 1e-3]),
             use_bias=R.random() < 0.3, use_conv_bias=R.random() < 0.7, chunk_size=R.choice([4, 8, 32]), num_hidden_layers=R.choice([2, 3, 4]))
    return step_limit(R, c)


def mixers(R, c, heads):
    """Fields of mixers with so many heads."""
    c.update(mamba_n_heads=heads, mamba_n_groups=R.choice([g for g in (1, 2, 3, heads) if heads % g == 0]),
             mamba_d_state=R.choice([4, 7, 16]), mamba_d_conv=R.choice([2, 3, 4]), mamba_conv_bias=R.random() < 0.7,
             mamba_proj_bias=R.random() < 0.3, mamba_chunk_size=R.choice([4, 8, 32]))
    return step_limit(R, c)


def granitemoehybrid(R, llama):
    c = llama(R, "granitemoehybrid", head_dim=False, ropes=("default",))
    layers, expand = R.choice([2, 3, 4]), R.choice([1, 2])
    inner = expand * c["hidden_size"]
    mixers(R, c, R.choice([h for h in (1, 2, 3, 4, 6) if inner % h == 0]))
    names = R.choice([("attention", "mamba"), ("full_attention", "linear_attention")])
    kinds = [names[0] if kind == "full_attention" else names[1] for kind in kinds_of(R, layers, "mamba")]
    c.update(num_hidden_layers=layers, mamba_expand=expand, mamba_d_head=R.choice(["auto", inner // c["mamba_n_heads"]]),
             shared_intermediate_size=R.choice([12, 20]), num_local_experts=R.choice([0, 4, 6]), num_experts_per_tok=R.choice([1, 2, 3]),
             attention_bias=R.random() < 0.3, embedding_multiplier=R.choice([1.0, 6.0]), logits_scaling=R.choice([0.5, 2.0]),
             residual_multiplier=R.choice([0.3, 1.0]), attention_multiplier=R.choice([0.2, 0.5]),
             position_embedding_type=R.choice(["rope", "nope", None]), **{R.choice(["layer_types", "layers_block_type"]): kinds})
    return c


def bamba(R, llama):
    c = llama(R, "bamba", head_dim=False, dims=(8, 12, 16))
    layers, expand = R.choice([2, 3, 4]), R.choice([1, 2])
    inner = expand * c["hidden_size"]
    mixers(R, c, R.choice([h for h in (1, 2, 3, 4, 6) if inner % h == 0]))
    kinds = kinds_of(R, layers, "mamba")
    c.update(num_hidden_layers=layers, mamba_expand=expand, mamba_d_head=R.choice(["auto", inner // c["mamba_n_heads"]]),
             attn_layer_indices=[i for i, kind in enumerate(kinds) if kind != "mamba"], attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3)
    return c


def falcon_h1(R, llama):
    c = llama(R, "falcon_h1", ropes=("default", "default", "linear", "yarn", "llama3"))
    heads, dim = R.choice([2, 4, 6]), R.choice([4, 6, 9])
    mixers(R, c, heads)
    scale = lambda: R.choice([1.0, round(R.uniform(0.3, 1.5), 3)])
    c.update(mamba_d_ssm=heads * dim, mamba_d_head=R.choice(["auto", dim]), mamba_expand=2, mamba_rms_norm=R.random() < 0.6,
             mamba_norm_before_gate=R.random() < 0.5, projectors_bias=R.random() < 0.3, attention_bias=R.random() < 0.3,
             mlp_bias=R.random() < 0.3, lm_head_multiplier=scale(), embedding_multiplier=scale(), key_multiplier=scale(),
             attention_in_multiplier=scale(), attention_out_multiplier=scale(), ssm_in_multiplier=scale(), ssm_out_multiplier=scale(),
             mlp_multipliers=R.choice([None, [scale(), scale()]]), ssm_multipliers=R.choice([None, [scale() for _ in range(5)]]))
    if R.random() < 0.25:
        c.update(mamba_d_ssm=None, mamba_d_head="auto", mamba_n_heads=R.choice([1, 2]), mamba_n_groups=1)
    return c


def nemotron_h(R, llama, mixture):
    c = llama(R, "nemotron_h", ropes=("default",))
    for name in ("rope_parameters", "rope_theta", "rope_scaling", "rms_norm_eps", "num_hidden_layers", "hidden_act"):
        c.pop(name, None)
    heads = R.choice([2, 4, 6])
    others = ["E", "E", "-"] if mixture else ["-"]
    pattern = ["M", "*", R.choice(others)] + [R.choice(["M", "M", "*", *others]) for _ in range(R.choice([1, 2, 3]))]
    R.shuffle(pattern)
    if mixture:
        pattern[R.randrange(len(pattern))] = "E"
    kinds = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    if R.random() < 0.5:
        c["hybrid_override_pattern"], c["num_hidden_layers"] = "".join(pattern), len(pattern)
    else:
        c[R.choice(["layers_block_type", "layer_types"])] = [kinds[p] for p in pattern]
    c.update(head_dim=R.choice([6, 8, 14]), mamba_num_heads=heads, mamba_head_dim=R.choice([4, 6, 9]), n_groups=R.choice([1, 2, heads]),
             ssm_state_size=R.choice([4, 7, 16]), conv_kernel=R.choice([2, 3, 4]), use_conv_bias=R.random() < 0.7, use_bias=R.random() < 0.3,
             chunk_size=R.choice([4, 8, 32]), layer_norm_epsilon=R.choice([1e-5, 1e-3]), mlp_hidden_act=R.choice(["relu2", "relu2", "silu"]),
             mlp_bias=R.random() < 0.3, time_step_min=R.choice([0.001, 0.2]), expand=2)
    if mixture:
        groups = R.choice([1, 2])
        c.update(n_routed_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2]), moe_intermediate_size=R.choice([10, 12]),
                 moe_shared_expert_intermediate_size=R.choice([14, 20]), n_shared_experts=1, n_group=groups, topk_group=R.choice([1, groups]),
                 norm_topk_prob=R.random() < 0.7, routed_scaling_factor=R.choice([1.0, 2.5]), moe_latent_size=R.choice([None, 8]))
    return c


def recurrent_gemma(R, llama):
    c = llama(R, "recurrent_gemma", ropes=("default",), dims=(6, 8, 12))
    c["hidden_activation"] = c.pop("hidden_act", "gelu_pytorch_tanh")
    for name in ("max_position_embeddings", "head_dim"):
        c.pop(name, None)
    layers, heads = R.choice([2, 3, 4]), c["num_attention_heads"]
    c.update(num_hidden_layers=layers, attention_window_size=R.choice([4, 8, 30]), conv1d_width=R.choice([2, 3, 4]), logits_soft_cap=R.choice([5.0, 30.0]),
             lru_width=R.choice([None, heads * R.choice([5, 8])]), attention_bias=R.random() < 0.3)
    if R.random() < 0.7:
        c["block_types"] = ["attention" if kind == "full_attention" else kind for kind in kinds_of(R, R.choice([2, 3]), "recurrent")]
    else:
        c["num_hidden_layers"] = 3
    if R.random() < 0.5:
        (c["rope_parameters"] if "rope_parameters" in c else c)["partial_rotary_factor"] = R.choice([0.5, 1.0])
    return c


def zamba(R, llama):
    c = llama(R, "zamba", head_dim=False, ropes=("default",), dims=(4, 6, 8))
    for name in ("rope_theta", "rope_parameters"):
        c.pop(name, None)
    layers, expand = R.choice([4, 5, 6]), R.choice([1, 2])
    mixed = R.choice(["mamba", "linear_attention"])
    c.update(num_hidden_layers=layers, mamba_expand=expand, n_mamba_heads=R.choice([h for h in (1, 2, 2, 3, 4) if expand * c["hidden_size"] % h == 0]),
             mamba_d_state=R.choice([4, 7, 16]), mamba_d_conv=R.choice([2, 3, 4]), mamba_dt_rank=R.choice(["auto", 2, 5]), mamba_conv_bias=R.random() < 0.7,
             mamba_proj_bias=R.random() < 0.4, hidden_mamba_act=R.choice(["silu", "silu", "gelu"]), num_key_value_heads=c["num_attention_heads"] // R.choice([1, 1, 2 - c["num_attention_heads"] % 2]))
    if R.random() < 0.6:
        c["layers_block_type"] = R.choice([["hybrid", mixed], [mixed, "hybrid"]]) + [R.choice(["hybrid", mixed]) for _ in range(layers - 3)] + ["hybrid"]
    else:
        c.update(num_hidden_layers=max(layers, 5), attn_layer_period=2, attn_layer_offset=R.choice([0, 1]))
    if R.random() < 0.3:
        c["attention_head_dim"] = R.choice([4, 10])
    return c


def zamba2(R, llama):
    c = llama(R, "zamba2", head_dim=False, dims=(4, 6, 8))
    layers, blocks, expand = R.choice([4, 5, 6]), R.choice([1, 2, 2]), R.choice([1, 2])
    inner = expand * c["hidden_size"]
    heads = R.choice([h for h in (1, 2, 3, 4, 6) if inner % h == 0])
    mixed = R.choice(["mamba", "linear_attention"])
    kinds = [R.choice(["hybrid", "hybrid", mixed]) for _ in range(layers)]
    kinds[:2] = R.choice([["hybrid", mixed], [mixed, "hybrid"]])
    kinds[-1] = "hybrid"
    c.update(num_hidden_layers=layers, layers_block_type=kinds, num_mem_blocks=blocks, mamba_expand=expand, n_mamba_heads=heads,
             mamba_ngroups=R.choice([g for g in (1, 2, 3, heads) if heads % g == 0]), mamba_d_state=R.choice([4, 7, 16]), mamba_d_conv=R.choice([2, 3, 4]),
             chunk_size=R.choice([4, 8, 32]), time_step_min=R.choice([0.001, 0.2]), add_bias_linear=R.random() < 0.3, adapter_rank=R.choice([2, 5]),
             use_mem_rope=R.random() < 0.6, use_shared_attention_adapter=R.random() < 0.5)
    if c["use_shared_attention_adapter"]:
        c["num_key_value_heads"] = c["num_attention_heads"]
    return c


def hybrids(llama, wrap):
    """The makers, each with the seeds of the committed fixtures. llama and wrap are family_configs'."""
    return {
        "qwen3_next_act": (lambda R: dict(qwen3_next(R, llama), hidden_act=R.choice(["gelu", "relu2"])), [1]),
        "qwen3_5_act": (lambda R: dict(qwen3_5(R, llama, False), hidden_act=R.choice(["gelu_pytorch_tanh", "tanh"])), [1]),
        "olmo_hybrid": (lambda R: olmo_hybrid(R, llama), [1, 2, 3]),
        "qwen3_next": (lambda R: qwen3_next(R, llama), [1, 3]),  # 2 amplifies rounding by 500 at one position
        "qwen3_5_text": (lambda R: qwen3_5(R, llama, False), [1]),
        "qwen3_5_moe_text": (lambda R: qwen3_5(R, llama, True), [1]),
        "qwen3_5": (lambda R: qwen3_5_wrapped(R, llama, wrap, False), [1]),
        "qwen3_5_moe": (lambda R: qwen3_5_wrapped(R, llama, wrap, True), [1]),
        "lfm2": (lambda R: lfm2(R, llama, False), [1, 2]),
        "lfm2_moe": (lambda R: lfm2(R, llama, True), [1, 2]),
        "mamba2": (lambda R: mamba2(R, llama), [1, 2]),
        "granitemoehybrid": (lambda R: granitemoehybrid(R, llama), [1, 2, 3]),
        "bamba": (lambda R: bamba(R, llama), [1, 2, 3]),
        "recurrent_gemma": (lambda R: recurrent_gemma(R, llama), [1, 2]),
        "zamba": (lambda R: zamba(R, llama), [1, 2]),
        "zamba2": (lambda R: zamba2(R, llama), [4, 13, 14]),
        "falcon_h1": (lambda R: falcon_h1(R, llama), [1, 2, 3]),
        "nemotron_h": (lambda R: nemotron_h(R, llama, False), [1]),
        "nemotron_h_moe": (lambda R: nemotron_h(R, llama, True), [1, 2, 3]),
    }
