"""Makers of decoders with latent attention."""
from transformers import AutoConfig

from families.shapes import common, kinds, llama, partial, rope


def deepseek(R, model_type="deepseek_v3", v5=None):
    v5 = R.random() < 0.5 if v5 is None else v5
    c = common(R, model_type, v5, kv=False)
    groups = R.choice([1, 2])
    c.update(num_key_value_heads=c["num_attention_heads"], kv_lora_rank=12, q_lora_rank=R.choice([None, 10]), qk_rope_head_dim=8,
             qk_nope_head_dim=R.choice([6, 8]), v_head_dim=R.choice([6, 8]), n_routed_experts=8, num_experts_per_tok=R.choice([2, 3]),
             n_group=groups, topk_group=1, n_shared_experts=R.choice([1, 2]), moe_intermediate_size=10,
             first_k_dense_replace=R.choice([0, 1]), norm_topk_prob=R.random() < 0.5, routed_scaling_factor=R.choice([1.0, 2.5]),
             rms_norm_eps=1e-5, tie_word_embeddings=False)
    rope(R, c, v5, kinds=("default", "yarn"))
    return c


def glm4_moe_lite(R):
    c = deepseek(R, "glm4_moe_lite")
    del c["first_k_dense_replace"]
    if R.random() < 0.5:
        c["mlp_layer_types"] = ["sparse"] + [R.choice(["dense", "sparse"]) for _ in range(c["num_hidden_layers"] - 1)]
    return c


def sparse(R, model_type):
    """Attention to fewer positions than prompts have tokens."""
    c = deepseek(R, model_type)
    c.update(q_lora_rank=10, index_topk=R.choice([4, 6, 9]), index_n_heads=8, index_head_dim=R.choice([8, 12]))
    if model_type == "glm_moe_dsa":
        c.update(R.choice([dict(indexer_types=["full", "shared", "full", "shared"][:c["num_hidden_layers"]]),
                           dict(index_topk_freq=2, index_skip_topk_offset=1)]))
    return c


def deepseek_v2(R):
    c = deepseek(R, "deepseek_v2")
    del c["norm_topk_prob"]
    c.update(topk_method=R.choice(["greedy", "group_limited_greedy"]), n_group=R.choice([2, 4]), topk_group=2)
    return c


def sarvam_mla(R):
    c = deepseek(R, "sarvam_mla")
    if R.random() < 0.5:
        c.update(num_experts=c.pop("n_routed_experts"), num_shared_experts=c.pop("n_shared_experts"), head_dim=c["kv_lora_rank"] + c["qk_rope_head_dim"])
        if c["q_lora_rank"] is None:
            del c["q_lora_rank"]
    scaling = c.get("rope_scaling")
    if scaling:
        c["rope_scaling"] = dict(type="deepseek_yarn", beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0, **{k: v for k, v in scaling.items() if k not in ("type", "rope_type")})
    return c


def youtu(R):
    c = deepseek(R, "youtu")
    for name in ("n_routed_experts", "num_experts_per_tok", "n_group", "topk_group", "n_shared_experts", "moe_intermediate_size", "first_k_dense_replace",
                 "norm_topk_prob", "routed_scaling_factor"):
        del c[name]
    c.update(tie_word_embeddings=R.random() < 0.5, attention_bias=R.random() < 0.3)
    return c


