"""Configs of small models of families of 2025 and 2026, and of older ones, for make-family-fixtures.py.

FURTHER is the part of family_configs.FAMILIES for these families.
"""
from plain_configs import mixture, partial


def kinds(R, n):
    """Types of n layers, both of them among the first two."""
    first = R.choice([["full_attention", "sliding_attention"], ["sliding_attention", "full_attention"]])
    return first + [R.choice(first) for _ in range(n - 2)]


def cwm(R, llama):
    c = llama(R, "cwm")
    c.update(sliding_window=8, mlp_bias=R.random() < 0.4)
    c.setdefault("head_dim", R.choice([6, 8, 14]))
    if R.random() < 0.6:
        c["layer_types"] = kinds(R, c["num_hidden_layers"])
    if R.random() < 0.3:
        for name in ("rope_parameters", "rope_theta", "rope_scaling"):
            c.pop(name, None)
    return c


def vaultgemma(R, llama):
    c = llama(R, "vaultgemma", head_dim=False)
    c.pop("hidden_act", None)
    c.update(head_dim=R.choice([6, 8, 14]), sliding_window=8, query_pre_attn_scalar=R.choice([8, 12]), attn_logit_softcapping=R.choice([None, 5.0]),
             final_logit_softcapping=R.choice([None, 8.0]), attention_bias=R.random() < 0.3)
    if R.random() < 0.4:
        c["layer_types"] = kinds(R, c["num_hidden_layers"])
    return c


def exaone(R, llama):
    c = llama(R, "exaone")
    c.update(attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3)
    if R.random() < 0.6:
        c.update(num_layers=c.pop("num_hidden_layers"), layer_norm_epsilon=c.pop("rms_norm_eps"), activation_function=c.pop("hidden_act", "silu"))
    return c


def multipliers(R, c):
    c.update(embedding_multiplier=R.choice([1.0, 6.0]), logits_scaling=R.choice([0.5, 2.0]), residual_multiplier=R.choice([0.3, 1.0]),
             attention_multiplier=R.choice([0.2, 0.5]), attention_bias=R.random() < 0.3)
    return c


def granitemoeshared(R, llama):
    c = multipliers(R, llama(R, "granitemoeshared", head_dim=False))
    c.update(num_local_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), shared_intermediate_size=R.choice([0, 12, 18]))
    return c


def granite_swa(R, llama, kind):
    """Windows, and a rope's base for each layer, or none."""
    c = multipliers(R, llama(R, kind, head_dim=kind == "granite_swa"))
    n = c["num_hidden_layers"]
    c["sliding_window"] = R.choice([4, 8])
    if R.random() < 0.6:
        c["layer_types"] = kinds(R, n)
    if R.random() < 0.7:
        c["layer_rope_theta"] = [R.choice([0, 10000, 50000.0, 300.0]) for _ in range(n)]
    if kind == "granite_swa":
        c["mlp_bias"] = R.random() < 0.3
    else:
        c.update(num_local_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), shared_intermediate_size=R.choice([0, 12, 18]))
    return c


def hyperclovax(R, llama):
    c = multipliers(R, llama(R, "hyperclovax"))
    c.update(mlp_bias=R.random() < 0.3, use_post_norm=R.random() < 0.7)
    if R.random() < 0.4:
        c["attention_multiplier"] = None
    return c


def jais2(R, llama):
    c = llama(R, "jais2")
    c["layer_norm_eps"] = c.pop("rms_norm_eps")
    c.update(attention_bias=R.random() < 0.7, mlp_bias=R.random() < 0.7)
    return c


def sarvam_mla(R, deepseek):
    c = deepseek(R, "sarvam_mla")
    if R.random() < 0.5:
        c.update(num_experts=c.pop("n_routed_experts"), num_shared_experts=c.pop("n_shared_experts"), head_dim=c["kv_lora_rank"] + c["qk_rope_head_dim"])
        if c["q_lora_rank"] is None:
            del c["q_lora_rank"]
    scaling = c.get("rope_scaling")
    if scaling:
        c["rope_scaling"] = dict(type="deepseek_yarn", beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0, **{k: v for k, v in scaling.items() if k not in ("type", "rope_type")})
    return c


