"""Configs of small models of each family, for make-family-fixtures.py.

A maker draws shapes and options from a random.Random and returns the contents of a config.json.
FAMILIES names the makers, each with the seeds of the committed fixtures.
"""
from further_configs import further
from image_configs import images
from late_configs import late, mistral4
from latest_configs import latest
from newest_configs import MANY_PARTS, newest
from hybrid_configs import hybrids
from plain_configs import plains

SCALINGS = {
    "linear": dict(factor=2.5),
    "dynamic": dict(factor=2.0),
    "yarn": dict(factor=4.0, original_max_position_embeddings=32),
    "llama3": dict(factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32),
}


def common(R, model_type, v5, heads=None, kv=True, dims=(6, 8, 10, 12, 16)):
    """Sizes that decoders share."""
    wide = getattr(R, "wide", False)
    heads = heads or R.choice([1, 2, 3, 4, 5, 7] if wide else [2, 3, 4])
    dim = R.choice(dims)
    c = dict(model_type=model_type, vocab_size=R.choice([60, 64, 71]), hidden_size=heads * dim,
             intermediate_size=R.choice([20, 24, 36]), num_hidden_layers=R.choice([2, 3]), num_attention_heads=heads,
             max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    if kv:
        c["num_key_value_heads"] = R.choice([k for k in range(1, 8 if wide else 5) if heads % k == 0])
    c["dtype" if v5 else "torch_dtype"] = R.choice(["bfloat16", "float16"])
    return c


def rope(R, c, v5, kinds=("default", "default", "linear", "yarn", "llama3"), theta=(10000.0, 50000.0), **more):
    """A rotary embedding, in one of the two forms. more are fields of the parameters."""
    kind = R.choice(kinds)
    scaling = dict(SCALINGS.get(kind, {}))
    base = R.choice(theta)
    if v5:
        c["rope_parameters"] = dict(rope_type=kind, rope_theta=base, **scaling, **more)
    else:
        c["rope_theta"] = base
        c["rope_scaling"] = None if kind == "default" else {R.choice(["type", "rope_type"]): kind, **scaling}
        c.update(more)


def llama(R, model_type="llama", head_dim=True, ropes=("default", "default", "linear", "yarn", "llama3"), **kwargs):
    v5 = R.random() < 0.5
    c = common(R, model_type, v5, **kwargs)
    c["rms_norm_eps"] = R.choice([1e-5, 1e-3])
    if head_dim and R.random() < 0.5:
        c["head_dim"] = R.choice([6, 8, 14])
    c["tie_word_embeddings"] = R.random() < 0.5
    if R.random() < 0.3:
        c["hidden_act"] = R.choice(["gelu", "gelu_pytorch_tanh", "relu"])
    rope(R, c, v5, ropes)
    return c


# Wrappers: the text model within a model of images.

CLIP = dict(model_type="clip_vision_model", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
            num_attention_heads=2, image_size=8, patch_size=4, projection_dim=8)
SIGLIP = dict(CLIP, model_type="siglip_vision_model")
PIXTRAL = dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
               head_dim=4, image_size=8, patch_size=4)
QWEN_VISION = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4, spatial_merge_size=2,
                   temporal_patch_size=1, window_size=8, fullatt_block_indexes=[0])


def wrap(model_type, text, vision, v5, **more):
    """Lifts what the whole config decides out of the text's."""
    c = dict(model_type=model_type, text_config=text, vision_config=dict(vision), **more)
    field = "dtype" if "dtype" in text else "torch_dtype"
    c[field] = text[field]
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        c[name] = text[name]
    return c


def untied(text, R, key="tie_word_embeddings"):
    return {key: text.pop(key, R.random() < 0.5)}


def llava(R, model_type="llava", text="llama", vision=CLIP, **more):
    t = llama(R, text)
    tie = untied(t, R)
    if tie["tie_word_embeddings"] and model_type == "llava" and R.random() < 0.5:
        t.update(tie)  # LLaVA reads the field there as well
        tie = {}
    return wrap(model_type, t, vision, "dtype" in t, image_token_index=5, **tie, **more)


def llava_next(R):
    return llava(R, "llava_next", R.choice(["llama", "mistral"]), image_grid_pinpoints=[[8, 16]])


def mistral3(R):
    t = llama(R, "mistral")
    t["sliding_window"] = R.choice([None, 8])
    return wrap("mistral3", t, PIXTRAL, "dtype" in t, image_token_index=5, spatial_merge_size=2, **untied(t, R))


