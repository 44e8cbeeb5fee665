"""Makers of decoders whose layers have states: recurrences, convolutions, linear attention."""
from families.latent import deepseek
from families.shapes import common, kinds, llama, mixture, shared_and_routed, step_limit


def state_kinds(R, n, state):
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
        c["layer_types"] = state_kinds(R, c["num_hidden_layers"], "linear_attention")
    else:
        c["full_attention_interval"] = R.choice([2, 3])
    if R.random() < 0.5:
        (c["rope_parameters"] if "rope_parameters" in c else c)["partial_rotary_factor"] = R.choice([0.5, 1.0])
    return c


def shared_experts(R, c, name="num_experts"):
    c.update({name: R.choice([4, 6])}, num_experts_per_tok=R.choice([1, 2, 3]), moe_intermediate_size=R.choice([10, 12]),
             shared_expert_intermediate_size=R.choice([14, 20]))
    return c


def olmo_hybrid(R):
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


def qwen3_next(R):
    c = shared_experts(R, delta_nets(R, llama(R, "qwen3_next", ropes=("default",))))
    c.update(norm_topk_prob=R.random() < 0.5, decoder_sparse_step=R.choice([1, 1, 2]), mlp_only_layers=R.choice([[], [0]]))
    return c


def qwen3_5(R, moe):
    c = delta_nets(R, llama(R, "qwen3_5_moe_text" if moe else "qwen3_5_text", ropes=("default",)))
    if moe:
        shared_experts(R, c)
        c.pop("intermediate_size")
    return c


def lfm2(R, moe):
    c = llama(R, "lfm2_moe" if moe else "lfm2", head_dim=False, ropes=("default",))
    c["norm_eps"] = c.pop("rms_norm_eps")
    c.pop("hidden_act", None)
    c.update(num_hidden_layers=R.choice([3, 4, 5]), conv_L_cache=R.choice([2, 3, 4]), conv_bias=R.random() < 0.4)
    kinds = state_kinds(R, c["num_hidden_layers"], "conv")
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


def mamba2(R):
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