def sarvam_moe(R, llama):
    c = mixture(R, llama(R, "sarvam_moe"), "num_experts")
    c.update(num_shared_experts=R.choice([1, 2]), first_k_dense_replace=R.choice([0, 1]), use_qk_norm=R.random() < 0.7,
             head_dim=R.choice([6, 8, 14]))
    c["use_qkv_bias" if R.random() < 0.5 else "attention_bias"] = R.random() < 0.4
    return c


def youtu(R, deepseek):
    c = deepseek(R, "youtu")
    for name in ("n_routed_experts", "num_experts_per_tok", "n_group", "topk_group", "n_shared_experts", "moe_intermediate_size", "first_k_dense_replace",
                 "norm_topk_prob", "routed_scaling_factor"):
        del c[name]
    c.update(tie_word_embeddings=R.random() < 0.5, attention_bias=R.random() < 0.3)
    return c


def minicpm3(R, deepseek):
    c = deepseek(R, "minicpm3")
    for name in ("n_routed_experts", "num_experts_per_tok", "n_group", "topk_group", "n_shared_experts", "moe_intermediate_size", "first_k_dense_replace",
                 "norm_topk_prob", "routed_scaling_factor"):
        del c[name]
    c.update(tie_word_embeddings=R.random() < 0.5, attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3, scale_emb=R.choice([12, 3.0]), scale_depth=R.choice([1.4, None, 2]),
             dim_model_base=R.choice([None, c["hidden_size"] // 2]))
    if R.random() < 0.5:
        c["v_head_dim"] = None
    return c


def axk1(R, deepseek):
    c = deepseek(R, "axk1")
    c["q_lora_rank"] = 10
    if R.random() < 0.5:
        c["mlp_layer_types"] = ["sparse"] + [R.choice(["dense", "sparse"]) for _ in range(c["num_hidden_layers"] - 1)]
        del c["first_k_dense_replace"]
    else:
        c["moe_layer_freq"] = R.choice([1, 2])
    return c


def cohere2_moe(R, llama):
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
        c["layer_types"] = kinds(R, n)
        c["mlp_layer_types"] = [R.choice(["dense", "sparse"]), "sparse"] + [R.choice(["dense", "sparse"]) for _ in range(n - 2)]
    else:
        c.update(first_k_dense_replace=R.choice([0, 1]), sliding_window_pattern=2)
    return c


def typed_ropes(R, c, full, local):
    """Ropes by type of layers, as transformers 5 has them."""
    for name in ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"):
        c.pop(name, None)
    if R.random() < 0.8:
        c["rope_parameters"] = dict(full_attention=full, sliding_attention=local)
    return c


def mellum(R, llama):
    c = llama(R, "mellum")
    c.update(num_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), moe_intermediate_size=R.choice([10, 12]), norm_topk_prob=R.random() < 0.6,
             head_dim=R.choice([6, 8, 14]), sliding_window=8, attention_bias=R.random() < 0.3)
    if R.random() < 0.8:
        c["layer_types"] = kinds(R, c["num_hidden_layers"])
    if R.random() < 0.5:
        c["mlp_layer_types"] = ["sparse"] + [R.choice(["dense", "sparse"]) for _ in range(c["num_hidden_layers"] - 1)]
    return typed_ropes(R, c, dict(rope_type=R.choice(["default", "yarn"]), rope_theta=50000.0, factor=4.0, original_max_position_embeddings=32),
                       dict(rope_type="default", rope_theta=1000.0))


def bloom(R, llama):
    heads = R.choice([2, 3, 4, 6])
    c = dict(model_type="bloom", vocab_size=llama(R, "bloom")["vocab_size"], hidden_size=heads * R.choice([6, 8, 14]), n_layer=R.choice([2, 3]), n_head=heads,
             layer_norm_epsilon=R.choice([1e-5, 1e-3]), tie_word_embeddings=R.random() < 0.7, dtype=R.choice(["float32", "bfloat16", "float16"]), bos_token_id=1, eos_token_id=2, pad_token_id=0)
    if R.random() < 0.5:
        c.update(n_embed=c.pop("hidden_size"), num_hidden_layers=c.pop("n_layer"), num_attention_heads=c.pop("n_head"))
    return c


def mpt(R, llama, clips=False):
    heads = R.choice([2, 3, 4, 5])
    c = dict(model_type="mpt", vocab_size=llama(R, "mpt")["vocab_size"], d_model=heads * R.choice([6, 8, 14]), n_layers=R.choice([2, 3]), n_heads=heads,
             max_seq_len=128, layer_norm_epsilon=R.choice([1e-5, 1e-3]), tie_word_embeddings=R.random() < 0.7,
             attn_config=dict(alibi=True, alibi_bias_max=8, attn_impl="torch", clip_qkv=None, softmax_scale=R.choice([None, None, 0.2])),
             learned_pos_emb=R.random() < 0.5, dtype=R.choice(["float32", "bfloat16", "float16"]), bos_token_id=1, eos_token_id=2, pad_token_id=0)
    if clips:
        c["attn_config"]["clip_qkv"] = R.choice([0.5, 1.0, 2.0])
    elif R.random() < 0.3:
        del c["attn_config"]
    return c


def biogpt(R, llama):
    c = llama(R, "biogpt", head_dim=False)
    for name in ("rms_norm_eps", "num_key_value_heads", "rope_parameters", "rope_theta", "rope_scaling", "hidden_act"):
        c.pop(name, None)
    c.update(hidden_act=R.choice(["gelu", "gelu", "relu"]), scale_embedding=R.random() < 0.7, layer_norm_eps=R.choice([1e-12, 1e-3]),
             tie_word_embeddings=R.random() < 0.7, pad_token_id=1, bos_token_id=0)
    return c


def xglm(R, llama):
    heads = R.choice([2, 3, 4])
    return dict(model_type="xglm", vocab_size=R.choice([60, 64, 71]), d_model=heads * R.choice([6, 8, 14]), ffn_dim=R.choice([20, 24, 36]), num_layers=R.choice([2, 3]),
                attention_heads=heads, max_position_embeddings=128, activation_function=R.choice(["gelu", "gelu", "relu"]), scale_embedding=R.random() < 0.7,
                tie_word_embeddings=R.random() < 0.7, dtype=R.choice(["float32", "bfloat16", "float16"]), bos_token_id=0, eos_token_id=2, pad_token_id=1)


def nanochat(R, llama):
    c = llama(R, "nanochat")
    c.update(final_logit_softcapping=R.choice([15.0, 4.0]), attention_bias=R.random() < 0.3)
    return c


def bitnet(R, llama):
    c = llama(R, "bitnet", head_dim=False)
    c["attention_bias"] = R.random() < 0.3
    return c


def afmoe(R, llama):
    c = llama(R, "afmoe")
    c.update(head_dim=R.choice([6, 8, 14]), num_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), moe_intermediate_size=R.choice([10, 12]),
             num_shared_experts=R.choice([1, 2]), num_dense_layers=R.choice([0, 1]), route_scale=R.choice([1.0, 2.5]), mup_enabled=R.random() < 0.6,
             attention_bias=R.random() < 0.3, sliding_window=8)
    if R.random() < 0.6:
        c["layer_types"] = kinds(R, c["num_hidden_layers"])
    else:
        c["global_attn_every_n_layers"] = 2
    return c


def deepseek_v4(R, llama):
    c = llama(R, "deepseek_v4", head_dim=False, ropes=("default",))
    for name in ("rope_parameters", "rope_theta", "rope_scaling", "hidden_act", "intermediate_size"):
        c.pop(name, None)
    v5 = "dtype" in c
    layers = c["num_hidden_layers"] = R.choice([3, 4])
    heads, head, rope = R.choice([2, 4, 6]), R.choice([8, 12, 16]), R.choice([2, 4, 8])
    experts = R.choice([4, 6])
    c.update(num_attention_heads=heads, num_key_value_heads=1, head_dim=head, q_lora_rank=R.choice([6, 10]), o_groups=R.choice([1, 2]),
             o_lora_rank=R.choice([4, 6]), sliding_window=R.choice([3, 5, 8]), index_n_heads=R.choice([2, 4, 8]), index_head_dim=R.choice([8, 12]),
             index_topk=R.choice([1, 2, 3]), hc_mult=R.choice([2, 3, 4]), hc_sinkhorn_iters=R.choice([1, 3, 20]), hc_eps=R.choice([1e-6, 1e-2]),
             moe_intermediate_size=R.choice([10, 12]), n_routed_experts=experts, num_experts_per_tok=R.choice([1, 2, 3]), n_shared_experts=1,
             routed_scaling_factor=R.choice([1.0, 1.5, 2.5]), swiglu_limit=R.choice([0.4, 1.0, 10.0]), mlp_bias=R.random() < 0.3,
             scoring_func=R.choice(["sqrtsoftplus", "sqrtsoftplus", "sigmoid"]), tie_word_embeddings=False)
    kinds = ["compressed_sparse_attention", "heavily_compressed_attention", "sliding_attention"]
    R.shuffle(kinds)
    kinds += ["compressed_sparse_attention"] * (layers - 3)
    rates = dict(compressed_sparse_attention=R.choice([2, 3, 4]), heavily_compressed_attention=R.choice([4, 5, 8]))
    yarn = dict(factor=4.0, original_max_position_embeddings=32, beta_fast=R.choice([4, 32]), beta_slow=1) if R.random() < 0.7 else None
    hashed = R.choice([0, 1, 2])
    if v5:
        partial = rope / head
        c.update(layer_types=kinds, compress_rates=rates, mlp_layer_types=["hash_moe"] * hashed + ["moe"] * (layers - hashed))
        c["rope_parameters"] = dict(
            main=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=partial),
            compress=dict(rope_theta=40000.0, partial_rotary_factor=partial, **(dict(yarn, rope_type="yarn", attention_factor=R.choice([1.0, 1.2])) if yarn else dict(rope_type="default"))))
        c["partial_rotary_factor"] = partial
    else:
        ratio = dict(compressed_sparse_attention=4, heavily_compressed_attention=128, sliding_attention=0)
        c.update(compress_ratios=[ratio[k] for k in kinds], num_hash_layers=hashed, qk_rope_head_dim=rope, rope_theta=10000.0, compress_rope_theta=40000.0,
                 compress_rate_csa=rates["compressed_sparse_attention"], compress_rate_hca=rates["heavily_compressed_attention"])
        if yarn:
            c["rope_scaling"] = dict(yarn, type="yarn")
    return c