def minicpm3(R):
    c = deepseek(R, "minicpm3")
    for name in ("n_routed_experts", "num_experts_per_tok", "n_group", "topk_group", "n_shared_experts", "moe_intermediate_size", "first_k_dense_replace",
                 "norm_topk_prob", "routed_scaling_factor"):
        del c[name]
    c.update(tie_word_embeddings=R.random() < 0.5, attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3, scale_emb=R.choice([12, 3.0]), scale_depth=R.choice([1.4, None, 2]),
             dim_model_base=R.choice([None, c["hidden_size"] // 2]))
    if R.random() < 0.5:
        c["v_head_dim"] = None
    return c


def axk1(R):
    c = deepseek(R, "axk1")
    c["q_lora_rank"] = 10
    if R.random() < 0.5:
        c["mlp_layer_types"] = ["sparse"] + [R.choice(["dense", "sparse"]) for _ in range(c["num_hidden_layers"] - 1)]
        del c["first_k_dense_replace"]
    else:
        c["moe_layer_freq"] = R.choice([1, 2])
    return c


def deepseek_v4(R):
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


def longcat_flash(R):
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


def mistral4(R):
    c = deepseek(R, "mistral4")
    for name in ("rope_parameters", "rope_theta", "rope_scaling"):
        c.pop(name, None)
    rope = dict(rope_theta=10000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=R.choice([4, 8, 10]), llama_4_scaling_beta=R.choice([0.1, 0.5]),
                **R.choice([dict(mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0, beta_slow=1.0), {}]))
    c["rope_parameters"] = rope  # transformers turns too many dimensions beside rope_scaling
    if R.random() < 0.3:
        c["rope_interleave"] = False
    return c


def hy_v4(R):
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


def axk2(R):
    c = sparse(R, "axk2")
    c.update(index_head_dim=R.choice([8, 12]), gated_norm_rank=R.choice([2, 3, 5]), num_experts_per_tok=2)
    for name in ("first_k_dense_replace", "n_group", "topk_group"):
        c.pop(name, None)
    if R.random() < 0.5:
        c.update(n_group=2, topk_group=1)
    if R.random() < 0.5:
        c["mlp_layer_types"] = kinds(R, c["num_hidden_layers"], "dense", "sparse")
    elif R.random() < 0.5:
        c.update(first_k_dense_replace=R.choice([0, 1]), moe_layer_freq=R.choice([1, 2]))
    return c


def dots3_note_text(R):
    """As published, or, of fresh models, as transformers saves it."""
    c = dots3_note_parts(R)
    return AutoConfig.for_model(**c).to_dict() if getattr(R, "wide", False) and R.random() < 0.4 else c


def dots3_note_parts(R):
    c = deepseek(R, "dots3_note_text", v5=True)
    n = R.choice([2, 3, 4])
    for name in ("rope_parameters", "rope_theta", "rope_scaling", "first_k_dense_replace", "topk_method"):
        c.pop(name, None)
    window = dict(num_attention_heads=R.choice([1, 2, 3]), q_lora_rank=R.choice([6, 8]), kv_lora_rank=R.choice([6, 8]), qk_nope_head_dim=R.choice([4, 6]), v_head_dim=R.choice([4, 6]))
    c.update({f"swa_{name}": v for name, v in window.items()}, swa_num_key_value_heads=window["num_attention_heads"], swa_head_dim=window["qk_nope_head_dim"] + 4, num_hidden_layers=n,
             q_lora_rank=10, head_dim=16, index_topk=R.choice([4, 6, 9]), index_n_heads=8, index_head_dim=R.choice([8, 12]), sliding_window=R.choice([3, 8]), routed_scaling_factor=R.choice([1.0, 2.5]),
             rms_norm_eps=R.choice([1e-5, 1e-3]))
    c["shared_experts_intermediate_size" if R.random() < 0.5 else "moe_shared_expert_intermediate_size"] = R.choice([10, 14])
    c["layer_types"] = (["full_attention", "sliding_attention"] + [R.choice(["full_attention", "sliding_attention"]) for _ in range(n)])[:n]
    if R.random() < 0.2:
        c["use_dsa"] = False
    if R.random() < 0.5:
        c.update(first_k_dense_replace=R.choice([0, 1]), moe_layer_freq=R.choice([1, [R.choice([0, 1]) for _ in range(n)]]))
    else:
        c["mlp_layer_types"] = (["sparse", "dense"] + [R.choice(["dense", "sparse"]) for _ in range(n)])[:n]
    if R.random() < 0.5:
        c.update(rope_theta=50000.0, swa_rope_theta=1000.0)
    if "use_dsa" not in c and R.random() < 0.3:
        c["rope_parameters"] = dict(indexed_attention=dict(rope_type="default", rope_theta=10000.0), sliding_attention=dict(rope_type="linear", rope_theta=1000.0, factor=2.0))
    return c


# The makers, each with the seeds of the committed fixtures.
MAKERS = {
    "axk1": (axk1, [1, 2]),
    "axk2": (axk2, [6, 15]),
    "deepseek_v2": (deepseek_v2, [1, 2]),
    "deepseek_v3": (deepseek, [1, 2]),
    "deepseek_v32": (lambda R: sparse(R, "deepseek_v32"), [1, 2]),
    "deepseek_v4": (deepseek_v4, [1, 5]),
    "dots3_note_text": (dots3_note_text, [1]),
    "glm4_moe_lite": (glm4_moe_lite, [1, 2]),
    "glm_moe_dsa": (lambda R: sparse(R, "glm_moe_dsa"), [1, 2]),
    "hy_v4": (hy_v4, [6, 7]),
    "longcat_flash": (longcat_flash, [1, 2, 3]),
    "minicpm3": (minicpm3, [1, 2]),
    "mistral4": (mistral4, [1, 2]),
    "sarvam_mla": (sarvam_mla, [1, 2]),
    "youtu": (youtu, [1]),
}
