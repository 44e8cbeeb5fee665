"""Varies the configs of fresh models, for make-family-fixtures.py --fresh.

The makers of the families draw what a family's own files have. What follows applies to every family: all kinds of
ropes with prompts beyond the original context, fields that a file omits, windows shorter than a prompt, options that
a config class has and its maker does not draw, float32, lists of final tokens. The reference decides
what is a model: a config that it does not run is drawn again.

usual returns the makers of families whose committed fixtures other scripts make.
"""
import random

from transformers import AutoConfig

from families.shapes import llama

NAMES = ("rope_theta", "rope_scaling", "rope_parameters")
SWITCHES = ("attention_bias", "mlp_bias", "use_bias", "use_qkv_bias", "qkv_bias", "bias", "lm_head_bias", "norm_topk_prob", "use_qk_norm", "qk_layernorm",
            "tie_word_embeddings", "use_sliding_window", "scale_embedding", "use_parallel_residual", "parallel_attn", "use_expert_bias", "moe_gate_bias",
            "mamba_conv_bias", "mamba_proj_bias", "conv_bias", "use_conv_bias", "mamba_rms_norm", "use_post_norm", "scale_attn_weights",
            "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_bias", "enable_bias", "mup_enabled", "attention_out_bias", "rope_interleave",
            "use_double_wide_mlp", "attn_temperature_tuning", "add_qkv_bias", "add_swa_attention_sink_bias", "add_full_attention_sink_bias",
            "nope", "route_norm", "do_layer_norm_before", "add_rms_norm")
NUMBERS = {
    "sliding_window": (1, 2, 3, 5, 8, 16, 100), "routed_scaling_factor": (0.5, 1.0, 1.7), "final_logit_softcapping": (3.0, 30.0, None),
    "attn_logit_softcapping": (2.0, 50.0, None), "logit_scale": (0.1, 1.0), "rms_norm_eps": (1e-6, 1e-5, 1e-2), "layer_norm_eps": (1e-6, 1e-5, 1e-2),
    "norm_eps": (1e-6, 1e-2), "layer_norm_epsilon": (1e-6, 1e-2), "query_pre_attn_scalar": (4, 20), "embedding_multiplier": (0.5, 3.0),
    "attention_multiplier": (0.1, 0.7), "residual_multiplier": (0.5, 1.5), "logits_scaling": (0.7, 3.0), "max_window_layers": (0, 1, 2),
    "sliding_window_pattern": (1, 2, 3), "num_experts_per_tok": (1, 2, 3, 4), "topk_group": (1, 2), "first_k_dense_replace": (0, 1, 2), "n_shared_experts": (1, 2, 3),
    "moe_layer_freq": (1, 2), "decoder_sparse_step": (1, 2, 3), "scoring_func": ("softmax", "sigmoid"), "topk_method": ("greedy", "group_limited_greedy", "noaux_tc"),
    "swiglu_limit": (0.3, 2.0, 7.0), "global_attn_every_n_layers": (1, 2, 3),
    "attention_chunk_size": (2, 5, 100), "alpha": (1.0,), "clip_qkv": (0.5, 2.0, None), "shared_expert_intermediate_size": (10, 22), "num_shared_experts": (1, 2)}