def internvl(R):
    kind = R.choice(["qwen2", "qwen3", "llama"])
    t = llama(R, kind, head_dim=kind != "qwen2")
    vision = dict(model_type="internvl_vision", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                  num_attention_heads=2, image_size=[8, 8], patch_size=[4, 4])
    return wrap("internvl", t, vision, "dtype" in t, image_token_id=5, **untied(t, R))


def cohere2(R):
    v5 = R.random() < 0.5
    c = common(R, "cohere2", v5)
    c.update(num_hidden_layers=R.choice([3, 4]), layer_norm_eps=R.choice([1e-5, 1e-3]), logit_scale=R.choice([0.25, 0.5]),
             attention_bias=R.random() < 0.5, tie_word_embeddings=R.random() < 0.5, sliding_window=8)
    if R.random() < 0.5:
        c["layer_types"] = ["full_attention", "sliding_attention"] + \
            [R.choice(["sliding_attention", "full_attention"]) for _ in range(c["num_hidden_layers"] - 2)]
    else:
        c["sliding_window_pattern"] = R.choice([2, 3])
    rope(R, c, v5)
    return c


def cohere_vision(R, model_type):
    t = cohere2(R)
    return wrap(model_type, t, SIGLIP, "dtype" in t, downsample_factor=1, **untied(t, R))


def idefics3(R, model_type="idefics3"):
    t = llama(R, "llama")
    vision = dict(model_type=model_type + "_vision", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                  num_attention_heads=2, image_size=8, patch_size=4)
    return wrap(model_type, t, vision, "dtype" in t, image_token_id=5, scale_factor=2, **untied(t, R))


def llava_onevision(R):
    t = llama(R, "qwen2", head_dim=False)
    return wrap("llava_onevision", t, SIGLIP, "dtype" in t, image_token_index=5, image_grid_pinpoints=[[8, 16]], **untied(t, R))


def gemma3_text(R):
    v5 = R.random() < 0.5
    c = common(R, "gemma3_text", v5)
    c.update(num_hidden_layers=R.choice([3, 4]), head_dim=R.choice([8, 14, 16]), sliding_window=8, query_pre_attn_scalar=R.choice([12, 16]),
             rms_norm_eps=1e-5)
    c["layer_types" if v5 else "sliding_window_pattern"] = \
        [R.choice(["sliding_attention", "full_attention"]) for _ in range(c["num_hidden_layers"])] if v5 else R.choice([2, 3])
    if v5:
        c["rope_parameters"] = dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=50000.0),
                                    sliding_attention=dict(rope_type="default", rope_theta=1000.0))
        if set(c["layer_types"]) != {"sliding_attention", "full_attention"}:
            c["layer_types"][:2] = ["sliding_attention", "full_attention"]
    else:
        c.update(rope_theta=50000.0, rope_local_base_freq=1000.0)
        if R.random() < 0.5:
            c["rope_scaling"] = dict(rope_type="linear", factor=8.0)
    return c


def gemma3(R):
    t = gemma3_text(R)
    return wrap("gemma3", t, SIGLIP, "dtype" in t, mm_tokens_per_image=4, image_token_index=5)


