"""Makers of dense decoders with other positions, norms or MLPs than Llama."""
from families.shapes import ACTS, common, kinds, llama, partial


def gpt_neox(R):
    v5 = R.random() < 0.5
    c = common(R, "gpt_neox", v5, kv=False, dims=(8, 12, 16))
    c.update(layer_norm_eps=1e-5, use_parallel_residual=R.random() < 0.5, attention_bias=R.random() < 0.7, tie_word_embeddings=R.random() < 0.3)
    if v5:
        c["rope_parameters"] = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=R.choice([0.5, 1.0]))
    else:
        c.update(rotary_emb_base=10000, rotary_pct=R.choice([0.5, 1.0]))
    return c


def arcee(R):
    c = llama(R, "arcee")
    c.update(attention_bias=R.random() < 0.4, mlp_bias=R.random() < 0.4)
    return c


def nemotron(R):
    c = partial(R, llama(R, "nemotron", ropes=("default", "default", "linear", "yarn"), dims=(8, 12, 16)), 0.5, 1.0)
    c["norm_eps"] = c.pop("rms_norm_eps")
    if "head_dim" in c:
        c["head_dim"] = R.choice([8, 12])
    c.update(attention_bias=R.random() < 0.4, mlp_bias=R.random() < 0.4)
    return c


def phi(R):
    c = partial(R, llama(R, "phi", head_dim=False, ropes=("default", "default", "linear", "yarn"), dims=(8, 12, 16)), 0.5, 1.0)
    c["layer_norm_eps"] = c.pop("rms_norm_eps")
    c["qk_layernorm"] = R.random() < 0.5
    return c


