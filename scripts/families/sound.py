"""Makers of models of sound, and of images and sound, whose text models Heft serves."""
from families.images import QWEN, VISION, parted, wrapped
from families.shapes import llama, multipliers, routed, wrap


def sound(R, llama, model_type, text, parts):
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


def voxtral(R):
    return sound(R, llama, "voxtral", "llama", lambda t: dict(hidden_size=8, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_mel_bins=4, max_source_positions=8))


def qwen2_audio(R):
    return sound(R, llama, "qwen2_audio", "qwen2", lambda t: dict(encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=8, d_model=8, num_mel_bins=4, max_source_positions=8))


def granite_speech(R):
    c = sound(R, lambda R, kind, **more: multipliers(R, llama(R, kind, **more)), "granite_speech", "granite", lambda t: {})
    c.pop("audio_config")
    c.update(encoder_config=dict(input_dim=4, num_layers=1, hidden_dim=8, feedforward_mult=1, num_heads=2, dim_head=4, output_dim=4, context_size=4, max_pos_emb=4, conv_kernel_size=3),
             projector_config=dict(model_type="blip_2_qformer", hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, encoder_hidden_size=8), has_lora_adapter=False, window_size=2, downsample_rate=1)
    return c


WHISPER = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, num_mel_bins=4, max_source_positions=8)


def heard(R, model_type, text, tied, parts):
    """A model of sound, of which parts returns the configs beside its text. tied says whether its head may be the embedding."""
    t = llama(R, text, dims=(6, 8), **(dict(head_dim=False) if text == "qwen2" else {}))
    if text == "granite":
        multipliers(R, t)
    elif text == "qwen3":
        t["head_dim"] = R.choice([6, 8])
    c = wrapped(R, wrap, model_type, t, {}, **parts(t))
    c.pop("vision_config")
    c["audio_token_index" if text == "granite" else "audio_token_id"] = 1000  # no token that a prompt has
    if not tied:
        c.pop("tie_word_embeddings")
    return c


def granite_speech_plus(R):
    return heard(R, "granite_speech_plus", "granite", True, lambda t: dict(
        encoder_config=dict(input_dim=4, num_layers=1, hidden_dim=8, feedforward_mult=1, num_heads=2, dim_head=4, output_dim=4, context_size=4, max_pos_emb=4, conv_kernel_size=3),
        projector_config=dict(model_type="blip_2_qformer", hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, encoder_hidden_size=8),
        has_lora_adapter=False, window_size=2, downsample_rate=1))


def glmasr(R):
    return heard(R, "glmasr", "llama", True, lambda t: dict(audio_config=dict(hidden_size=8, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, num_mel_bins=4)))


def qwen3_asr(R):
    return heard(R, "qwen3_asr", "qwen3", True, lambda t: dict(audio_config=dict(
        num_mel_bins=8, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=8, d_model=8, n_window=2, n_window_infer=4, output_dim=t["hidden_size"], downsample_hidden_size=4)))


def fun_asr_nano(R):
    return heard(R, "fun_asr_nano", "qwen3", True, lambda t: dict(
        adaptor_config=dict(hidden_size=t["hidden_size"], intermediate_size=t["hidden_size"] // 4, num_attention_heads=1, num_hidden_layers=1, projector_hidden_size=8),
        audio_config=dict(num_mel_bins=4, hidden_size=8, num_attention_heads=2, intermediate_size=8, num_hidden_layers=2, num_stacked_frames=2, num_timestamp_prediction_layers=1, fsmn_kernel_size=3)))


def omniasr(R):
    return heard(R, "omniasr", "llama", False, lambda t: dict(audio_config=dict(
        hidden_size=8, conv_dim=[4, 4], conv_kernel=[3, 3], conv_stride=[2, 2], num_attention_heads=2, num_hidden_layers=1, num_conv_pos_embeddings=2, num_conv_pos_embedding_groups=2,
        intermediate_size=8)))


def vibevoice_asr(R):
    encoder = dict(num_filters=2, downsampling_ratios=[2, 2], depths=[1, 1, 1], hidden_size=4)
    return heard(R, "vibevoice_asr", "qwen2", False, lambda t: dict(acoustic_tokenizer_encoder_config=encoder, semantic_tokenizer_encoder_config=encoder))


def flamingo(R, model_type):
    return heard(R, model_type, "qwen2", False, lambda t: dict(audio_config=dict(WHISPER, hidden_size=20, model_type="audioflamingo3_encoder")))


def omni(R, routed=None):
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


def phi4_multimodal(R):
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


# The makers, each with the seeds of the committed fixtures.
MAKERS = {
    "audioflamingo3": (lambda R: flamingo(R, "audioflamingo3"), [2]),
    "fun_asr_nano": (fun_asr_nano, [1]),
    "glmasr": (glmasr, [1]),
    "granite_speech": (granite_speech, [98]),
    "granite_speech_plus": (granite_speech_plus, [1]),
    "moss_transcribe_diarize": (lambda R: heard(R, "moss_transcribe_diarize", "qwen3", True, lambda t: dict(audio_config=WHISPER)), [1]),
    "musicflamingo": (lambda R: flamingo(R, "musicflamingo"), [2]),
    "omniasr": (omniasr, [1]),
    "phi4_multimodal": (phi4_multimodal, [3]),
    "qwen2_5_omni": (omni, [3]),
    "qwen2_audio": (qwen2_audio, [44]),
    "qwen3_omni_moe": (lambda R: omni(R, routed), [2]),
    "qwen3_asr": (qwen3_asr, [1]),
    "vibevoice_asr": (vibevoice_asr, [2]),
    "voxtral": (voxtral, [14]),
}