ACTS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "relu2", "silu", "swish", "tanh", "sigmoid")
OMITTED = ("rms_norm_eps", "layer_norm_eps", "norm_eps", "layer_norm_epsilon", "hidden_act", "activation_function", "tie_word_embeddings", "num_key_value_heads",
           "head_dim", "rope_theta", "rope_scaling", "rope_parameters", "attention_bias", "mlp_bias", "use_bias", "norm_topk_prob", "n_group", "topk_group",
           "routed_scaling_factor", "sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "final_logit_softcapping",
           "attn_logit_softcapping", "query_pre_attn_scalar", "logit_scale", "embedding_multiplier", "attention_multiplier", "residual_multiplier",
           "logits_scaling", "bos_token_id", "eos_token_id", "pad_token_id", "partial_rotary_factor", "decoder_sparse_step", "mlp_only_layers", "qk_layernorm",
           "use_qk_norm", "scoring_func", "topk_method", "first_k_dense_replace", "n_shared_experts", "mlp_layer_types", "sliding_window_pattern",
           "no_rope_layers", "no_rope_layer_interval", "max_position_embeddings", "moe_layer_freq", "num_experts_per_tok", "rotary_dim", "rotary_pct",
           "use_parallel_residual", "swiglu_limit", "attention_chunk_size", "chunk_size", "mamba_chunk_size", "time_step_limit", "use_conv_bias", "q_lora_rank", "layer_rope_theta", "shared_intermediate_size")


# What Heft refuses by name, and the reference runs.
REFUSED = {"dots1": ("scoring_func",), "deepseek_v4": ("num_key_value_heads",), "internlm3": ("qkv_bias", "bias", "attention_bias", "mlp_bias"), "iquestcoder": ("attention_bias", "mlp_bias")}
LENGTHWISE = ("dynamic", "longrope")
SILU_ONLY = ("deepseek_v4", "lfm2", "lfm2_moe", "lfm3")


class Wide(random.Random):
    """Tells the makers to draw more widely."""
    wide = True


def ropes(R, kind, half, theta):
    """The parameters of a rope of a kind, shorter in its original context than prompts are, or longer."""
    original = R.choice([8, 10, 32])
    p = dict(rope_type=kind)
    if kind == "default":
        return p
    p["factor"] = R.choice([2.0, 4.0, 8, 1.5])
    if kind in ("yarn", "llama3", "longrope"):
        p["original_max_position_embeddings"] = original
    if kind == "llama3":
        p.update(R.choice([dict(low_freq_factor=1.0, high_freq_factor=4.0), dict(low_freq_factor=1, high_freq_factor=2), dict(low_freq_factor=0.5, high_freq_factor=8.0)]))
    if kind == "yarn":
        p.update(R.choice([{}, dict(attention_factor=R.choice([0.8, 1.3])), dict(mscale=1.0, mscale_all_dim=R.choice([0.5, 1.0])), dict(mscale=0.7),
                           dict(beta_fast=R.choice([4, 32.0]), beta_slow=R.choice([0.5, 1, 2]))]))
        if R.random() < 0.3:
            p["truncate"] = R.random() < 0.5
    if kind == "longrope":
        p.update(short_factor=[round(1 + R.random(), 3) for _ in range(half)], long_factor=[round(2 + R.random() * 4, 3) for _ in range(half)])
        if R.random() < 0.5:
            del p["factor"]
        if R.random() < 0.3:
            p["attention_factor"] = R.choice([0.9, 1.25])
    return p


def head_size(c):
    heads = c.get("num_attention_heads") or 1
    return c.get("qk_rope_head_dim") or c.get("head_dim") or c.get("hidden_size", 0) // heads


