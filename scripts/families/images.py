"""Makers of models of images whose text model is Llama's or their own."""
from families.dense import glm4
from families.experts import glm4_moe
from families.shapes import common, kinds, llama, multipliers, partial, untied, windowed, wrap

CLIP = dict(model_type="clip_vision_model", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
            num_attention_heads=2, image_size=8, patch_size=4, projection_dim=8)
SIGLIP = dict(CLIP, model_type="siglip_vision_model")
PIXTRAL = dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
               head_dim=4, image_size=8, patch_size=4)
QWEN_VISION = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4, spatial_merge_size=2,
                   temporal_patch_size=1, window_size=8, fullatt_block_indexes=[0])
MINIMAX_VISION = dict(model_type="minimax_m3_vl_vision", hidden_size=12, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=2)
VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
QWEN = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_patch_size=1)


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


def idefics3(R, model_type="idefics3"):
    t = llama(R, "llama")
    vision = dict(model_type=model_type + "_vision", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                  num_attention_heads=2, image_size=8, patch_size=4)
    return wrap(model_type, t, vision, "dtype" in t, image_token_id=5, scale_factor=2, **untied(t, R))


def llava_onevision(R):
    t = llama(R, "qwen2", head_dim=False)
    return wrap("llava_onevision", t, SIGLIP, "dtype" in t, image_token_index=5, image_grid_pinpoints=[[8, 16]], **untied(t, R))


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


def muse_glimmer(R):
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


def granite4_vision(R):
    t = multipliers(R, llama(R, "granite4_vision_text", dims=(6, 8)))
    t["mlp_bias"] = R.random() < 0.3
    parts = dict(CLIP, hidden_size=64, num_attention_heads=1)  # the least that its projectors take
    return wrapped(R, wrap, "granite4_vision", t, parts, image_token_index=5, image_seq_length=1, downsample_rate="1/2", deepstack_layer_map=[], use_spatial_sampling=False, spatial_target_layers=[],
                   image_grid_pinpoints=[[8, 16]], qformer_config=dict(model_type="blip_2_qformer", num_hidden_layers=1, intermediate_size=8))


def granite_docling(R):
    t = multipliers(R, llama(R, "granite_docling_text", head_dim=False, dims=(4, 8)))
    t["mlp_bias"] = R.random() < 0.3
    vision = dict(VISION, image_size=16, scale_factor=2, out_hidden_size=t["hidden_size"], deepstack_visual_indexes=[0], use_fine_route=False)
    return wrapped(R, wrap, "granite_docling", t, vision, image_token_id=1000)