def qwen_vl(R, model_type="qwen2_5_vl"):
    """Published flat, without text_config."""
    v5 = R.random() < 0.3
    t = common(R, model_type + "_text", v5)
    t["rms_norm_eps"] = 1e-5
    half = t["hidden_size"] // t["num_attention_heads"] // 2
    section = [half - 2 * (half // 3), half // 3, half // 3]
    if R.random() < 0.4:
        t.update(use_sliding_window=True, sliding_window=8, max_window_layers=1)
    vision = dict(QWEN_VISION)
    if model_type == "qwen2_vl":
        vision = dict(depth=1, embed_dim=8, hidden_size=t["hidden_size"], num_heads=2, mlp_ratio=1, patch_size=4,
                      spatial_merge_size=2, temporal_patch_size=1)
    else:
        vision["out_hidden_size"] = t["hidden_size"]
    tie = R.random() < 0.5
    special = dict(image_token_id=5, video_token_id=6, vision_start_token_id=7, vision_end_token_id=8)
    if v5:
        t["rope_parameters"] = dict(rope_type="default", rope_theta=20000.0, mrope_section=section)
        return wrap(model_type, t, vision, True, tie_word_embeddings=tie, **special)
    t.update(rope_theta=20000.0, rope_scaling=dict(type="mrope", mrope_section=section), tie_word_embeddings=tie)
    t["model_type"] = model_type
    return dict(t, vision_config=dict(vision, model_type=model_type), **special)


def qwen3_vl(R, model_type="qwen3_vl"):
    v5 = R.random() < 0.5
    t = common(R, model_type + "_text", v5)
    t.update(head_dim=R.choice([8, 12]), rms_norm_eps=1e-5, attention_bias=R.random() < 0.3)
    half = t["head_dim"] // 2
    section = [half - 2 * (half // 3), half // 3, half // 3]
    if v5:
        t["rope_parameters"] = dict(rope_type="default", rope_theta=20000.0, mrope_section=section, mrope_interleaved=True)
    else:
        t.update(rope_theta=20000.0, rope_scaling=dict(rope_type="default", mrope_section=section, mrope_interleaved=True))
    if model_type == "qwen3_vl_moe":
        t.update(num_experts=R.choice([4, 6]), num_experts_per_tok=2, moe_intermediate_size=R.choice([10, 12]),
                 decoder_sparse_step=R.choice([1, 2]), mlp_only_layers=R.choice([[], [0]]))
    vision = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4, spatial_merge_size=2,
                  temporal_patch_size=1, out_hidden_size=t["hidden_size"], num_position_embeddings=4, deepstack_visual_indexes=[0])
    return wrap(model_type, t, vision, v5, tie_word_embeddings=R.random() < 0.5, image_token_id=5, video_token_id=6,
                vision_start_token_id=7, vision_end_token_id=8)


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


def kimi_k25(R):
    t = deepseek(R)
    t["q_lora_rank"] = 10
    tie = untied(t, R)
    if not ("dtype" in t):
        t["model_type"] = "kimi_k2"
    vision = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, patch_size=4,
                  pos_emb_height=2, pos_emb_width=2, pos_emb_time=1)
    return wrap("kimi_k25", t, vision, "dtype" in t, projection_hidden_size=8, **tie)


# Text models.

def kinds_of(R, n):
    """The types of n layers, both of them among the first two."""
    first = R.choice([["full_attention", "sliding_attention"], ["sliding_attention", "full_attention"]])
    return first + [R.choice(first) for _ in range(n - 2)]


def glm4(R, model_type="glm4"):
    c = llama(R, model_type, head_dim=False, dims=(8, 12, 16))
    c.update(head_dim=R.choice([8, 12, 16]), attention_bias=R.random() < 0.5)
    if R.random() < 0.5:
        (c["rope_parameters"] if "rope_parameters" in c else c)["partial_rotary_factor"] = R.choice([0.5, 1.0])
    return c


def smollm3(R):
    c = llama(R, "smollm3")
    c["num_hidden_layers"] = R.choice([3, 4])
    c.update(attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3)
    form = R.choice(["list", "interval"])
    if form == "list":
        c["no_rope_layers"] = [1, 0] + [R.choice([0, 1]) for _ in range(c["num_hidden_layers"] - 2)]
    else:
        c["no_rope_layer_interval"] = R.choice([2, 3])
    if R.random() < 0.5:
        c.update(use_sliding_window=True, sliding_window=8)
        if R.random() < 0.5:
            c["layer_types"] = kinds_of(R, c["num_hidden_layers"])
    return c


def exaone4(R):
    c = llama(R, "exaone4")
    c["num_hidden_layers"] = R.choice([3, 4])
    c["sliding_window"] = R.choice([8, 8, None])
    if c["sliding_window"] is None or R.random() < 0.5:
        c["layer_types"] = kinds_of(R, c["num_hidden_layers"]) if c["sliding_window"] else ["full_attention"] * c["num_hidden_layers"]
    else:
        c["sliding_window_pattern"] = R.choice([2, 3])
    return c


def olmo3(R):
    c = llama(R, "olmo3", head_dim=False)
    c.update(num_hidden_layers=R.choice([3, 4]), sliding_window=8, attention_bias=R.random() < 0.3)
    if R.random() < 0.6:
        c["layer_types"] = kinds_of(R, c["num_hidden_layers"])
    else:
        c["num_hidden_layers"] = 4
    if "rope_parameters" in c:
        c["rope_parameters"] = dict(full_attention=c["rope_parameters"],
                                    sliding_attention=dict(rope_type="default", rope_theta=R.choice([500.0, 10000.0])))
    elif c["rope_scaling"] is None:
        del c["rope_scaling"]
    return c


def gemma(R):
    c = llama(R, "gemma", head_dim=False)
    c.update(head_dim=R.choice([6, 8, 14]), hidden_act=R.choice(["gelu", "gelu_pytorch_tanh"]), attention_bias=R.random() < 0.3)
    return c


def seed_oss(R):
    c = llama(R, "seed_oss", head_dim=False)
    c.update(head_dim=R.choice([6, 8, 14]), attention_bias=R.random() < 0.5, attention_out_bias=R.random() < 0.5,
             mlp_bias=R.random() < 0.3, residual_dropout=0.1, attention_dropout=0.1)
    return c


def ernie4_5(R):
    c = llama(R, "ernie4_5", head_dim=False)
    c.update(head_dim=R.choice([6, 8, 14, None]), use_bias=R.random() < 0.5)
    return c


def ministral3(R):
    v5 = R.random() < 0.7
    c = common(R, "ministral3", v5)
    c.update(head_dim=R.choice([6, 8, 14]), sliding_window=R.choice([None, 8]), tie_word_embeddings=R.random() < 0.5)
    rope = dict(rope_theta=10000.0, rope_type=R.choice(["yarn", "yarn", "default"]), original_max_position_embeddings=R.choice([8, 10]),
                llama_4_scaling_beta=R.choice([0.1, 0.5]))
    if rope["rope_type"] == "yarn":
        rope.update(factor=4.0, mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0, beta_slow=1.0)
    if v5:
        c["rope_parameters"] = rope
    else:
        c["rope_theta"] = rope.pop("rope_theta")
        c["rope_scaling"] = rope
    return c


def mistral3_of_mistral4(R):
    t = mistral4(R, deepseek)
    return wrap("mistral3", t, PIXTRAL, "dtype" in t, image_token_index=5, spatial_merge_size=2, **untied(t, R))


def mistral3_of_ministral(R):
    t = ministral3(R)
    return wrap("mistral3", t, PIXTRAL, "dtype" in t, image_token_index=5, spatial_merge_size=2, **untied(t, R))


def routed(R, c, count="n_routed_experts"):
    """Experts, some with groups."""
    c.update({count: R.choice([6, 8])}, num_experts_per_tok=R.choice([1, 2, 3]), moe_intermediate_size=R.choice([10, 12, 14]))


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


def gemma2(R):
    c = llama(R, "gemma2", head_dim=False)
    c.pop("hidden_act", None)
    c.update(head_dim=R.choice([6, 8, 14]), num_hidden_layers=R.choice([2, 3]), sliding_window=8, query_pre_attn_scalar=R.choice([8, 12]),
             attn_logit_softcapping=R.choice([None, 5.0]), final_logit_softcapping=R.choice([None, 8.0]))
    return c


def gpt_neox(R):
    v5 = R.random() < 0.5
    c = common(R, "gpt_neox", v5, kv=False, dims=(8, 12, 16))
    c.update(layer_norm_eps=1e-5, use_parallel_residual=R.random() < 0.5, attention_bias=R.random() < 0.7, tie_word_embeddings=R.random() < 0.3)
    if v5:
        c["rope_parameters"] = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=R.choice([0.5, 1.0]))
    else:
        c.update(rotary_emb_base=10000, rotary_pct=R.choice([0.5, 1.0]))
    return c


def qwen2(R, model_type="qwen2"):
    c = llama(R, model_type, head_dim=model_type == "qwen3")
    if R.random() < 0.5:
        c.update(use_sliding_window=True, sliding_window=8, max_window_layers=R.choice([0, 1]))
    return c


def qwen3_moe(R):
    c = llama(R, "qwen3_moe")
    routed(R, c, "num_experts")
    c.update(norm_topk_prob=R.random() < 0.5, decoder_sparse_step=R.choice([1, 1, 2]), mlp_only_layers=R.choice([[], [0]]))
    return c


def deepseek_v2(R):
    c = deepseek(R, "deepseek_v2")
    del c["norm_topk_prob"]
    c.update(topk_method=R.choice(["greedy", "group_limited_greedy"]), n_group=R.choice([2, 4]), topk_group=2)
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
        c["layer_types"] = kinds_of(R, c["num_hidden_layers"])
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


def llama4(R):
    t = llama4_text(R)
    tie = {} if R.random() < 0.5 else untied(t, R)
    vision = dict(model_type="llama4_vision_model", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                  image_size=8, patch_size=4, vision_output_dim=8, projector_input_dim=8, projector_output_dim=8, pixel_shuffle_ratio=0.5)
    return wrap("llama4", t, vision, "dtype" in t, image_token_index=5, boi_token_index=6, eoi_token_index=7, **tie)


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


def gemma4(R):
    t = gemma4_text(R)
    tie = untied(t, R)
    vision = dict(model_type="gemma4_vision", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                  head_dim=4, patch_size=4, position_embedding_size=8)
    return wrap("gemma4", t, vision, True, audio_config=None, image_token_id=1005, video_token_id=1006, audio_token_id=1007, boi_token_id=1008, eoi_token_id=1009,
                boa_token_id=1010, eoa_token_index=1011, **tie)


FAMILIES = {
    "gemma4_dense": (lambda R: gemma4_text(R, "dense"), [1]),
    "gemma4_experts": (lambda R: gemma4_text(R, "experts"), [1]),
    "gemma4_small": (lambda R: gemma4_text(R, "small"), [1, 2]),
    "gemma4": (gemma4, [1]),
    "llama4_text": (llama4_text, [1, 2, 3]),
    "llama4": (llama4, [1, 2]),
    "phimoe": (phimoe, [1, 2, 3]),
    "mimo_v2_flash": (mimo_v2_flash, [1, 2, 3]),
    "mimo_v2_flash_still": (lambda R: dict(mimo_v2_flash(R), rope_parameters={
        "full_attention": dict(rope_type="default", rope_theta=50000.0, partial_rotary_factor=0.0),
        "sliding_attention": dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=R.choice([0.0, 0.5]))}), [1]),
    "deepseek_v2": (deepseek_v2, [1, 2]),
    "ernie4_5_moe": (ernie4_5_moe, [1, 2]),
    "deepseek_v3": (deepseek, [1, 2]),
    "gemma2": (gemma2, [1]),
    "gemma3_text": (gemma3_text, [1]),
    "gpt_neox": (gpt_neox, [1]),
    "olmo2": (lambda R: llama(R, "olmo2", head_dim=False), [1]),
    "phi3": (lambda R: llama(R, "phi3", head_dim=False, ropes=("default",)), [1]),
    "qwen2": (qwen2, [1]),
    "qwen3_moe": (qwen3_moe, [1]),
    "glm4_moe": (glm4_moe, [1, 2]),
    "glm4_moe_lite": (glm4_moe_lite, [1, 2]),
    "deepseek_v32": (lambda R: sparse(R, "deepseek_v32"), [1, 2]),
    "glm_moe_dsa": (lambda R: sparse(R, "glm_moe_dsa"), [1, 2]),
    "minimax_m2": (minimax_m2, [1, 2]),
    "hy_v3": (hy_v3, [1, 2]),
    "qwen2_moe": (qwen2_moe, [1, 2]),
    "olmoe": (olmoe, [1]),
    "granitemoe": (granitemoe, [1]),
    "glm": (lambda R: glm4(R, "glm"), [1]),
    "glm4": (glm4, [1, 2]),
    "smollm3": (smollm3, [1, 2]),
    "exaone4": (exaone4, [1, 2]),
    "olmo3": (olmo3, [1, 2]),
    "gemma": (gemma, [1]),
    "seed_oss": (seed_oss, [1]),
    "ernie4_5": (ernie4_5, [1]),
    "ministral3": (ministral3, [1, 2]),
    "mistral3_of_ministral": (mistral3_of_ministral, [1]),
    "mistral3_of_mistral4": (mistral3_of_mistral4, [1]),
    "llava": (llava, [1]),
    "llava_next": (llava_next, [1]),
    "cohere2": (cohere2, [1, 2]),
    "aya_vision": (lambda R: cohere_vision(R, "aya_vision"), [1]),
    "cohere2_vision": (lambda R: cohere_vision(R, "cohere2_vision"), [1]),
    "llava_onevision": (llava_onevision, [1]),
    "idefics3": (idefics3, [1]),
    "smolvlm": (lambda R: idefics3(R, "smolvlm"), [1]),
    "mistral3": (mistral3, [1]),
    "internvl": (internvl, [1]),
    "gemma3": (gemma3, [1]),
    "qwen2_vl": (lambda R: qwen_vl(R, "qwen2_vl"), [1]),
    "qwen2_5_vl": (qwen_vl, [1, 2]),
    "qwen3_vl": (qwen3_vl, [1]),
    "qwen3_vl_moe": (lambda R: qwen3_vl(R, "qwen3_vl_moe"), [1, 2]),
    "kimi_k25": (kimi_k25, [1]),
    **hybrids(llama, wrap),
    **plains(llama),
    **further(llama, deepseek, wrap),
    **late(llama, gemma4_text, wrap, deepseek),
    **latest(llama, wrap, sparse, common),
    **newest(llama, wrap, glm4),
    **images(llama, wrap, deepseek, exaone4, glm4, glm4_moe, routed),
}