def rerope(R, c, defaults):
    """Another rope, where the config has one for all layers."""
    if c["model_type"] == "cohere2_moe" and "dtype" not in c:  # whose rope_scaling the reference ignores
        return
    flat = "rope_theta" in c or isinstance(c.get("rope_parameters"), dict) and "rope_theta" in c["rope_parameters"]
    if not flat or "mrope_section" in str(c) or R.random() < 0.4:
        return
    old = c.get("rope_parameters") or c
    theta, partial = old.get("rope_theta", 10000.0), old.get("partial_rotary_factor")
    share = partial or (defaults.get("rope_parameters") or {}).get("partial_rotary_factor") or defaults.get("partial_rotary_factor") or 1
    kind = R.choice(["linear", "dynamic", "yarn", "llama3", "longrope", "default"])
    if kind in LENGTHWISE and c["model_type"] == "deepseek_v4":  # Heft refuses frequencies that depend on the length beside compressed attention
        kind = "default"
    p = ropes(R, kind, int(head_size(c) * share) // 2, theta)
    if R.random() < 0.4:
        theta = R.choice([100, 500.0, 1000000.0])
    for name in NAMES:
        c.pop(name, None)
    if kind in ("dynamic", "longrope") and R.random() < 0.7:
        c["max_position_embeddings"] = 40  # Heft refuses what is longer, so dynamic ropes stay in their original context
    if "original_max_position_embeddings" in p and R.random() < 0.3:  # as Phi-3's files have it
        c["original_max_position_embeddings"] = p.pop("original_max_position_embeddings") if R.random() < 0.5 else p["original_max_position_embeddings"]
    if "dtype" in c:
        c["rope_parameters"] = dict(p, rope_theta=theta, **({"partial_rotary_factor": partial} if partial else {}))
        return
    c["rope_theta"] = theta
    if partial:
        c["partial_rotary_factor"] = partial
    if kind != "default" or R.random() < 0.3:
        spelling = R.choice(["type", "rope_type", "both"])
        c["rope_scaling"] = dict(p)
        if spelling != "rope_type":
            c["rope_scaling"]["type"] = kind
        if spelling == "type":
            del c["rope_scaling"]["rope_type"]


def vary(R, config):
    """Another config of the family of config, which may not be one that the reference runs."""
    c = config.get("text_config", config)
    try:
        defaults = AutoConfig.for_model(c["model_type"]).to_dict()
    except Exception:
        defaults = {}
    style = "dtype" if "dtype" in config else "torch_dtype"
    if R.random() < 0.35:
        for d in (config, c):
            d[style] = R.choice(["float32", "float16", "bfloat16"])
        c[style] = config[style]
    rerope(R, c, defaults)
    known = defaults.keys() | c.keys()
    for name in SWITCHES:
        if name in known and name not in REFUSED.get(c["model_type"], ()) and isinstance(c.get(name, defaults.get(name)), bool) and R.random() < 0.3:
            holder = config if name in config else c
            holder[name] = R.random() < 0.5
    for name, values in NUMBERS.items():
        if name in known and not isinstance(c.get(name), (dict, list)) and R.random() < 0.25 and name not in REFUSED.get(c["model_type"], ()):
            c[name] = R.choice(values)
    for name in ("hidden_act", "activation_function", "hidden_activation"):
        if name in known and c["model_type"] not in SILU_ONLY and R.random() < 0.2:
            c[name] = R.choice(ACTS)
    if "num_key_value_heads" in c and R.random() < 0.3 and "num_key_value_heads" not in REFUSED.get(c["model_type"], ()):
        c["num_key_value_heads"] = R.choice([1, c["num_attention_heads"], None])
    if "head_dim" in known and c["model_type"] not in ("mamba2", "mistral4") and R.random() < 0.2:
        c["head_dim"] = R.choice([4, 10, 18, 32, None])
    while R.random() < 0.5:
        name = R.choice(OMITTED)
        c.pop(name, None)
        if config is not c and R.random() < 0.5:
            config.pop(name, None)
    count = c.get("n_routed_experts") or c.get("num_experts") or 0
    groups = c.get("n_group", defaults.get("n_group")) or 1
    if groups > 1 and count:  # Heft refuses more experts than the chosen groups have
        c["num_experts_per_tok"] = max(1, min(c.get("num_experts_per_tok") or 2, count // groups * (c.get("topk_group") or 1)))
    if R.random() < 0.3:
        config["eos_token_id"] = [2, R.choice([3, 5])]
    return config


# Families whose committed fixtures other scripts make.

def usual():
    def with_fields(model_type, **kwargs):
        def maker(R, more=lambda R: {}):
            c = llama(R, model_type, **kwargs)
            c.update(more(R))
            return c
        return maker

    def simple(model_type, more, **kwargs):
        return lambda R: with_fields(model_type, **kwargs)(R, more)

    bias = lambda R, *names: {name: R.random() < 0.5 for name in names}
    window = lambda R: R.choice([None, 3, 8])

    def gpt2(R):
        heads = R.choice([1, 2, 3, 5])
        c = dict(model_type="gpt2", vocab_size=R.choice([60, 71]), n_embd=heads * R.choice([4, 6, 10]), n_head=heads, n_layer=R.choice([1, 2, 3]), n_positions=R.choice([64, 128]),
                 n_inner=R.choice([None, 20, 36]), activation_function=R.choice(["gelu_new", "gelu", "relu"]), layer_norm_epsilon=R.choice([1e-5, 1e-3]), bos_token_id=1,
                 eos_token_id=2, scale_attn_weights=R.random() < 0.7, scale_attn_by_inverse_layer_idx=R.random() < 0.3, reorder_and_upcast_attn=R.random() < 0.2)
        c[R.choice(["dtype", "torch_dtype"])] = R.choice(["bfloat16", "float16", "float32"])
        return c

    def norm(name, more):
        def maker(R):
            c = more(R)
            c[name] = c.pop("rms_norm_eps")
            return c
        return maker

    def longrope_phi3(R):
        c = llama(R, "phi3", head_dim=False, ropes=("default",))
        c["sliding_window"] = window(R)
        half = c["hidden_size"] // c["num_attention_heads"] // 2
        if R.random() < 0.7:
            p = dict(short_factor=[1 + i / 8 for i in range(half)], long_factor=[2.0 + i for i in range(half)])
            c["original_max_position_embeddings"] = R.choice([10, 16])
            if "rope_parameters" in c:
                c["rope_parameters"].update(p, rope_type="longrope", original_max_position_embeddings=c["original_max_position_embeddings"])
            else:
                c["rope_scaling"] = dict(p, type=R.choice(["longrope", "su"]))
        return c

    return {
        "llama": simple("llama", lambda R: bias(R, "attention_bias", "mlp_bias")),
        "mistral": simple("mistral", lambda R: dict(sliding_window=window(R))),
        "mixtral": simple("mixtral", lambda R: dict(sliding_window=window(R), num_local_experts=R.choice([3, 4, 8]), num_experts_per_tok=R.choice([1, 2, 3]))),
        "qwen3": simple("qwen3", lambda R: dict(bias(R, "attention_bias"), **R.choice([{}, dict(use_sliding_window=True, sliding_window=3, max_window_layers=1)]))),
        "granite": simple("granite", lambda R: dict(bias(R, "attention_bias", "mlp_bias"), embedding_multiplier=R.choice([1.0, 6.0]), logits_scaling=R.choice([0.5, 2.0]),
                                                    residual_multiplier=R.choice([0.3, 1.0]), attention_multiplier=R.choice([0.2, 0.5]))),
        "cohere": norm("layer_norm_eps", simple("cohere", lambda R: dict(bias(R, "attention_bias", "use_qk_norm"), logit_scale=R.choice([0.25, 0.5])), head_dim=False)),
        "stablelm": norm("layer_norm_eps", simple("stablelm", lambda R: dict(bias(R, "use_qkv_bias", "qk_layernorm", "use_parallel_residual"), **R.choice([{}, dict(partial_rotary_factor=0.5)])),
                                                  head_dim=False, dims=(8, 16))),
        "starcoder2": norm("norm_epsilon", simple("starcoder2", lambda R: dict(bias(R, "use_bias"), sliding_window=window(R)), head_dim=False)),
        "gpt_oss": simple("gpt_oss", lambda R: dict(bias(R, "attention_bias"), head_dim=R.choice([6, 8, 16]), sliding_window=R.choice([3, 8]), num_local_experts=R.choice([3, 4]),
                                                    num_experts_per_tok=R.choice([1, 2, 3]))),
        "phi3_long": longrope_phi3,
        "gpt2": gpt2,
    }
