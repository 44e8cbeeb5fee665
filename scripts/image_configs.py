"""Configs of small models of images and their text models, for make-family-fixtures.py.

IMAGES is the part of family_configs.FAMILIES for these families.
"""
from hybrid_configs import lfm2, qwen3_5
from late_configs import hy_v4

VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
QWEN = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_patch_size=1)


def parted(R, t, dim):
    """Gives the rope of t sections for time, height and width, which are equal for text."""
    half, third = dim // 2, dim // 6
    section = [half - 2 * third, third, third]
    if "rope_parameters" in t:
        t["rope_parameters"]["mrope_section"] = section
    else:
        t["rope_scaling"] = dict(t.get("rope_scaling") or dict(rope_type="default"), mrope_section=section)
    return t


def tied(R, t):
    """Whether the head is the embedding, which the whole config says, or else the text's."""
    tie = dict(tie_word_embeddings=t.pop("tie_word_embeddings", False))
    if R.random() < 0.3:
        t.update(tie)
    return tie


def text_of_glm(R, t, kind):
    """Turns t into the text model of GLM's models of images, with rope on a part of each head."""
    t["model_type"] = kind
    for name in ("rope_parameters", "rope_theta", "rope_scaling", "partial_rotary_factor", "attention_bias", "head_dim", "use_qk_norm"):
        t.pop(name, None)
    dim, partial = t["hidden_size"] // t["num_attention_heads"], R.choice([0.5, 1.0])
    if "moe" in kind and R.random() < 0.5:
        t["attention_bias"] = R.random() < 0.5
    if "dtype" in t:
        t["rope_parameters"] = dict(rope_type="default", rope_theta=R.choice([10000.0, 500.0]), partial_rotary_factor=partial)
    else:
        t.update(rope_theta=10000.0, partial_rotary_factor=partial, rope_scaling=dict(type="default"))
    return parted(R, t, int(dim * partial) + int(dim * partial) % 2)


def glm(R, wrap, text, model_type, kind):
    t = text_of_glm(R, text(R), kind)
    vision = dict(QWEN, model_type="glm4v_vision", out_hidden_size=t["hidden_size"], image_size=8)
    if model_type != "glm46v":
        vision["model_type"] = model_type + "_vision"
    return wrap(model_type, t, vision, "dtype" in t, image_token_id=5, video_token_id=6, image_start_token_id=7, image_end_token_id=8,
                video_start_token_id=9, video_end_token_id=10, **(dict(tie_word_embeddings=t.pop("tie_word_embeddings")) if model_type == "glm46v" else tied(R, t)))


def hy_v4_vl(R, deepseek, wrap):
    t = hy_v4(R, deepseek)
    t.update(model_type="hy_v4_vl_text", qk_rope_head_dim=8)
    t.pop("tie_word_embeddings")
    vision = dict(VISION, out_hidden_size=t["hidden_size"], max_image_size=8, spatial_merge_size=2)
    vision.pop("image_size")
    return wrap("hy_v4_vl", parted(R, t, 8), vision, "dtype" in t, image_token_id=5, video_token_id=6, tie_word_embeddings=False)


def lfm2_vl(R, llama, wrap):
    t = lfm2(R, llama, False)
    tie = R.choice(["tie_word_embeddings", "tie_embedding"])
    value = t.pop("tie_word_embeddings", None) or t.pop("tie_embedding", False)
    vision = dict(VISION, model_type="siglip2_vision_model", num_patches=4)
    vision.pop("image_size")
    return wrap("lfm2_vl", t, vision, "dtype" in t, image_token_id=5, projector_hidden_size=8, **{tie: value})


def exaone4_5(R, exaone4, wrap):
    t = exaone4(R)
    if R.random() < 0.5:
        t["model_type"] = "exaone4_5_text"
    return wrap("exaone4_5", t, dict(QWEN, num_key_value_heads=1, out_hidden_size=t["hidden_size"]), "dtype" in t, image_token_id=5, video_token_id=6,
                tie_word_embeddings=t.pop("tie_word_embeddings"))


def minicpmv(R, llama, wrap):
    t = qwen3_5(R, llama, False)
    return wrap("minicpmv4_6", t, dict(VISION, insert_layer_id=0), "dtype" in t, insert_layer_id=0, image_size=8, image_token_id=5, video_token_id=6,
                tie_word_embeddings=t.pop("tie_word_embeddings"))


def lighton_ocr(R, llama, wrap):
    t = llama(R, "qwen3")
    vision = dict(VISION, model_type="pixtral", head_dim=4)
    return wrap("lighton_ocr", t, vision, "dtype" in t, image_token_id=5, spatial_merge_size=2, tie_word_embeddings=t.pop("tie_word_embeddings"))


