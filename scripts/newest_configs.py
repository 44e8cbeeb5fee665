"""Configs of small models of further families, most of them text within models of images, for make-family-fixtures.py.

newest is the part of family_configs.FAMILIES for these families.
"""
from further_configs import multipliers
from hybrid_configs import nemotron_h
from image_configs import CLIP, QWEN, VISION, glm, parted, wrapped
from late_configs import kinds
from plain_configs import hunyuan


MANY_PARTS = ("deepseek_vl_hybrid", "granite4_vision", "granite_speech", "idefics2", "janus")  # of which fixtures have the smallest tensors alone


def granite4_vision(R, llama, wrap):
    t = multipliers(R, llama(R, "granite4_vision_text", dims=(6, 8)))
    t["mlp_bias"] = R.random() < 0.3
    parts = dict(CLIP, hidden_size=64, num_attention_heads=1)  # the least that its projectors take
    return wrapped(R, wrap, "granite4_vision", t, parts, image_token_index=5, image_seq_length=1, downsample_rate="1/2", deepstack_layer_map=[], use_spatial_sampling=False, spatial_target_layers=[],
                   image_grid_pinpoints=[[8, 16]], qformer_config=dict(model_type="blip_2_qformer", num_hidden_layers=1, intermediate_size=8))


def hunyuan_vl(R, llama, wrap):
    """Published without text_config."""
    t = hunyuan(R, lambda R, kind, **more: llama(R, "hunyuan_vl_text", dims=(6, 8), **more), False)
    for name in ("rope_scaling", "rope_parameters"):
        if name in t:
            t[name] = t[name] or dict(type="default")
            parts = [t["head_dim"] // 2 - 2, 1, 1, 0]
            t[name][R.choice(["mrope_section", "xdrope_section"])] = parts
            if "type" in t[name] and t[name]["type"] == "dynamic":
                t[name]["type"] = R.choice(["dynamic", "xdrope"])
    vision = dict(VISION, out_hidden_size=t["hidden_size"], max_image_size=8, min_image_size=8, spatial_merge_size=2)
    vision.pop("image_size")
    special = dict(image_token_id=5, im_start_id=6, im_end_id=7, im_newline_id=8)
    if "dtype" not in t:
        if R.random() < 0.5:
            t.update(attention_head_dim=t.pop("head_dim"), pad_id=t.pop("pad_token_id"))
        return dict(t, model_type="hunyuan_vl", vision_config=vision, **special)
    return wrapped(R, wrap, "hunyuan_vl", t, vision, tie=True, **special)


def ernie4_5_vl_moe(R, llama, wrap):
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


def molmo2(R, llama, wrap):
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


def nemotron_h_omni(R, llama, wrap):
    t = nemotron_h(R, lambda R, kind, **more: llama(R, kind, dims=(6, 8), **more), R.random() < 0.5)
    vision = dict(model_type="radio", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4, max_img_size=8, num_registers=1, video_temporal_patch_size=2)
    c = wrapped(R, wrap, "nemotron_h_omni", t, vision, image_token_id=5, video_token_id=6, audio_token_id=7, projector_hidden_size=8, vision_hidden_size=8, audio_config=None)
    c.pop("tie_word_embeddings")
    if "dtype" not in t:  # as published
        c["llm_config"] = c.pop("text_config")
    return c


def deepseek_vl(R, llama, wrap, hybrid=False):
    siglip = dict(VISION, model_type="siglip_vision_model")
    more = dict(high_res_vision_config=dict(VISION, model_type="sam_vision_model", output_channels=4, window_size=2, global_attn_indexes=[0], mlp_dim=8)) if hybrid else {}
    return wrapped(R, wrap, "deepseek_vl_hybrid" if hybrid else "deepseek_vl", llama(R, "llama", dims=(6, 8)), siglip, image_token_id=5, **more)


def janus(R, llama, wrap):
    vq = dict(embed_dim=4, num_embeddings=4, latent_channels=4, base_channels=32, channel_multiplier=[1], num_res_blocks=1, num_patches=2, projection_dim=8, image_token_embed_dim=8)
    vision = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4, mlp_ratio=1.0, projection_dim=8, depth=1, num_image_tokens=4)
    return wrapped(R, wrap, "janus", llama(R, "llama", dims=(6, 8)), vision, vq_config=vq, image_token_id=5)


def idefics2(R, llama, wrap):
    perceiver = dict(hidden_size=8, resampler_n_latents=2, resampler_depth=1, resampler_n_heads=2, resampler_head_dim=4, num_key_value_heads=1)
    return wrapped(R, wrap, "idefics2", llama(R, "mistral", dims=(6, 8)), VISION, perceiver_config=perceiver, image_token_id=5)