def granitemoehybrid(R):
    c = llama(R, "granitemoehybrid", head_dim=False, ropes=("default",))
    layers, expand = R.choice([2, 3, 4]), R.choice([1, 2])
    inner = expand * c["hidden_size"]
    mixers(R, c, R.choice([h for h in (1, 2, 3, 4, 6) if inner % h == 0]))
    names = R.choice([("attention", "mamba"), ("full_attention", "linear_attention")])
    kinds = [names[0] if kind == "full_attention" else names[1] for kind in state_kinds(R, layers, "mamba")]
    c.update(num_hidden_layers=layers, mamba_expand=expand, mamba_d_head=R.choice(["auto", inner // c["mamba_n_heads"]]),
             shared_intermediate_size=R.choice([12, 20]), num_local_experts=R.choice([0, 4, 6]), num_experts_per_tok=R.choice([1, 2, 3]),
             attention_bias=R.random() < 0.3, embedding_multiplier=R.choice([1.0, 6.0]), logits_scaling=R.choice([0.5, 2.0]),
             residual_multiplier=R.choice([0.3, 1.0]), attention_multiplier=R.choice([0.2, 0.5]),
             position_embedding_type=R.choice(["rope", "nope", None]), **{R.choice(["layer_types", "layers_block_type"]): kinds})
    return c


def bamba(R):
    c = llama(R, "bamba", head_dim=False, dims=(8, 12, 16))
    layers, expand = R.choice([2, 3, 4]), R.choice([1, 2])
    inner = expand * c["hidden_size"]
    mixers(R, c, R.choice([h for h in (1, 2, 3, 4, 6) if inner % h == 0]))
    kinds = state_kinds(R, layers, "mamba")
    c.update(num_hidden_layers=layers, mamba_expand=expand, mamba_d_head=R.choice(["auto", inner // c["mamba_n_heads"]]),
             attn_layer_indices=[i for i, kind in enumerate(kinds) if kind != "mamba"], attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3)
    return c


def falcon_h1(R):
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


def recurrent_gemma(R):
    c = llama(R, "recurrent_gemma", ropes=("default",), dims=(6, 8, 12))
    c["hidden_activation"] = c.pop("hidden_act", "gelu_pytorch_tanh")
    for name in ("max_position_embeddings", "head_dim"):
        c.pop(name, None)
    layers, heads = R.choice([2, 3, 4]), c["num_attention_heads"]
    c.update(num_hidden_layers=layers, attention_window_size=R.choice([4, 8, 30]), conv1d_width=R.choice([2, 3, 4]), logits_soft_cap=R.choice([5.0, 30.0]),
             lru_width=R.choice([None, heads * R.choice([5, 8])]), attention_bias=R.random() < 0.3)
    if R.random() < 0.7:
        c["block_types"] = ["attention" if kind == "full_attention" else kind for kind in state_kinds(R, R.choice([2, 3]), "recurrent")]
    else:
        c["num_hidden_layers"] = 3
    if R.random() < 0.5:
        (c["rope_parameters"] if "rope_parameters" in c else c)["partial_rotary_factor"] = R.choice([0.5, 1.0])
    return c


def zamba(R):
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


def zamba2(R):
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


def lara_mini(R):
    c = shared_and_routed(R, llama(R, "lara_mini", dims=(6, 8)))
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


def lfm3(R):
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


def kimi_delta(R, model_type):
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


def kimi_linear(R):
    c = kimi_delta(R, "kimi_linear")
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


def bailing_hybrid(R):
    c = kimi_delta(R, "bailing_hybrid")
    c.update(head_dim=R.choice([4, 6, 8, 16]), short_conv_kernel_size=R.choice([2, 3, 4]), kda_safe_gate=R.random() < 0.7, num_nextn_predict_layers=0)
    if c["kda_safe_gate"] and R.random() < 0.5:
        c["kda_lower_bound"] = R.choice([-1.0, -2.5])
    if "layer_types" not in c:
        c["layer_group_size"] = R.choice([2, 3])
    return c


def mamba(R, model_type):
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


def jamba(R):
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


def minimax(R):
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


def qwen4_exp_text(R):
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


def rwkv(R):
    hidden = R.choice([12, 16, 40, 72] if getattr(R, "wide", False) else [12, 16])
    c = dict(model_type="rwkv", vocab_size=R.choice([60, 64, 71]), hidden_size=hidden, num_hidden_layers=R.choice([2, 3]), layer_norm_epsilon=R.choice([1e-5, 1e-3]),
             rescale_every=R.choice([6, 1, 2, 0]), tie_word_embeddings=R.random() < 0.5, bos_token_id=1, eos_token_id=2,
             **{R.choice(["dtype", "torch_dtype"]): R.choice(["bfloat16", "float16"])})
    if R.random() < 0.7:
        c["intermediate_size"] = R.choice([20, 24, 36])
    if R.random() < 0.3:
        c["attention_hidden_size"] = hidden
    return c


def inkling_text(R):
    v5 = R.random() < 0.5
    c = common(R, "inkling_text", v5)
    n, wide = R.choice([2, 3, 4]), getattr(R, "wide", False)
    c.update(num_hidden_layers=n, head_dim=R.choice([6, 8, 12]), swa_head_dim=R.choice([6, 8, 10]), d_rel=R.choice([2, 4, 6]), rel_extent=R.choice([4, 9, 40]), rms_norm_eps=R.choice([1e-5, 1e-3]),
             n_routed_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), n_shared_experts=R.choice([1, 2, 3] if wide else [1, 2]), route_scale=R.choice([1.0, 2.5]),
             logits_mup_width_multiplier=R.choice([0.5, 2.0]))
    keys = R.choice([1, 2])
    c.update(swa_num_key_value_heads=keys, swa_num_attention_heads=keys * R.choice([1, 2, 3]))
    c["sliding_window_size" if R.random() < 0.5 else "sliding_window"] = R.choice([3, 5, 8])
    c["conv_kernel_size" if v5 or R.random() < 0.5 else "sconv_kernel_size"] = R.choice([2, 3, 4])
    if R.random() < 0.5:
        c.update(log_scaling_n_floor=R.choice([3, 8]), log_scaling_alpha=R.choice([0.1, 0.6]))
    if R.random() < 0.5:
        c["unpadded_vocab_size"] = R.choice([50, 57])
    local, dense, inner = [i for i in range(n) if R.random() < 0.5], R.choice([0, 1, 2]), R.choice([10, 12])
    if v5:  # as transformers saves it
        c.update(layer_types=["hybrid_sliding" if i in local else "hybrid" for i in range(n)], mlp_layer_types=["dense" if i < dense else "sparse" for i in range(n)], moe_intermediate_size=inner)
        return c
    c.update(dense_mlp_idx=dense, dense_intermediate_size=c.pop("intermediate_size"), intermediate_size=inner)
    if R.random() < 0.8:
        c["local_layer_ids"] = local
    return c


# The makers, each with the seeds of the committed fixtures.
MAKERS = {
    "bailing_hybrid": (bailing_hybrid, [1, 2, 3]),
    "bamba": (bamba, [1, 2, 3]),
    "falcon_h1": (falcon_h1, [1, 2, 3]),
    "falcon_mamba": (lambda R: mamba(R, "falcon_mamba"), [1, 2]),
    "granitemoehybrid": (granitemoehybrid, [1, 2, 3]),
    "inkling_text": (inkling_text, [11, 24]),
    "jamba": (jamba, [1, 3, 21]),
    "kimi_linear": (kimi_linear, [1, 2, 3]),
    "lara_mini": (lara_mini, [1, 2]),
    "lfm2": (lambda R: lfm2(R, False), [1, 2]),
    "lfm2_moe": (lambda R: lfm2(R, True), [1, 2]),
    "lfm3": (lfm3, [1, 2]),
    "mamba": (lambda R: mamba(R, "mamba"), [1, 2]),
    "mamba2": (mamba2, [1, 2]),
    "minimax": (minimax, [1, 2]),
    "nemotron_h": (lambda R: nemotron_h(R, llama, False), [1]),
    "nemotron_h_moe": (lambda R: nemotron_h(R, llama, True), [1, 2, 3]),
    "olmo_hybrid": (olmo_hybrid, [1, 2, 3]),
    "qwen3_5_act": (lambda R: dict(qwen3_5(R, False), hidden_act=R.choice(["gelu_pytorch_tanh", "tanh"])), [1]),
    "qwen3_5_moe_text": (lambda R: qwen3_5(R, True), [1]),
    "qwen3_5_text": (lambda R: qwen3_5(R, False), [1]),
    "qwen3_next": (qwen3_next, [1, 3]),  # 2 amplifies rounding by 500 at one position
    "qwen3_next_act": (lambda R: dict(qwen3_next(R), hidden_act=R.choice(["gelu", "relu2"])), [1]),
    "qwen4_exp_text": (qwen4_exp_text, [1]),
    "recurrent_gemma": (recurrent_gemma, [1, 2]),
    "rwkv": (rwkv, [1, 2]),
    "zamba": (zamba, [1, 2]),
    "zamba2": (zamba2, [4, 13, 14]),
}