def cosmos3_omni(R):
    t = llama(R, "qwen3_vl_text", ropes=("default",), dims=(6, 8))
    parted(R, t, t.get("head_dim") or t["hidden_size"] // t["num_attention_heads"])
    return wrapped(R, wrap, "cosmos3_omni", t, dict(QWEN, model_type="qwen3_vl_vision", out_hidden_size=t["hidden_size"], num_position_embeddings=4, deepstack_visual_indexes=[0]), image_token_id=5, video_token_id=6)


def ernie4_5_vl_moe(R):
    t = llama(R, "ernie4_5_vl_moe_text", head_dim=False, ropes=("default",), dims=(8, 16))
    n, half = t["num_hidden_layers"], t["hidden_size"] // t["num_attention_heads"] // 2
    t.update(use_bias=R.random() < 0.3, moe_num_experts=R.choice([3, 4]), moe_k=R.choice([1, 2]), moe_intermediate_size=[R.choice([10, 12]), R.choice([4, 6])], moe_num_shared_experts=R.choice([0, 1, 2]))
    if R.random() < 0.5:
        t["mlp_layer_types"] = kinds(R, n, "dense", "sparse")
    section = [(half - half // 4) // 2, (half - half // 4) // 2]
    parted(R, t, 2 * half)
    (t.get("rope_parameters") or t["rope_scaling"])["mrope_section"] = section + [half - sum(section)]
    vision = dict(hidden_size=8, intermediate_size=8, depth=1, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_merge_size=2)
    return wrapped(R, wrap, "ernie4_5_vl_moe", t, vision, image_token_id=5, video_token_id=6, image_start_token_id=7, image_end_token_id=8, video_start_token_id=9, video_end_token_id=10)


def molmo2(R):
    t = llama(R, "molmo2_text", dims=(6, 8))
    t.pop("tie_word_embeddings")
    t.setdefault("head_dim", 8)
    t.update(additional_vocab_size=R.choice([3, 9]), qk_norm_type=R.choice(["qwen3", "olmo"]), norm_after=R.random() < 0.5)
    if R.random() < 0.5:
        t["qkv_bias"] = R.random() < 0.7
    if R.random() < 0.5:
        t["layer_norm_eps"] = t.pop("rms_norm_eps")
    if R.random() < 0.6:
        t["rope_scaling_layers"] = [i for i in range(t["num_hidden_layers"]) if R.random() < 0.5]
    heads = dict(hidden_size=8, intermediate_size=8, num_attention_heads=2, num_key_value_heads=2, head_dim=4)
    return wrap("molmo2", t, dict(heads, num_hidden_layers=1, image_size=[8, 8], patch_size=4), "dtype" in t,
                adapter_config=dict(heads, vision_feature_layer=[0], text_hidden_size=t["hidden_size"]), image_patch_id=5)


def deepseek_vl(R, hybrid=False):
    siglip = dict(VISION, model_type="siglip_vision_model")
    more = dict(high_res_vision_config=dict(VISION, model_type="sam_vision_model", output_channels=4, window_size=2, global_attn_indexes=[0], mlp_dim=8)) if hybrid else {}
    return wrapped(R, wrap, "deepseek_vl_hybrid" if hybrid else "deepseek_vl", llama(R, "llama", dims=(6, 8)), siglip, image_token_id=5, **more)


def janus(R):
    vq = dict(embed_dim=4, num_embeddings=4, latent_channels=4, base_channels=32, channel_multiplier=[1], num_res_blocks=1, num_patches=2, projection_dim=8, image_token_embed_dim=8)
    vision = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4, mlp_ratio=1.0, projection_dim=8, depth=1, num_image_tokens=4)
    return wrapped(R, wrap, "janus", llama(R, "llama", dims=(6, 8)), vision, vq_config=vq, image_token_id=5)


def idefics2(R):
    perceiver = dict(hidden_size=8, resampler_n_latents=2, resampler_depth=1, resampler_n_heads=2, resampler_head_dim=4, num_key_value_heads=1)
    return wrapped(R, wrap, "idefics2", llama(R, "mistral", dims=(6, 8)), VISION, perceiver_config=perceiver, image_token_id=5)


def video_llava(R):
    return wrapped(R, wrap, "video_llava", llama(R, "llama", dims=(6, 8)), CLIP, image_token_index=5, video_token_index=6, image_seq_length=1, video_seq_length=1)


def perception_lm(R):
    """The vision tower is another than the published one, which needs a further library."""
    c = wrapped(R, wrap, "perception_lm", llama(R, "llama", dims=(6, 8)), dict(VISION, model_type="siglip_vision_model", embed_dim=8, model_args=dict(embed_dim=8)), image_token_id=5, video_token_id=6)
    if R.random() < 0.5:
        c["text_config"]["tie_word_embeddings"] = c.pop("tie_word_embeddings")
    return c


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


def glm(R, text, model_type, kind):
    t = text_of_glm(R, text(R), kind)
    vision = dict(QWEN, model_type="glm4v_vision", out_hidden_size=t["hidden_size"], image_size=8)
    if model_type not in ("glm46v", "glmga"):
        vision["model_type"] = model_type + "_vision"
    return wrap(model_type, t, vision, "dtype" in t, image_token_id=5, video_token_id=6, image_start_token_id=7, image_end_token_id=8,
                video_start_token_id=9, video_end_token_id=10, **(dict(tie_word_embeddings=t.pop("tie_word_embeddings")) if model_type in ("glm46v", "glmga") else tied(R, t)))


def lighton_ocr(R):
    t = llama(R, "qwen3")
    vision = dict(VISION, model_type="pixtral", head_dim=4)
    return wrap("lighton_ocr", t, vision, "dtype" in t, image_token_id=5, spatial_merge_size=2, tie_word_embeddings=t.pop("tie_word_embeddings"))


def deepseek_ocr2(R):
    t = llama(R, "deepseek_ocr2_text", head_dim=False)
    n = t["num_hidden_layers"]
    t.update(n_routed_experts=8, num_experts_per_tok=R.choice([2, 3]), n_shared_experts=R.choice([1, 2]), moe_intermediate_size=R.choice([10, 12]),
             mlp_layer_types=["sparse"] + [R.choice(["dense", "sparse"]) for _ in range(n - 1)], attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3)
    if R.random() < 0.5:
        t["routed_scaling_factor"] = 2.5
    if R.random() < 0.5:
        t.update(topk_method="group_limited_greedy", n_group=R.choice([2, 4]), topk_group=2)
    R.shuffle(t["mlp_layer_types"])
    vision = dict(sam_config=dict(VISION, output_channels=4, window_size=2, global_attn_indexes=[0], downsample_channels=[4, 8]),
                  encoder_config=dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1))
    return wrap("deepseek_ocr2", t, vision, "dtype" in t, image_token_id=5, tie_word_embeddings=t.pop("tie_word_embeddings"))


def got_ocr2(R):
    t = llama(R, "qwen2", head_dim=False)
    vision = dict(VISION, output_channels=4, window_size=2, global_attn_indexes=[0], mlp_dim=8)
    return wrap("got_ocr2", t, vision, "dtype" in t, image_token_index=5, image_seq_length=1, tie_word_embeddings=t.pop("tie_word_embeddings"))


def mllama(R):
    t = llama(R, "mllama_text_model", head_dim=False)
    t.pop("tie_word_embeddings")
    n = R.choice([3, 4])
    t.update(num_hidden_layers=n, cross_attention_layers=R.choice([[1], [0], [n - 1], [0, 2], []]))
    vision = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_global_layers=1, attention_heads=2, vision_output_dim=16, image_size=8, patch_size=4,
                  intermediate_layers_indices=[0])
    return wrap("mllama", t, vision, "dtype" in t, image_token_index=5)