def video_llava(R, llama, wrap):
    return wrapped(R, wrap, "video_llava", llama(R, "llama", dims=(6, 8)), CLIP, image_token_index=5, video_token_index=6, image_seq_length=1, video_seq_length=1)


def perception_lm(R, llama, wrap):
    """The vision tower is another than the published one, which needs a further library."""
    c = wrapped(R, wrap, "perception_lm", llama(R, "llama", dims=(6, 8)), dict(VISION, model_type="siglip_vision_model", embed_dim=8, model_args=dict(embed_dim=8)), image_token_id=5, video_token_id=6)
    if R.random() < 0.5:
        c["text_config"]["tie_word_embeddings"] = c.pop("tie_word_embeddings")
    return c


def sound(R, llama, wrap, model_type, text, parts):
    """A model of sound, of which parts is the encoder."""
    t = llama(R, text, dims=(6, 8), **(dict(head_dim=False) if text == "qwen2" else {}))
    if model_type == "voxtral":
        t.setdefault("head_dim", 8)
    c = wrapped(R, wrap, model_type, t, parts(t))
    c["audio_config"] = c.pop("vision_config")
    c["audio_token_id" if model_type == "voxtral" else "audio_token_index"] = 1000 if model_type == "granite_speech" else 5  # which stands for token 0 there, generated or not
    if model_type != "granite_speech":
        c.pop("tie_word_embeddings")  # they have heads of their own
    return c


def voxtral(R, llama, wrap):
    return sound(R, llama, wrap, "voxtral", "llama", lambda t: dict(hidden_size=8, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_mel_bins=4, max_source_positions=8))


def qwen2_audio(R, llama, wrap):
    return sound(R, llama, wrap, "qwen2_audio", "qwen2", lambda t: dict(encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=8, d_model=8, num_mel_bins=4, max_source_positions=8))


def granite_speech(R, llama, wrap):
    c = sound(R, lambda R, kind, **more: multipliers(R, llama(R, kind, **more)), wrap, "granite_speech", "granite", lambda t: {})
    c.pop("audio_config")
    c.update(encoder_config=dict(input_dim=4, num_layers=1, hidden_dim=8, feedforward_mult=1, num_heads=2, dim_head=4, output_dim=4, context_size=4, max_pos_emb=4, conv_kernel_size=3),
             projector_config=dict(model_type="blip_2_qformer", hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, encoder_hidden_size=8), has_lora_adapter=False, window_size=2, downsample_rate=1)
    return c


def is_of_images(name):
    """Whether a weight of ERNIE's text model is one that no text reaches, and Heft's tree has not."""
    return ".vision_moe." in name and not name.endswith(".e_score_correction_bias")


def without_experts_of_images(model):
    for path, m in list(model.named_modules()):
        if path.endswith(".vision_moe"):
            del m._modules["experts"], m.gate._parameters["weight"]
    return model


def newest(llama, wrap, glm4):
    """The makers, each with the seeds of the committed fixtures. The arguments are family_configs'."""
    return {
        "deepseek_vl": (lambda R: deepseek_vl(R, llama, wrap), [32]),
        "deepseek_vl_hybrid": (lambda R: deepseek_vl(R, llama, wrap, True), [82]),
        "granite_speech": (lambda R: granite_speech(R, llama, wrap), [98]),
        "idefics2": (lambda R: idefics2(R, llama, wrap), [80]),
        "janus": (lambda R: janus(R, llama, wrap), [62]),
        "perception_lm": (lambda R: perception_lm(R, llama, wrap), [32]),
        "qwen2_audio": (lambda R: qwen2_audio(R, llama, wrap), [44]),
        "video_llava": (lambda R: video_llava(R, llama, wrap), [62]),
        "voxtral": (lambda R: voxtral(R, llama, wrap), [14]),
        "ernie4_5_vl_moe": (lambda R: ernie4_5_vl_moe(R, llama, wrap), [38]),
        "glmga": (lambda R: glm(R, wrap, glm4, "glmga", "glm4v_text"), [65]),
        "granite4_vision": (lambda R: granite4_vision(R, llama, wrap), [12]),
        "hunyuan_vl": (lambda R: hunyuan_vl(R, llama, wrap), [8, 9]),
        "molmo2": (lambda R: molmo2(R, llama, wrap), [7, 48]),
        "nemotron_h_omni": (lambda R: nemotron_h_omni(R, llama, wrap), [15]),
    }
