"""Makers of models of images around a text model that another module makes."""
from families.classic import persimmon
from families.dense import (apertus1p5_text, cohere2, cohere_compass_text, exaone4, gemma3_text, gemma3n_text, gemma4_unified_text, hyperclovax,
    ministral3)
from families.experts import aria_text, gemma4_text, hunyuan, llama4_text, minimax_m3_vl_text, step3p5
from families.images import MINIMAX_VISION, PIXTRAL, QWEN, SIGLIP, VISION, parted, wrapped
from families.latent import deepseek, dots3_note_parts, hy_v4, mistral4, sparse
from families.shapes import llama, rope, untied, wrap
from families.sound import sound
from families.states import inkling_text, lfm2, lfm3, nemotron_h, qwen3_5, qwen4_exp_text


def cohere_vision(R, model_type):
    t = cohere2(R)
    return wrap(model_type, t, SIGLIP, "dtype" in t, downsample_factor=1, **untied(t, R))


def gemma3(R):
    t = gemma3_text(R)
    return wrap("gemma3", t, SIGLIP, "dtype" in t, mm_tokens_per_image=4, image_token_index=5)


def kimi_k25(R):
    t = deepseek(R)
    t["q_lora_rank"] = 10
    tie = untied(t, R)
    if not ("dtype" in t):
        t["model_type"] = "kimi_k2"
    vision = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, patch_size=4,
                  pos_emb_height=2, pos_emb_width=2, pos_emb_time=1)
    return wrap("kimi_k25", t, vision, "dtype" in t, projection_hidden_size=8, **tie)


def mistral3_of_mistral4(R):
    t = mistral4(R)
    return wrap("mistral3", t, PIXTRAL, "dtype" in t, image_token_index=5, spatial_merge_size=2, **untied(t, R))


def mistral3_of_ministral(R):
    t = ministral3(R)
    return wrap("mistral3", t, PIXTRAL, "dtype" in t, image_token_index=5, spatial_merge_size=2, **untied(t, R))


def llama4(R):
    t = llama4_text(R)
    tie = {} if R.random() < 0.5 else untied(t, R)
    vision = dict(model_type="llama4_vision_model", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                  image_size=8, patch_size=4, vision_output_dim=8, projector_input_dim=8, projector_output_dim=8, pixel_shuffle_ratio=0.5)
    return wrap("llama4", t, vision, "dtype" in t, image_token_index=5, boi_token_index=6, eoi_token_index=7, **tie)


def gemma4(R):
    t = gemma4_text(R)
    tie = untied(t, R)
    vision = dict(model_type="gemma4_vision", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                  head_dim=4, patch_size=4, position_embedding_size=8)
    return wrap("gemma4", t, vision, True, audio_config=None, image_token_id=1005, video_token_id=1006, audio_token_id=1007, boi_token_id=1008, eoi_token_id=1009,
                boa_token_id=1010, eoa_token_index=1011, **tie)


def gemma3n(R):
    """The text of a model of four kinds of inputs. Its vision tower needs timm and torchvision."""
    t = gemma3n_text(R)
    tie = dict(tie_word_embeddings=t.pop("tie_word_embeddings"))
    audio = dict(hidden_size=8, input_feat_size=16, vocab_size=4, vocab_offset=1008, conf_num_attention_heads=2, conf_num_hidden_layers=1, sscp_conv_channel_size=[2, 2])
    vision = dict(model_type="gemma3n_vision", architecture="mobilenetv3_small_050", hidden_size=8, vocab_size=4, vocab_offset=1000)
    return wrap("gemma3n", t, vision, True, audio_config=audio, **tie)


def qwen3_5_wrapped(R, moe):
    t = qwen3_5(R, moe)
    if "rope_parameters" in t:
        t["rope_parameters"].update(mrope_section=[1, 1, 0], mrope_interleaved=True)
    tie = dict(tie_word_embeddings=t.pop("tie_word_embeddings"))
    vision = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4, spatial_merge_size=2,
                  temporal_patch_size=1, out_hidden_size=t["hidden_size"], num_position_embeddings=4)
    return wrap("qwen3_5_moe" if moe else "qwen3_5", t, vision, "dtype" in t, **tie)