def paddleocr_vl(R):
    t = llama(R, "paddleocr_vl_text", ropes=("default",))
    t.update(head_dim=R.choice([6, 8, 14]), use_bias=R.random() < 0.4)
    parted(R, t, t["head_dim"])
    vision = dict(VISION, model_type="paddleocr_vl_vision")
    special = dict(image_token_id=5, video_token_id=6, vision_start_token_id=7, vision_end_token_id=8)
    if "dtype" not in t and R.random() < 0.5:  # as published
        t["model_type"] = "paddleocr_vl"
        return dict(t, vision_config=dict(vision, model_type="paddleocr_vl"), **special)
    return wrap("paddleocr_vl", t, vision, "dtype" in t, **special, **tied(R, t))


def wrapped(R, wrap, model_type, t, vision, tie=None, **more):
    """The text t in a model whose whole config says whether the head is the embedding, unless tie says that the text's may."""
    tied_head = dict(tie_word_embeddings=t.pop("tie_word_embeddings", False))
    if tie and R.random() < 0.5:
        t.update(tied_head)
        if tied_head["tie_word_embeddings"]:
            tied_head = {}
    return wrap(model_type, t, vision, "dtype" in t, **tied_head, **more)


def ovis2(R):
    kind = R.choice(["qwen2", "llama"])
    t = llama(R, kind, head_dim=kind != "qwen2")
    return wrapped(R, wrap, "ovis2", t, dict(VISION, vocab_size=12, num_visual_indicator_tokens=2), image_token_id=5, visual_indicator_token_ids=[6, 7],
                   vocab_size=t["vocab_size"], hidden_size=t["hidden_size"])


def qianfan_ocr(R):
    t = llama(R, "qwen3")
    t["head_dim"] = R.choice([6, 8, 14])
    return wrapped(R, wrap, "qianfan_ocr", t, dict(VISION, model_type="qianfan_ocr_vision", image_size=[8, 8], patch_size=[4, 4]), image_token_id=5, image_seq_length=1)