def without_layers_of_images(model):
    """Takes the layers out of Mllama that texts pass by, and its list of them."""
    text = getattr(getattr(model, "model", None), "language_model", None)
    seeing = set(getattr(text, "cross_attention_layers", ()))
    if seeing:
        text.cross_attention_layers = []
        for i in seeing & set(range(len(text.layers))):
            del text.layers._modules[str(i)]
    return model


def with_stacked_experts(model):
    """Gives DBRX's experts the stacks that other families have, as Heft's tree does, instead of three matrices below one another."""
    for m in model.modules():
        if type(m).__name__ == "DbrxExpertGLU":
            n, inner, hidden = m.moe_num_experts, m.ffn_hidden_size, m.hidden_size
            for name, shape in (("gate_up_proj", (n, 2 * inner, hidden)), ("down_proj", (n, hidden, inner))):
                m.register_parameter(name, type(m.w1)(m.w1.new_empty(shape)))
            del m.w1, m.v1, m.w2
    return model


def dbrx(R, llama):
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


def aria_text(R, llama):
    t = llama(R, "aria_text")
    t.update(moe_num_experts=R.choice([4, 6]), moe_topk=R.choice([1, 2, 3]), moe_num_shared_experts=R.choice([1, 2]), attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3)
    return t


def aria(R, llama, wrap):
    t = aria_text(R, llama)
    return wrap("aria", t, dict(VISION, model_type="idefics3_vision"), "dtype" in t, image_token_index=5, projector_patch_to_query_dict={4: 2},
                tie_word_embeddings=t.pop("tie_word_embeddings"))


def got_ocr2(R, llama, wrap):
    t = llama(R, "qwen2", head_dim=False)
    vision = dict(VISION, output_channels=4, window_size=2, global_attn_indexes=[0], mlp_dim=8)
    return wrap("got_ocr2", t, vision, "dtype" in t, image_token_index=5, image_seq_length=1, tie_word_embeddings=t.pop("tie_word_embeddings"))


def mllama(R, llama, wrap):
    t = llama(R, "mllama_text_model", head_dim=False)
    t.pop("tie_word_embeddings")
    n = R.choice([3, 4])
    t.update(num_hidden_layers=n, cross_attention_layers=R.choice([[1], [0], [n - 1], [0, 2], []]))
    vision = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_global_layers=1, attention_heads=2, vision_output_dim=16, image_size=8, patch_size=4,
                  intermediate_layers_indices=[0])
    return wrap("mllama", t, vision, "dtype" in t, image_token_index=5)


def paddleocr_vl(R, llama, wrap):
    t = llama(R, "paddleocr_vl_text", ropes=("default",))
    t.update(head_dim=R.choice([6, 8, 14]), use_bias=R.random() < 0.4)
    parted(R, t, t["head_dim"])
    vision = dict(VISION, model_type="paddleocr_vl_vision")
    special = dict(image_token_id=5, video_token_id=6, vision_start_token_id=7, vision_end_token_id=8)
    if "dtype" not in t and R.random() < 0.5:  # as published
        t["model_type"] = "paddleocr_vl"
        return dict(t, vision_config=dict(vision, model_type="paddleocr_vl"), **special)
    return wrap("paddleocr_vl", t, vision, "dtype" in t, **special, **tied(R, t))


def images(llama, wrap, deepseek, exaone4, glm4, glm4_moe):
    """The makers, each with the seeds of the committed fixtures. The arguments are family_configs'."""
    return {
        "aria": (lambda R: aria(R, llama, wrap), [9]),
        "aria_text": (lambda R: aria_text(R, llama), [5]),
        "dbrx": (lambda R: dbrx(R, llama), [10, 11]),
        "exaone4_5": (lambda R: exaone4_5(R, exaone4, wrap), [4]),
        "glm46v": (lambda R: glm(R, wrap, glm4, "glm46v", "glm4v_text"), [3]),
        "glm4v": (lambda R: glm(R, wrap, glm4, "glm4v", "glm4v_text"), [6]),
        "glm4v_moe": (lambda R: glm(R, wrap, glm4_moe, "glm4v_moe", "glm4v_moe_text"), [4]),
        "glm_ocr": (lambda R: glm(R, wrap, glm4, "glm_ocr", "glm_ocr_text"), [6]),
        "got_ocr2": (lambda R: got_ocr2(R, llama, wrap), [5]),
        "hy_v4_vl": (lambda R: hy_v4_vl(R, deepseek, wrap), [5]),
        "lfm2_vl": (lambda R: lfm2_vl(R, llama, wrap), [3]),
        "lighton_ocr": (lambda R: lighton_ocr(R, llama, wrap), [1]),
        "minicpmv4_6": (lambda R: minicpmv(R, llama, wrap), [1]),
        "mllama": (lambda R: mllama(R, llama, wrap), [5]),
        "paddleocr_vl": (lambda R: paddleocr_vl(R, llama, wrap), [4]),
    }
