"""Configs of small models of further decoders, for make-family-fixtures.py.

PLAINS is the part of family_configs.FAMILIES for these families.
"""

ACTS = ["gelu", "gelu_pytorch_tanh", "relu", "silu"]


def partial(R, c, *choices):
    if R.random() < 0.6:
        (c["rope_parameters"] if "rope_parameters" in c else c)["partial_rotary_factor"] = R.choice(choices)
    return c


def arcee(R, llama):
    c = llama(R, "arcee")
    c.update(attention_bias=R.random() < 0.4, mlp_bias=R.random() < 0.4)
    return c


def nemotron(R, llama):
    c = partial(R, llama(R, "nemotron", ropes=("default", "default", "linear", "yarn"), dims=(8, 12, 16)), 0.5, 1.0)
    c["norm_eps"] = c.pop("rms_norm_eps")
    if "head_dim" in c:
        c["head_dim"] = R.choice([8, 12])
    c.update(attention_bias=R.random() < 0.4, mlp_bias=R.random() < 0.4)
    return c


def phi(R, llama):
    c = partial(R, llama(R, "phi", head_dim=False, ropes=("default", "default", "linear", "yarn"), dims=(8, 12, 16)), 0.5, 1.0)
    c["layer_norm_eps"] = c.pop("rms_norm_eps")
    c["qk_layernorm"] = R.random() < 0.5
    return c


def helium(R, llama):
    c = llama(R, "helium", head_dim=False)
    c.update(head_dim=c["hidden_size"] // c["num_attention_heads"], attention_bias=R.random() < 0.4, mlp_bias=R.random() < 0.4)
    return c


def hunyuan(R, llama, moe):
    c = llama(R, "hunyuan_v1_moe" if moe else "hunyuan_v1_dense", ropes=("default", "default", "linear"))
    c.setdefault("head_dim", R.choice([6, 8, 14]))
    c["attention_bias"] = R.random() < 0.3
    if R.random() < 0.6:
        scaling = dict(alpha=R.choice([3.0, 1000.0]), factor=1.0)
        if "rope_parameters" in c:
            c["rope_parameters"] = dict(rope_type="dynamic", rope_theta=10000.0, **scaling)
        else:
            c["rope_scaling"] = dict(type="dynamic", beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0, **scaling)
    if moe:
        c["num_experts"] = R.choice([4, 6])
        c["moe_topk"] = R.choice([2, [R.choice([1, 2, 3]) for _ in range(c["num_hidden_layers"])]])
    return c


def dots1(R, llama):
    c = llama(R, "dots1")
    groups = R.choice([1, 1, 2])
    c.update(n_routed_experts=R.choice([4, 6]), num_experts_per_tok=2, n_shared_experts=R.choice([1, 2]), moe_intermediate_size=R.choice([10, 12]),
             first_k_dense_replace=R.choice([0, 1]), n_group=groups, topk_group=1, norm_topk_prob=R.random() < 0.7,
             routed_scaling_factor=R.choice([1.0, 2.5]), attention_bias=R.random() < 0.3, sliding_window=R.choice([None, 8]),
             scoring_func=R.choice(["noaux_tc", "sigmoid"]))
    if R.random() < 0.5:
        c["max_window_layers"] = 1
    elif c["sliding_window"]:
        c["layer_types"] = ["sliding_attention", "full_attention", "sliding_attention"][:c["num_hidden_layers"]]
    return c


def apertus(R, llama):
    c = llama(R, "apertus", ropes=("llama3", "llama3", "default", "linear"))
    c["attention_bias"] = R.random() < 0.3
    if R.random() < 0.8:
        c["hidden_act"] = "xielu"
    return c


def internlm3(R, llama):
    c = llama(R, "internlm3", ropes=("default", "dynamic", "linear"))
    bias = R.random() < 0.4
    c.update({"qkv_bias": bias, "bias": bias} if R.random() < 0.5 else {"attention_bias": bias, "mlp_bias": bias})
    return c


def iquestcoder(R, llama):
    c = llama(R, "iquestcoder")
    c.update(attention_bias=R.random() < 0.4, mlp_bias=R.random() < 0.4, clip_qkv=None)
    return c


def windows(R, c):
    """A window in some layers, or in all of them, or none."""
    c["sliding_window"] = R.choice([8, 8, None])
    if c["sliding_window"] and R.random() < 0.6:
        c["layer_types"] = ["sliding_attention", "full_attention", "sliding_attention"][:c["num_hidden_layers"]]
    return c


def ministral(R, llama):
    c = windows(R, llama(R, "ministral"))
    c["sliding_window"] = 8
    c.setdefault("head_dim", R.choice([6, 8, 14]))  # which the reference does not derive
    return c


def mixture(R, c, count):
    c.update({count: R.choice([4, 6])}, num_experts_per_tok=R.choice([1, 2]), moe_intermediate_size=R.choice([10, 12]), n_group=R.choice([1, 2]), topk_group=1,
             norm_topk_prob=R.random() < 0.7, routed_scaling_factor=R.choice([1.0, 2.5]))
    return c


def solar_open(R, llama):
    c = partial(R, mixture(R, llama(R, "solar_open"), "n_routed_experts"), 1.0)
    c.pop("intermediate_size")
    c.update(attention_bias=R.random() < 0.3, n_shared_experts=R.choice([1, 2]))
    return c


def exaone_moe(R, llama):
    c = windows(R, mixture(R, llama(R, "exaone_moe"), "num_experts"))
    c.update(num_shared_experts=R.choice([1, 2]), sliding_window=8)
    if R.random() < 0.5:
        c["mlp_layer_types"] = ["dense", "sparse", "sparse"][:c["num_hidden_layers"]]
    else:
        c["first_k_dense_replace"] = R.choice([0, 1])
    if "layer_types" not in c:
        c["sliding_window_pattern"] = R.choice([2, 3])
    return c


def flex_olmo(R, llama):
    c = llama(R, "flex_olmo", head_dim=False)
    c.update(num_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), norm_topk_prob=R.random() < 0.5, attention_bias=R.random() < 0.3)
    return c