def emu3(R):
    t = llama(R, "emu3_text_model", head_dim=False)
    t.update(attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3)
    parts = dict(codebook_size=4, embed_dim=4, latent_channels=4, base_channels=32, channel_multiplier=[1], num_res_blocks=1, attn_resolutions=[], hidden_size=32)
    c = wrapped(R, wrap, "emu3", t, {}, vq_config=parts, vocabulary_map={"<image>": 5})
    c.pop("vision_config")
    return c


def fast_vlm(R):
    """The vision tower is another than the published one, which needs a further library."""
    return wrapped(R, wrap, "fast_vlm", llama(R, "qwen2", head_dim=False), CLIP, tie=True, image_token_index=5, image_seq_length=1)


def vipllava(R):
    return wrapped(R, wrap, "vipllava", llama(R, "llama"), CLIP, image_token_index=5, image_seq_length=1, vision_feature_layers=[-1, -2])


def llava_next_video(R):
    return wrapped(R, wrap, "llava_next_video", llama(R, R.choice(["llama", "mistral"])), CLIP, tie=True, image_token_index=5, video_token_index=6,
                   image_grid_pinpoints=[[8, 16]], image_seq_length=1)


def video_llama_3(R):
    vision = {k: v for k, v in VISION.items() if k != "image_size"}
    return wrapped(R, wrap, "video_llama_3", llama(R, "qwen2", head_dim=False), dict(vision, model_type="video_llama_3_vision"), tie=True, image_token_id=5, video_token_id=6)


# The makers, each with the seeds of the committed fixtures.
MAKERS = {
    "deepseek_ocr2": (deepseek_ocr2, [23]),
    "deepseek_vl": (deepseek_vl, [32]),
    "deepseek_vl_hybrid": (lambda R: deepseek_vl(R, True), [82]),
    "emu3": (emu3, [4]),
    "ernie4_5_vl_moe": (ernie4_5_vl_moe, [38]),
    "fast_vlm": (fast_vlm, [3]),
    "glm46v": (lambda R: glm(R, glm4, "glm46v", "glm4v_text"), [3]),
    "glm4v": (lambda R: glm(R, glm4, "glm4v", "glm4v_text"), [6]),
    "glm4v_moe": (lambda R: glm(R, glm4_moe, "glm4v_moe", "glm4v_moe_text"), [4]),
    "glm_ocr": (lambda R: glm(R, glm4, "glm_ocr", "glm_ocr_text"), [6]),
    "glmga": (lambda R: glm(R, glm4, "glmga", "glm4v_text"), [65]),
    "got_ocr2": (got_ocr2, [5]),
    "cosmos3_omni": (cosmos3_omni, [1]),
    "granite4_vision": (granite4_vision, [12]),
    "granite_docling": (granite_docling, [3]),
    "idefics2": (idefics2, [80]),
    "idefics3": (idefics3, [1]),
    "internvl": (internvl, [1]),
    "janus": (janus, [62]),
    "lighton_ocr": (lighton_ocr, [1]),
    "llava": (llava, [1]),
    "llava_next": (llava_next, [1]),
    "llava_next_video": (llava_next_video, [3]),
    "llava_onevision": (llava_onevision, [1]),
    "mistral3": (mistral3, [1]),
    "mllama": (mllama, [5]),
    "molmo2": (molmo2, [7, 48]),
    "muse_glimmer": (muse_glimmer, [1]),
    "ovis2": (ovis2, [2]),
    "paddleocr_vl": (paddleocr_vl, [4]),
    "perception_lm": (perception_lm, [32]),
    "qianfan_ocr": (qianfan_ocr, [3]),
    "qwen2_5_vl": (qwen_vl, [1, 2]),
    "qwen2_vl": (lambda R: qwen_vl(R, "qwen2_vl"), [1]),
    "qwen3_vl": (qwen3_vl, [1]),
    "qwen3_vl_moe": (lambda R: qwen3_vl(R, "qwen3_vl_moe"), [1, 2]),
    "smolvlm": (lambda R: idefics3(R, "smolvlm"), [1]),
    "video_llama_3": (video_llama_3, [3]),
    "video_llava": (video_llava, [62]),
    "vipllava": (vipllava, [5]),
}
