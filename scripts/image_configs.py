"""Configs of small models of images and their text models, for make-family-fixtures.py.

IMAGES is the part of family_configs.FAMILIES for these families.
"""
from further_configs import hyperclovax
from hybrid_configs import lfm2, qwen3_5
from late_configs import hy_v4, lfm3
from plain_configs import persimmon
from transformers import AutoConfig

VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
OF_SOUND = ("granite_speech", "qwen2_audio", "voxtral")
CLIP = dict(VISION, model_type="clip_vision_model", projection_dim=8)
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
    if model_type not in ("glm46v", "glmga"):
        vision["model_type"] = model_type + "_vision"
    return wrap(model_type, t, vision, "dtype" in t, image_token_id=5, video_token_id=6, image_start_token_id=7, image_end_token_id=8,
                video_start_token_id=9, video_end_token_id=10, **(dict(tie_word_embeddings=t.pop("tie_word_embeddings")) if model_type in ("glm46v", "glmga") else tied(R, t)))


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


def deepseek_ocr2(R, llama, wrap):
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


def wrapped(R, wrap, model_type, t, vision, tie=None, **more):
    """The text t in a model whose whole config says whether the head is the embedding, unless tie says that the text's may."""
    tied_head = dict(tie_word_embeddings=t.pop("tie_word_embeddings", False))
    if tie and R.random() < 0.5:
        t.update(tied_head)
        if tied_head["tie_word_embeddings"]:
            tied_head = {}
    return wrap(model_type, t, vision, "dtype" in t, **tied_head, **more)


def lfm3_vl(R, llama, wrap):
    vision = dict(VISION, num_key_value_heads=1, spatial_merge_size=2, temporal_patch_size=1)
    vision.pop("image_size")
    return wrapped(R, wrap, "lfm3_vl", lfm3(R, llama), vision, image_token_id=5, video_token_id=6, vision_start_token_id=7, vision_end_token_id=8, projector_hidden_size=8)


def minicpm_of_images(R, llama, wrap, model_type):
    more = dict(image_size=8) if model_type == "minicpmv4_7" else {}
    return wrapped(R, wrap, model_type, qwen3_5(R, llama, False), dict(VISION, insert_layer_id=0), insert_layer_id=0, image_token_id=5, video_token_id=6, **more)


def ovis2(R, llama, wrap):
    kind = R.choice(["qwen2", "llama"])
    t = llama(R, kind, head_dim=kind != "qwen2")
    return wrapped(R, wrap, "ovis2", t, dict(VISION, vocab_size=12, num_visual_indicator_tokens=2), image_token_id=5, visual_indicator_token_ids=[6, 7],
                   vocab_size=t["vocab_size"], hidden_size=t["hidden_size"])


def qianfan_ocr(R, llama, wrap):
    t = llama(R, "qwen3")
    t["head_dim"] = R.choice([6, 8, 14])
    return wrapped(R, wrap, "qianfan_ocr", t, dict(VISION, model_type="qianfan_ocr_vision", image_size=[8, 8], patch_size=[4, 4]), image_token_id=5, image_seq_length=1)


def hyperclovax_vision_v2(R, llama, wrap):
    t = hyperclovax(R, llama)
    vision = dict(QWEN, model_type="qwen2_5_vl_vision", out_hidden_size=t["hidden_size"], window_size=8, fullatt_block_indexes=[0])
    return wrapped(R, wrap, "hyperclovax_vision_v2", t, vision, image_token_id=5, video_token_id=6)


def fuyu(R, persimmon):
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


def emu3(R, llama, wrap):
    t = llama(R, "emu3_text_model", head_dim=False)
    t.update(attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3)
    parts = dict(codebook_size=4, embed_dim=4, latent_channels=4, base_channels=32, channel_multiplier=[1], num_res_blocks=1, attn_resolutions=[], hidden_size=32)
    c = wrapped(R, wrap, "emu3", t, {}, vq_config=parts, vocabulary_map={"<image>": 5})
    c.pop("vision_config")
    return c


def fast_vlm(R, llama, wrap):
    """The vision tower is another than the published one, which needs a further library."""
    return wrapped(R, wrap, "fast_vlm", llama(R, "qwen2", head_dim=False), CLIP, tie=True, image_token_index=5, image_seq_length=1)


def vipllava(R, llama, wrap):
    return wrapped(R, wrap, "vipllava", llama(R, "llama"), CLIP, image_token_index=5, image_seq_length=1, vision_feature_layers=[-1, -2])


def llava_next_video(R, llama, wrap):
    return wrapped(R, wrap, "llava_next_video", llama(R, R.choice(["llama", "mistral"])), CLIP, tie=True, image_token_index=5, video_token_index=6,
                   image_grid_pinpoints=[[8, 16]], image_seq_length=1)