def gemma4_unified(R):
    """The text of a model without a vision tower: patches and sound enter by projections."""
    t = gemma4_unified_text(R)
    tie = dict(tie_word_embeddings=t.pop("tie_word_embeddings"))
    vision = dict(model_type="gemma4_unified_vision", patch_size=2, pooling_kernel_size=1, mm_embed_dim=8, mm_posemb_size=4, output_proj_dims=t["hidden_size"])
    return wrap("gemma4_unified", t, vision, True, audio_config=None, image_token_id=1005, video_token_id=1006, audio_token_id=1007, boi_token_id=1008,
                eoi_token_id=1009, boa_token_id=1010, eoa_token_index=1011, **tie)


def apertus1p5(R):
    """The text of a model whose images and sound are tokens of the vocabulary."""
    t = apertus1p5_text(R)
    tie = dict(tie_word_embeddings=t.pop("tie_word_embeddings"))
    at = t["vocab_size"] - 12
    vision = dict(model_type="apertus1p5_vision_tokenizer", codebook_size=8, embed_dim=4, latent_channels=4, base_channels=32, channel_multiplier=[1, 1], num_res_blocks=1, resolution=8,
                  attn_resolutions=[])
    audio = dict(model_type="wavtokenizer_encoder", codebook_size=4, num_filters=2, upsampling_ratios=[2, 2], num_lstm_layers=1, hidden_size=8, codebook_dim=8)
    return wrap("apertus1p5", t, vision, "dtype" in t, audio_config=audio, image_token_id=5, audio_token_id=6, image_token_offset=at, audio_token_offset=at + 8, **tie)


def minimax_m3_vl(R):
    t = minimax_m3_vl_text(R)
    tie = dict(tie_word_embeddings=t.pop("tie_word_embeddings")) if R.random() < 0.7 else {}
    return wrap("minimax_m3_vl", t, MINIMAX_VISION, "dtype" in t, image_token_index=5, video_token_index=6, projector_hidden_size=8, **tie)


def qwen4_exp(R):
    t = qwen4_exp_text(R)
    vision = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_patch_size=1, out_hidden_size=t["hidden_size"],
                  num_position_embeddings=4)
    return wrap("qwen4_exp", t, vision, "dtype" in t, tie_word_embeddings=t.pop("tie_word_embeddings"))


def step3p7(R):
    t = step3p5(R)
    vision = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4, mlp_ratio=1.0)
    tie = dict(tie_word_embeddings=t.pop("tie_word_embeddings")) if R.random() < 0.7 else {}
    return wrap("step3p7", t, vision, "dtype" in t, image_token_id=5, **tie)


def mistral_large4(R):
    """The text model has the names of Mistral's own files, which transformers saves."""
    c = sparse(R, "mistral_large4_text")
    n = R.choice([3, 4, 5])
    for name in ("q_lora_rank", "rope_interleave", "scoring_func", "topk_method", "norm_topk_prob", "tie_word_embeddings", "first_k_dense_replace", "n_group", "topk_group"):
        c.pop(name, None)
    c.update(num_hidden_layers=n, hidden_size=R.choice([16, 24]), index_head_dim=R.choice([8, 12]), n_routed_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]),
             n_shared_experts=R.choice([1, 2]))
    if R.random() < 0.5:
        c["final_logit_softcapping"] = 3.0
    if R.random() < 0.4:
        c.update(n_group=2, topk_group=1, num_experts_per_tok=2)
    for name, first, other in ("no_rope_layers", 1, 0), ("mlp_layer_types", "dense", "sparse"), ("indexer_types", "full", "shared"):
        if R.random() < 0.75:
            c[name] = [first] + [R.choice([first, other]) for _ in range(n - 1)]
        elif name == "indexer_types" and R.random() < 0.5:
            c.update(index_topk_freq=2, index_skip_topk_offset=1)
    if R.random() < 0.7:  # a layer has its own keys, or those of the last one with its kind of rope that has
        c["kv_source_layers"], last = [], {}
        for i, roped in enumerate(c.get("no_rope_layers") or [1, 1, 1, 0, 1][:n]):
            if roped not in last or R.random() < 0.4:
                last[roped] = i
            source, owners = last[roped], [j for j, of in enumerate(c["kv_source_layers"]) if of == j]
            if source != i and getattr(R, "wide", False) and R.random() < 0.4:  # whatever it names, the reference takes the last of its kind of rope
                source = R.choice(owners)
            c["kv_source_layers"].append(source)
    vision = dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, head_dim=4, image_size=8, patch_size=4)
    return wrap("mistral_large4", c, vision, "dtype" in c, image_token_index=5, tie_word_embeddings=R.random() < 0.3)


