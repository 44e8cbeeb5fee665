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


def hybrids(llama, wrap):
    """The makers, each with the seeds of the committed fixtures. llama and wrap are family_configs'."""
    return {
        "qwen3_next": (lambda R: qwen3_next(R, llama), [1, 2]),
        "qwen3_5_text": (lambda R: qwen3_5(R, llama, False), [1]),
        "qwen3_5_moe_text": (lambda R: qwen3_5(R, llama, True), [1]),
        "qwen3_5": (lambda R: qwen3_5_wrapped(R, llama, wrap, False), [1]),
        "qwen3_5_moe": (lambda R: qwen3_5_wrapped(R, llama, wrap, True), [1]),
        "lfm2": (lambda R: lfm2(R, llama, False), [1, 2]),
        "lfm2_moe": (lambda R: lfm2(R, llama, True), [1, 2]),
    }