def helium(R):
    c = llama(R, "helium", head_dim=False)
    c.update(head_dim=c["hidden_size"] // c["num_attention_heads"], attention_bias=R.random() < 0.4, mlp_bias=R.random() < 0.4)
    return c


def olmo(R, clips=False):
    c = llama(R, "olmo", head_dim=False)
    c.pop("rms_norm_eps")
    c["attention_bias"] = R.random() < 0.3
    if clips:
        c["clip_qkv"] = R.choice([0.5, 1.0, 2.0])
    return c


def falcon(R, form, alibi=False):
    """The forms are that of 7B (one key head), of 40B (grouped) and of models without sharing, falcon-rw among them with alibi."""
    c = llama(R, "falcon", head_dim=False, ropes=("default", "default", "linear", "yarn"))
    for name in ("rms_norm_eps", "num_key_value_heads", "intermediate_size", "hidden_act"):
        c.pop(name, None)
    heads = c["num_attention_heads"]
    c.update(layer_norm_epsilon=R.choice([1e-5, 1e-3]), bias=R.random() < 0.4, alibi=alibi, ffn_hidden_size=R.choice([None, 20, 36]),
             activation=R.choice(["gelu", "gelu", "relu"]), new_decoder_architecture=form == "grouped", multi_query=form != "own")
    if form == "grouped":
        c.update(num_kv_heads=R.choice([k for k in (1, 2, 3, 4) if heads % k == 0]), num_ln_in_parallel_attn=R.choice([1, 2]))
    else:
        c.update(parallel_attn=R.random() < 0.5, num_kv_heads=R.choice([None, heads]) if form == "own" else R.choice([None, 1, heads]))
    return c


def persimmon(R):
    c = partial(R, llama(R, "persimmon", head_dim=False, ropes=("default", "default", "linear"), dims=(8, 12, 16)), 0.5, 1.0)
    c.pop("num_key_value_heads")
    c["layer_norm_eps"] = c.pop("rms_norm_eps")
    c["qk_layernorm"] = R.random() < 0.6
    return c


def gpt_neox_japanese(R):
    c = llama(R, "gpt_neox_japanese", head_dim=False, ropes=("default",), dims=(8, 12, 16))
    theta = R.choice([10000.0, 500.0])
    for name in ("num_key_value_heads", "intermediate_size", "rope_theta", "rope_scaling", "rope_parameters"):
        c.pop(name, None)
    c.update(layer_norm_eps=c.pop("rms_norm_eps"), intermediate_multiple_size=R.choice([1, 2, 3]))
    c["hidden_act"] = R.choice(["gelu", "gelu", "relu"])
    if "dtype" in c:
        c["rope_parameters"] = dict(rope_type=R.choice(["default", "linear"]), rope_theta=theta, partial_rotary_factor=R.choice([0.5, 1.0]), factor=2.0)
    else:
        c.update(rotary_emb_base=theta, rotary_pct=R.choice([0.5, 1.0]))
    return c


def ctrl(R):
    heads = R.choice([1, 2, 3, 4, 5] if getattr(R, "wide", False) else [2, 3])
    return dict(model_type="ctrl", vocab_size=R.choice([60, 64, 71]), n_positions=128, n_embd=heads * R.choice([6, 8, 14]), dff=R.choice([20, 24, 36]), n_layer=R.choice([2, 3]),
                n_head=heads, layer_norm_epsilon=R.choice([1e-6, 1e-3]), bos_token_id=1, eos_token_id=2, pad_token_id=0,
                **{R.choice(["dtype", "torch_dtype"]): R.choice(["bfloat16", "float16"])})


def modernbert_decoder(R):
    c = llama(R, "modernbert-decoder", head_dim=False, ropes=("default",))
    for name in ("num_key_value_heads", "rope_theta", "rope_scaling", "rope_parameters"):
        c.pop(name, None)
    n = c["num_hidden_layers"] = R.choice([3, 4])
    c.update(norm_eps=c.pop("rms_norm_eps"), local_attention=R.choice([4, 9, 16]), norm_bias=R.random() < 0.4, attention_bias=R.random() < 0.4, mlp_bias=R.random() < 0.4,
             decoder_bias=R.random() < 0.7, classifier_bias=R.random() < 0.4)
    if "hidden_act" in c:
        c["hidden_activation"] = c.pop("hidden_act")
    if R.random() < 0.4:
        c["classifier_activation"] = R.choice(ACTS)
    if "dtype" in c:  # as transformers saves it
        c["layer_types"] = [R.choice(["full_attention", "sliding_attention"]) for _ in range(n - 1)] + ["sliding_attention"]
        c["rope_parameters"] = dict(full_attention=dict(rope_type="default", rope_theta=50000.0), sliding_attention=dict(rope_type="default", rope_theta=1000.0))
        if R.random() < 0.5:
            c["rope_parameters"]["full_attention"].update(rope_type="linear", factor=2.0)
        return c
    c.update(global_attn_every_n_layers=R.choice([2, 3]), global_rope_theta=R.choice([160000.0, 500.0]), local_rope_theta=R.choice([10000.0, 100.0]))
    return c


def gpt(R, model_type):
    """GPT-2's relatives, with the fields that their configs have."""
    heads = R.choice([2, 3, 4])
    dim = R.choice([8, 12, 16])
    names = dict(hidden_size="hidden_size", inner="intermediate_size", layers="num_layers", heads="num_heads", context="max_position_embeddings") if model_type == "gpt_neo" else \
        dict(hidden_size="n_embd", inner="n_inner", layers="n_layer", heads="n_head", context="n_positions")
    c = dict(model_type=model_type, vocab_size=R.choice([60, 64, 71]), activation_function=R.choice(["gelu_new", "gelu_pytorch_tanh", "relu"]),
             layer_norm_epsilon=R.choice([1e-5, 1e-3]), bos_token_id=1, eos_token_id=2)
    c.update({names["hidden_size"]: heads * dim, names["heads"]: heads, names["layers"]: R.choice([2, 3]), names["inner"]: R.choice([None, 20, 36]), names["context"]: 128})
    c["dtype" if R.random() < 0.5 else "torch_dtype"] = R.choice(["bfloat16", "float16"])
    if R.random() < 0.5:
        c["tie_word_embeddings"] = R.random() < 0.5
    if model_type == "gpt_neo":
        kinds = R.choice([["global", "local"], ["local", "global"], ["local"]])
        c.update(num_layers=2, attention_types=[[kinds, 2 // len(kinds)]], window_size=R.choice([6, 8]))
    elif model_type in ("gptj", "codegen"):
        c["rotary_dim"] = R.choice([2, 4, 8])
    else:
        c.update(multi_query=R.random() < 0.6, scale_attn_weights=R.random() < 0.8, attention_softmax_in_fp32=R.random() < 0.5)
    return c


def openai_gpt(R):
    c = gpt(R, "openai-gpt")
    for name in ("multi_query", "scale_attn_weights", "attention_softmax_in_fp32", "n_inner", "activation_function"):
        c.pop(name)
    if R.random() < 0.6:
        c["afn"] = R.choice(["gelu", "relu", "silu", "swish"])
    return c


def opt(R):
    c = llama(R, "opt", head_dim=False)
    for name in ("rms_norm_eps", "num_key_value_heads", "rope_parameters", "rope_theta", "rope_scaling", "hidden_act", "tie_word_embeddings"):
        c.pop(name, None)
    c.update(ffn_dim=c.pop("intermediate_size"), pad_token_id=R.choice([0, 1]), activation_function=R.choice(["relu", "relu", "gelu"]), do_layer_norm_before=R.random() < 0.7,
             word_embed_proj_dim=R.choice([None, c["hidden_size"], 10]), enable_bias=R.random() < 0.7, layer_norm_elementwise_affine=R.random() < 0.7,
             _remove_final_layer_norm=R.random() < 0.2)
    return c


def bloom(R):
    heads = R.choice([2, 3, 4, 6])
    c = dict(model_type="bloom", vocab_size=llama(R, "bloom")["vocab_size"], hidden_size=heads * R.choice([6, 8, 14]), n_layer=R.choice([2, 3]), n_head=heads,
             layer_norm_epsilon=R.choice([1e-5, 1e-3]), tie_word_embeddings=R.random() < 0.7, dtype=R.choice(["float32", "bfloat16", "float16"]), bos_token_id=1, eos_token_id=2, pad_token_id=0)
    if R.random() < 0.5:
        c.update(n_embed=c.pop("hidden_size"), num_hidden_layers=c.pop("n_layer"), num_attention_heads=c.pop("n_head"))
    return c


def mpt(R, clips=False):
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


def biogpt(R):
    c = llama(R, "biogpt", head_dim=False)
    for name in ("rms_norm_eps", "num_key_value_heads", "rope_parameters", "rope_theta", "rope_scaling", "hidden_act"):
        c.pop(name, None)
    c.update(hidden_act=R.choice(["gelu", "gelu", "relu"]), scale_embedding=R.random() < 0.7, layer_norm_eps=R.choice([1e-12, 1e-3]),
             tie_word_embeddings=R.random() < 0.7, pad_token_id=1, bos_token_id=0)
    return c


def xglm(R):
    heads = R.choice([2, 3, 4])
    return dict(model_type="xglm", vocab_size=R.choice([60, 64, 71]), d_model=heads * R.choice([6, 8, 14]), ffn_dim=R.choice([20, 24, 36]), num_layers=R.choice([2, 3]),
                attention_heads=heads, max_position_embeddings=128, activation_function=R.choice(["gelu", "gelu", "relu"]), scale_embedding=R.random() < 0.7,
                tie_word_embeddings=R.random() < 0.7, dtype=R.choice(["float32", "bfloat16", "float16"]), bos_token_id=0, eos_token_id=2, pad_token_id=1)


# The makers, each with the seeds of the committed fixtures.
MAKERS = {
    "arcee": (arcee, [1, 2]),
    "biogpt": (biogpt, [1, 2]),
    "bloom": (bloom, [1, 2, 3]),
    "codegen": (lambda R: gpt(R, "codegen"), [1, 2]),
    "ctrl": (ctrl, [1, 2]),
    "falcon_alibi": (lambda R: falcon(R, "own", True), [1, 2]),
    "falcon_grouped": (lambda R: falcon(R, "grouped"), [1, 2]),
    "falcon_own": (lambda R: falcon(R, "own"), [1]),
    "falcon_shared": (lambda R: falcon(R, "shared"), [1, 2]),
    "gpt_bigcode": (lambda R: gpt(R, "gpt_bigcode"), [1, 2]),
    "gpt_neo": (lambda R: gpt(R, "gpt_neo"), [1, 2]),
    "gpt_neox": (gpt_neox, [1]),
    "gpt_neox_japanese": (gpt_neox_japanese, [1, 16]),
    "gptj": (lambda R: gpt(R, "gptj"), [1, 2]),
    "helium": (helium, [1]),
    "modernbert_decoder": (modernbert_decoder, [1, 2]),
    "mpt": (mpt, [1, 5, 7]),
    "mpt_clip": (lambda R: mpt(R, True), [5]),
    "nemotron": (nemotron, [1, 2]),
    "olmo": (olmo, [1, 2]),
    "olmo_clip": (lambda R: olmo(R, True), [1]),
    "openai_gpt": (openai_gpt, [1]),
    "opt": (opt, [2, 9, 10, 13]),
    "persimmon": (persimmon, [1, 2]),
    "phi": (phi, [1, 2, 3]),
    "xglm": (xglm, [1, 2]),
}