def inkling(R):
    """transformers saves the names of published files, with rows of gate and up in turn."""
    t = inkling_text(R)
    vision = dict(patch_size=2, temporal_patch_size=2, num_hidden_layers=3)
    return wrap("inkling_mm_model", t, vision, "dtype" in t, audio_config=dict(n_mel_bins=2, mel_vocab_size=4), image_token_id=5, audio_token_id=6)


def hunyuan_vl(R):
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


def nemotron_h_omni(R):
    t = nemotron_h(R, lambda R, kind, **more: llama(R, kind, dims=(6, 8), **more), R.random() < 0.5)
    vision = dict(model_type="radio", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4, max_img_size=8, num_registers=1, video_temporal_patch_size=2)
    c = wrapped(R, wrap, "nemotron_h_omni", t, vision, image_token_id=5, video_token_id=6, audio_token_id=7, projector_hidden_size=8, vision_hidden_size=8, audio_config=None)
    c.pop("tie_word_embeddings")
    if "dtype" not in t:  # as published
        c["llm_config"] = c.pop("text_config")
    return c


def hy_v4_vl(R):
    t = hy_v4(R)
    t.update(model_type="hy_v4_vl_text", qk_rope_head_dim=8)
    t.pop("tie_word_embeddings")
    vision = dict(VISION, out_hidden_size=t["hidden_size"], max_image_size=8, spatial_merge_size=2)
    vision.pop("image_size")
    return wrap("hy_v4_vl", parted(R, t, 8), vision, "dtype" in t, image_token_id=5, video_token_id=6, tie_word_embeddings=False)


def lfm2_vl(R):
    t = lfm2(R, False)
    tie = R.choice(["tie_word_embeddings", "tie_embedding"])
    value = t.pop("tie_word_embeddings", None) or t.pop("tie_embedding", False)
    vision = dict(VISION, model_type="siglip2_vision_model", num_patches=4)
    vision.pop("image_size")
    return wrap("lfm2_vl", t, vision, "dtype" in t, image_token_id=5, projector_hidden_size=8, **{tie: value})


def exaone4_5(R):
    t = exaone4(R)
    if R.random() < 0.5:
        t["model_type"] = "exaone4_5_text"
    return wrap("exaone4_5", t, dict(QWEN, num_key_value_heads=1, out_hidden_size=t["hidden_size"]), "dtype" in t, image_token_id=5, video_token_id=6,
                tie_word_embeddings=t.pop("tie_word_embeddings"))


def minicpmv(R):
    t = qwen3_5(R, False)
    return wrap("minicpmv4_6", t, dict(VISION, insert_layer_id=0), "dtype" in t, insert_layer_id=0, image_size=8, image_token_id=5, video_token_id=6,
                tie_word_embeddings=t.pop("tie_word_embeddings"))


def aria(R):
    t = aria_text(R)
    return wrap("aria", t, dict(VISION, model_type="idefics3_vision"), "dtype" in t, image_token_index=5, projector_patch_to_query_dict={4: 2},
                tie_word_embeddings=t.pop("tie_word_embeddings"))


def lfm3_vl(R):
    vision = dict(VISION, num_key_value_heads=1, spatial_merge_size=2, temporal_patch_size=1)
    vision.pop("image_size")
    return wrapped(R, wrap, "lfm3_vl", lfm3(R), vision, image_token_id=5, video_token_id=6, vision_start_token_id=7, vision_end_token_id=8, projector_hidden_size=8)


def minicpm_of_images(R, model_type):
    more = dict(image_size=8) if model_type == "minicpmv4_7" else {}
    return wrapped(R, wrap, model_type, qwen3_5(R, False), dict(VISION, insert_layer_id=0), insert_layer_id=0, image_token_id=5, video_token_id=6, **more)


