"""Configs of small models of families of late 2026, for make-family-fixtures.py.

LATE is the part of family_configs.FAMILIES for these families.
"""


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


def late(llama, gemma4, wrap):
    """The makers, each with the seeds of the committed fixtures. llama and gemma4 are family_configs'."""
    return {
        "flint": (lambda R: flint(R, llama), [1, 2]),
        "gemma4_unified_text": (lambda R: gemma4_unified_text(R, gemma4), [1]),
        "gemma4_unified": (lambda R: gemma4_unified(R, gemma4, wrap), [1]),
        "kolibri1": (lambda R: kolibri1(R, llama), [1, 2]),
        "laguna": (lambda R: laguna(R, llama), [1, 2, 3]),
        "lfm3": (lambda R: lfm3(R, llama), [1, 2]),
    }