def gemma3n_text(R, llama):
    c = llama(R, "gemma3n_text", head_dim=False)
    for name in ("hidden_act", "rope_parameters", "rope_theta", "rope_scaling"):
        c.pop(name, None)
    n = R.choice([4, 5, 6])
    inner = R.choice([20, 36])
    c.update(num_hidden_layers=n, head_dim=R.choice([8, 14, 16]), sliding_window=8, rms_norm_eps=1e-5, attention_bias=R.random() < 0.3, tie_word_embeddings=R.random() < 0.7,
             intermediate_size=R.choice([inner, [inner + 2 * (i % 3) for i in range(n)]]), final_logit_softcapping=R.choice([8.0, 30.0]),
             hidden_activation=R.choice(["gelu_pytorch_tanh", "gelu_pytorch_tanh", "silu"]), layer_types=kinds(R, n), hidden_size_per_layer_input=R.choice([4, 6]),
             vocab_size_per_layer_input=c["vocab_size"] - R.choice([0, 0, 9]), num_kv_shared_layers=R.choice([0, 1, 2, n - 2]), laurel_rank=R.choice([3, 6]),
             altup_num_inputs=R.choice([1, 2, 3, 4, 4]), altup_correct_scale=R.random() < 0.7,
             activation_sparsity_pattern=[R.choice([0.0, 0.3, 0.5, 0.95]) for _ in range(n)])
    c["altup_active_idx"] = R.choice([0, 0, c["altup_num_inputs"] - 1])
    if R.random() < 0.5:
        c["rope_parameters"] = dict(full_attention=dict(rope_type=R.choice(["default", "linear"]), rope_theta=R.choice([5000.0, 50000.0]), factor=2.0),
                                    sliding_attention=dict(rope_type="default", rope_theta=1000.0))
    elif R.random() < 0.5:
        c.update(rope_theta=50000.0, rope_local_base_freq=1000.0)
    return c