def video_llama_3(R, llama, wrap):
    vision = {k: v for k, v in VISION.items() if k != "image_size"}
    return wrapped(R, wrap, "video_llama_3", llama(R, "qwen2", head_dim=False), dict(vision, model_type="video_llama_3_vision"), tie=True, image_token_id=5, video_token_id=6)


def cohere_compass_text(R, llama):
    c = llama(R, "cohere_compass_text", head_dim=False)
    n = R.choice([2, 3, 4])
    for name in ("rope_parameters", "rope_theta", "rope_scaling", "rms_norm_eps"):
        c.pop(name, None)
    c.update(num_hidden_layers=n, layer_norm_eps=R.choice([1e-5, 1e-3]), logit_scale=R.choice([0.25, 0.5, None]), attention_bias=R.random() < 0.3, sliding_window=R.choice([5, 8]),
             layer_types=(["full_attention", "sliding_attention"] + [R.choice(["full_attention", "sliding_attention"]) for _ in range(n)])[:n])
    if R.random() < 0.3:
        c["layer_types"] = ["full_attention"] * n
    half = c["hidden_size"] // c["num_attention_heads"] // 2
    section = [half - 2 * (half // 3), half // 3, half // 3]
    kinds = {"full_attention": R.choice([None, dict(rope_type="default", rope_theta=50000.0, mrope_section=section, mrope_interleaved=True)]),
             "sliding_attention": R.choice([dict(rope_type="default", rope_theta=1000.0), dict(rope_type="linear", rope_theta=10000.0, factor=2.0)])}
    c["rope_parameters"] = {kind: kinds[kind] for kind in kinds if kind in c["layer_types"]}
    return c


def cohere_compass(R, llama, wrap):
    t = cohere_compass_text(R, llama)
    for rope in t["rope_parameters"].values():
        if rope:
            rope["mrope_section"] = rope.get("mrope_section") or [t["hidden_size"] // t["num_attention_heads"] // 2, 0, 0]
    vision = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_patch_size=1, out_hidden_size=t["hidden_size"],
                  num_position_embeddings=4, deepstack_visual_indexes=[0])
    return wrapped(R, wrap, "cohere_compass", t, vision, image_token_id=5, video_token_id=6, vision_start_token_id=7, vision_end_token_id=8)


def omni(R, llama, wrap, routed=None):
    """The part of Qwen's models with images and sound that writes text."""
    kind = "qwen3_omni_moe" if routed else "qwen2_5_omni"
    t = llama(R, kind + "_text", head_dim=bool(routed), ropes=("default",))
    t.pop("tie_word_embeddings")
    dim = t.get("head_dim") or t["hidden_size"] // t["num_attention_heads"]
    parted(R, t, dim)
    vision = dict(QWEN, out_hidden_size=t["hidden_size"])
    sound = dict(num_mel_bins=8, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=8, d_model=8, max_source_positions=8, n_window=2, output_dim=t["hidden_size"])
    if routed:
        routed(R, t, "num_experts")
        t.update(norm_topk_prob=R.random() < 0.5, decoder_sparse_step=R.choice([1, 1, 2]), mlp_only_layers=R.choice([[], [0]]), attention_bias=R.random() < 0.3)
        vision.update(num_position_embeddings=4, deepstack_visual_indexes=[0])
        sound.update(n_window_infer=4, conv_chunksize=4, downsample_hidden_size=4)
        special = dict(image_token_id=5, video_token_id=6, audio_token_id=7)
    else:
        vision.update(window_size=8, fullatt_block_indexes=[0])
        special = dict(image_token_index=5, video_token_index=6, audio_token_index=7)
        if R.random() < 0.4:
            t.update(use_sliding_window=True, sliding_window=8, max_window_layers=R.choice([0, 1]))
    return wrap(kind + "_thinker", t, vision, "dtype" in t, audio_config=sound, tie_word_embeddings=R.random() < 0.3, **special)


def phi4_multimodal(R, llama):
    c = llama(R, "phi4_multimodal", head_dim=False, ropes=("default",), dims=(8, 16))
    c.update(sliding_window=R.choice([None, 8]), original_max_position_embeddings=10)
    half = c["hidden_size"] // c["num_attention_heads"] // 2
    if R.random() < 0.5:
        half = half * 3 // 4
        (c["rope_parameters"] if "rope_parameters" in c else c)["partial_rotary_factor"] = 0.75
    if R.random() < 0.7:
        long = dict(short_factor=[1 + i / 8 for i in range(half)], long_factor=[2.0 + i for i in range(half)])
        if "rope_parameters" in c:
            c["rope_parameters"].update(long, rope_type="longrope")
        else:
            c["rope_scaling"] = dict(long, type="longrope")
    elif "rope_scaling" in c:
        del c["rope_scaling"]
    c["vision_config"] = dict(VISION, crop_size=8, image_token_id=5, feature_layer=-1)
    c["audio_config"] = dict(hidden_size=8, intermediate_size=8, num_blocks=1, num_attention_heads=2, ext_pw_out_channel=8, depthwise_separable_out_channel=8, input_size=16,
                             nemo_conv_channels=4, bias_max_distance=8, audio_token_id=6, feature_layer=-1)
    return c


def is_text_within(config):
    """Whether the text model is a part of the model. Phi-4-multimodal has its other parts within its text model."""
    return config["model_type"] in ("emu3", "fuyu", *OF_SOUND) or "vision_config" in config and config["model_type"] != "phi4_multimodal"


def dots3_note_text(R, deepseek):
    """As published, or, of fresh models, as transformers saves it."""
    c = dots3_note_parts(R, deepseek)
    return AutoConfig.for_model(**c).to_dict() if getattr(R, "wide", False) and R.random() < 0.4 else c


def dots3_note_parts(R, deepseek):
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


def dots3_note(R, deepseek, wrap):
    """Published without text_config."""
    t = dots3_note_parts(R, deepseek)
    t["model_type"] = "dots3_note"
    vision = dict(hidden_size=8, intermediate_size=8, moe_intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, patch_size=4, mlp_layer_types=["dense"], adapter_in_dim=8,
                  adapter_out_dim=t["hidden_size"])
    sound = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, feature_size=16, downsample_hidden_size=4, adapter_input_size=8, adapter_out_dim=t["hidden_size"])
    return dict(t, vision_config=vision, audio_config=sound, image_token_id=5, video_token_id=6, audio_token_id=7)


def images(llama, wrap, deepseek, exaone4, glm4, glm4_moe, routed):
    """The makers, each with the seeds of the committed fixtures. The arguments are family_configs'."""
    return {
        "aria": (lambda R: aria(R, llama, wrap), [9]),
        "aria_text": (lambda R: aria_text(R, llama), [5]),
        "cohere_compass": (lambda R: cohere_compass(R, llama, wrap), [2]),
        "cohere_compass_text": (lambda R: cohere_compass_text(R, llama), [3]),
        "dbrx": (lambda R: dbrx(R, llama), [10, 11]),
        "deepseek_ocr2": (lambda R: deepseek_ocr2(R, llama, wrap), [23]),
        "dots3_note": (lambda R: dots3_note(R, deepseek, wrap), [3]),
        "dots3_note_text": (lambda R: dots3_note_text(R, deepseek), [1]),
        "emu3": (lambda R: emu3(R, llama, wrap), [4]),
        "exaone4_5": (lambda R: exaone4_5(R, exaone4, wrap), [4]),
        "fast_vlm": (lambda R: fast_vlm(R, llama, wrap), [3]),
        "fuyu": (lambda R: fuyu(R, lambda R: persimmon(R, llama)), [2, 6]),
        "glm46v": (lambda R: glm(R, wrap, glm4, "glm46v", "glm4v_text"), [3]),
        "glm4v": (lambda R: glm(R, wrap, glm4, "glm4v", "glm4v_text"), [6]),
        "glm4v_moe": (lambda R: glm(R, wrap, glm4_moe, "glm4v_moe", "glm4v_moe_text"), [4]),
        "glm_ocr": (lambda R: glm(R, wrap, glm4, "glm_ocr", "glm_ocr_text"), [6]),
        "got_ocr2": (lambda R: got_ocr2(R, llama, wrap), [5]),
        "hy_v4_vl": (lambda R: hy_v4_vl(R, deepseek, wrap), [5]),
        "hyperclovax_vision_v2": (lambda R: hyperclovax_vision_v2(R, llama, wrap), [2]),
        "lfm2_vl": (lambda R: lfm2_vl(R, llama, wrap), [3]),
        "lfm3_vl": (lambda R: lfm3_vl(R, llama, wrap), [4]),
        "lighton_ocr": (lambda R: lighton_ocr(R, llama, wrap), [1]),
        "llava_next_video": (lambda R: llava_next_video(R, llama, wrap), [3]),
        "minicpm_ocr": (lambda R: minicpm_of_images(R, llama, wrap, "minicpm_ocr"), [1]),
        "minicpmv4_6": (lambda R: minicpmv(R, llama, wrap), [1]),
        "minicpmv4_7": (lambda R: minicpm_of_images(R, llama, wrap, "minicpmv4_7"), [1]),
        "mllama": (lambda R: mllama(R, llama, wrap), [5]),
        "ovis2": (lambda R: ovis2(R, llama, wrap), [2]),
        "paddleocr_vl": (lambda R: paddleocr_vl(R, llama, wrap), [4]),
        "phi4_multimodal": (lambda R: phi4_multimodal(R, llama), [3]),
        "qianfan_ocr": (lambda R: qianfan_ocr(R, llama, wrap), [3]),
        "qwen2_5_omni": (lambda R: omni(R, llama, wrap), [3]),
        "qwen3_omni_moe": (lambda R: omni(R, llama, wrap, routed), [2]),
        "video_llama_3": (lambda R: video_llama_3(R, llama, wrap), [3]),
        "vipllava": (lambda R: vipllava(R, llama, wrap), [5]),
    }