def hyperclovax_vision_v2(R):
    t = hyperclovax(R)
    vision = dict(QWEN, model_type="qwen2_5_vl_vision", out_hidden_size=t["hidden_size"], window_size=8, fullatt_block_indexes=[0])
    return wrapped(R, wrap, "hyperclovax_vision_v2", t, vision, image_token_id=5, video_token_id=6)


def fuyu(R):
    """Published without text_config."""
    t = persimmon(R)
    parts = dict(patch_size=2, num_channels=1, image_size=8, image_token_id=5)
    if "dtype" in t:
        c = wrapped(R, lambda model_type, text, vision, v5, **more: dict(model_type=model_type, text_config=text, **more), "fuyu", t, None, **parts)
        c.update((name, t[name]) for name in ("dtype", "bos_token_id", "eos_token_id", "pad_token_id"))
        return c
    c = dict(t, model_type="fuyu", **parts)
    c.pop("rope_scaling", None)
    c.pop("partial_rotary_factor", None)  # which the reference ignores there
    return c


def cohere_compass(R):
    t = cohere_compass_text(R)
    for rope in t["rope_parameters"].values():
        if rope:
            rope["mrope_section"] = rope.get("mrope_section") or [t["hidden_size"] // t["num_attention_heads"] // 2, 0, 0]
    vision = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_patch_size=1, out_hidden_size=t["hidden_size"],
                  num_position_embeddings=4, deepstack_visual_indexes=[0])
    return wrapped(R, wrap, "cohere_compass", t, vision, image_token_id=5, video_token_id=6, vision_start_token_id=7, vision_end_token_id=8)


def dots3_note(R):
    """Published without text_config."""
    t = dots3_note_parts(R)
    t["model_type"] = "dots3_note"
    vision = dict(hidden_size=8, intermediate_size=8, moe_intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, patch_size=4, mlp_layer_types=["dense"], adapter_in_dim=8,
                  adapter_out_dim=t["hidden_size"])
    sound = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, feature_size=16, downsample_hidden_size=4, adapter_input_size=8, adapter_out_dim=t["hidden_size"])
    return dict(t, vision_config=vision, audio_config=sound, image_token_id=5, video_token_id=6, audio_token_id=7)


# The makers, each with the seeds of the committed fixtures.
MAKERS = {
    "apertus1p5": (apertus1p5, [1]),
    "aria": (aria, [9]),
    "aya_vision": (lambda R: cohere_vision(R, "aya_vision"), [1]),
    "cohere2_vision": (lambda R: cohere_vision(R, "cohere2_vision"), [1]),
    "cohere_compass": (cohere_compass, [2]),
    "dots3_note": (dots3_note, [3]),
    "exaone4_5": (exaone4_5, [4]),
    "fuyu": (fuyu, [2, 6]),
    "gemma3": (gemma3, [1]),
    "gemma3n": (gemma3n, [1]),
    "gemma4": (gemma4, [1]),
    "gemma4_unified": (gemma4_unified, [1]),
    "hunyuan_vl": (hunyuan_vl, [8, 9]),
    "hy_v4_vl": (hy_v4_vl, [5]),
    "hyperclovax_vision_v2": (hyperclovax_vision_v2, [2]),
    "inkling": (inkling, [20]),
    "kimi_k25": (kimi_k25, [1]),
    "lfm2_vl": (lfm2_vl, [3]),
    "lfm3_vl": (lfm3_vl, [4]),
    "llama4": (llama4, [1, 2]),
    "minicpm_ocr": (lambda R: minicpm_of_images(R, "minicpm_ocr"), [1]),
    "minicpmv4_6": (minicpmv, [1]),
    "minicpmv4_7": (lambda R: minicpm_of_images(R, "minicpmv4_7"), [1]),
    "minimax_m3_vl": (minimax_m3_vl, [1]),
    "mistral3_of_ministral": (mistral3_of_ministral, [1]),
    "mistral3_of_mistral4": (mistral3_of_mistral4, [1]),
    "mistral_large4": (mistral_large4, [76, 77]),
    "nemotron_h_omni": (nemotron_h_omni, [15]),
    "qwen3_5": (lambda R: qwen3_5_wrapped(R, False), [1]),
    "qwen3_5_moe": (lambda R: qwen3_5_wrapped(R, True), [1]),
    "qwen4_exp": (qwen4_exp, [1]),
    "step3p7": (step3p7, [1]),
}