def olmo(R, llama, clips=False):
    c = llama(R, "olmo", head_dim=False)
    c.pop("rms_norm_eps")
    c["attention_bias"] = R.random() < 0.3
    if clips:
        c["clip_qkv"] = R.choice([0.5, 1.0, 2.0])
    return c


def falcon(R, llama, form, alibi=False):
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


def persimmon(R, llama):
    c = partial(R, llama(R, "persimmon", head_dim=False, ropes=("default", "default", "linear"), dims=(8, 12, 16)), 0.5, 1.0)
    c.pop("num_key_value_heads")
    c["layer_norm_eps"] = c.pop("rms_norm_eps")
    c["qk_layernorm"] = R.random() < 0.6
    return c


def gpt_neox_japanese(R, llama):
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


def modernbert_decoder(R, llama):
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


def opt(R, llama):
    c = llama(R, "opt", head_dim=False)
    for name in ("rms_norm_eps", "num_key_value_heads", "rope_parameters", "rope_theta", "rope_scaling", "hidden_act", "tie_word_embeddings"):
        c.pop(name, None)
    c.update(ffn_dim=c.pop("intermediate_size"), pad_token_id=R.choice([0, 1]), activation_function=R.choice(["relu", "relu", "gelu"]), do_layer_norm_before=R.random() < 0.7,
             word_embed_proj_dim=R.choice([None, c["hidden_size"], 10]), enable_bias=R.random() < 0.7, layer_norm_elementwise_affine=R.random() < 0.7,
             _remove_final_layer_norm=R.random() < 0.2)
    return c


def jetmoe(R, llama):
    c = llama(R, "jetmoe", head_dim=False, dims=(6, 8, 10))
    for name in ("intermediate_size", "num_attention_heads"):
        c.pop(name)
    c["activation_function"] = c.pop("hidden_act", "silu")
    c.update(num_hidden_layers=2, num_key_value_heads=R.choice([1, 2, 3]), kv_channels=R.choice([6, 8]), intermediate_size=R.choice([6, 10]),
             num_local_experts=R.choice([3, 4, 5]), num_experts_per_tok=R.choice([1, 2, 3]))
    return c


def plains(llama):
    return {
        "arcee": (lambda R: arcee(R, llama), [1, 2]),
        "nemotron": (lambda R: nemotron(R, llama), [1, 2]),
        "phi": (lambda R: phi(R, llama), [1, 2, 3]),
        "helium": (lambda R: helium(R, llama), [1]),
        "hunyuan_v1_dense": (lambda R: hunyuan(R, llama, False), [1, 2]),
        "hunyuan_v1_moe": (lambda R: hunyuan(R, llama, True), [1, 26]),
        "apertus": (lambda R: apertus(R, llama), [1, 2, 3]),
        "internlm3": (lambda R: internlm3(R, llama), [1]),
        "iquestcoder": (lambda R: iquestcoder(R, llama), [1]),
        "ministral": (lambda R: ministral(R, llama), [1, 2]),
        "solar_open": (lambda R: solar_open(R, llama), [2, 20]),
        "exaone_moe": (lambda R: exaone_moe(R, llama), [1, 2]),
        "flex_olmo": (lambda R: flex_olmo(R, llama), [1]),
        "olmo": (lambda R: olmo(R, llama), [1, 2]),
        "olmo_clip": (lambda R: olmo(R, llama, True), [1]),
        "falcon_alibi": (lambda R: falcon(R, llama, "own", True), [1, 2]),
        "falcon_own": (lambda R: falcon(R, llama, "own"), [1]),
        "falcon_shared": (lambda R: falcon(R, llama, "shared"), [1, 2]),
        "falcon_grouped": (lambda R: falcon(R, llama, "grouped"), [1, 2]),
        "gpt_neo": (lambda R: gpt(R, "gpt_neo"), [1, 2]),
        "gptj": (lambda R: gpt(R, "gptj"), [1, 2]),
        "codegen": (lambda R: gpt(R, "codegen"), [1, 2]),
        "gpt_bigcode": (lambda R: gpt(R, "gpt_bigcode"), [1, 2]),
        "openai_gpt": (openai_gpt, [1]),
        "jetmoe": (lambda R: jetmoe(R, llama), [1, 2]),
        "opt": (lambda R: opt(R, llama), [2, 9, 10, 13]),
        "gpt_neox_japanese": (lambda R: gpt_neox_japanese(R, llama), [1, 16]),
        "ctrl": (ctrl, [1, 2]),
        "modernbert_decoder": (lambda R: modernbert_decoder(R, llama), [1, 2]),
        "persimmon": (lambda R: persimmon(R, llama), [1, 2]),
        "dots1": (lambda R: dots1(R, llama), [1, 2]),
    }