def gemma3n(R, llama, wrap):
    """The text of a model of four kinds of inputs. Its vision tower needs timm and torchvision."""
    t = gemma3n_text(R, llama)
    tie = dict(tie_word_embeddings=t.pop("tie_word_embeddings"))
    audio = dict(hidden_size=8, input_feat_size=16, vocab_size=4, vocab_offset=1008, conf_num_attention_heads=2, conf_num_hidden_layers=1, sscp_conv_channel_size=[2, 2])
    vision = dict(model_type="gemma3n_vision", architecture="mobilenetv3_small_050", hidden_size=8, vocab_size=4, vocab_offset=1000)
    return wrap("gemma3n", t, vision, True, audio_config=audio, **tie)


def further(llama, deepseek, wrap):
    """The makers, each with the seeds of the committed fixtures. llama and deepseek are family_configs'."""
    return {
        "cwm": (lambda R: cwm(R, llama), [1, 2]),
        "deepseek_v4": (lambda R: deepseek_v4(R, llama), [1, 5]),
        "gemma3n_text": (lambda R: gemma3n_text(R, llama), [1, 2, 3]),
        "gemma3n": (lambda R: gemma3n(R, llama, wrap), [1]),
        "vaultgemma": (lambda R: vaultgemma(R, llama), [1]),
        "exaone": (lambda R: exaone(R, llama), [1, 2]),
        "granitemoeshared": (lambda R: granitemoeshared(R, llama), [1, 2]),
        "granite_swa": (lambda R: granite_swa(R, llama, "granite_swa"), [1, 2]),
        "granitemoe_swa": (lambda R: granite_swa(R, llama, "granitemoe_swa"), [1, 2]),
        "hyperclovax": (lambda R: hyperclovax(R, llama), [1, 2]),
        "jais2": (lambda R: jais2(R, llama), [1, 2]),
        "sarvam_mla": (lambda R: sarvam_mla(R, deepseek), [1, 2]),
        "sarvam_moe": (lambda R: sarvam_moe(R, llama), [1, 2]),
        "minicpm3": (lambda R: minicpm3(R, deepseek), [1, 2]),
        "youtu": (lambda R: youtu(R, deepseek), [1]),
        "axk1": (lambda R: axk1(R, deepseek), [1, 2]),
        "cohere2_moe": (lambda R: cohere2_moe(R, llama), [1, 2, 3]),
        "nanochat": (lambda R: nanochat(R, llama), [1, 2]),
        "biogpt": (lambda R: biogpt(R, llama), [1, 2]),
        "xglm": (lambda R: xglm(R, llama), [1, 2]),
        "mpt": (lambda R: mpt(R, llama), [1, 5, 7]),
        "mpt_clip": (lambda R: mpt(R, llama, True), [5]),
        "bloom": (lambda R: bloom(R, llama), [1, 2, 3]),
        "bitnet": (lambda R: bitnet(R, llama), [1, 2]),
        "afmoe": (lambda R: afmoe(R, llama), [1, 2]),
        "mellum": (lambda R: mellum(R, llama), [1, 2]),
    }
