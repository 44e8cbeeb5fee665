"""Makers of decoders whose MLPs are dense."""
from families.experts import gemma4_text
from families.shapes import common, kinds, llama, multipliers, rope, shared_and_routed, windowed, windowed_kinds, windows


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
            c["layer_types"] = windowed_kinds(R, c["num_hidden_layers"])
    return c


def exaone4(R):
    c = llama(R, "exaone4")
    c["num_hidden_layers"] = R.choice([3, 4])
    c["sliding_window"] = R.choice([8, 8, None])
    if c["sliding_window"] is None or R.random() < 0.5:
        c["layer_types"] = windowed_kinds(R, c["num_hidden_layers"]) if c["sliding_window"] else ["full_attention"] * c["num_hidden_layers"]
    else:
        c["sliding_window_pattern"] = R.choice([2, 3])
    return c


def olmo3(R):
    c = llama(R, "olmo3", head_dim=False)
    c.update(num_hidden_layers=R.choice([3, 4]), sliding_window=8, attention_bias=R.random() < 0.3)
    if R.random() < 0.6:
        c["layer_types"] = windowed_kinds(R, c["num_hidden_layers"])
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


def gemma2(R):
    c = llama(R, "gemma2", head_dim=False)
    c.pop("hidden_act", None)
    c.update(head_dim=R.choice([6, 8, 14]), num_hidden_layers=R.choice([2, 3]), sliding_window=8, query_pre_attn_scalar=R.choice([8, 12]),
             attn_logit_softcapping=R.choice([None, 5.0]), final_logit_softcapping=R.choice([None, 8.0]))
    return c


def qwen2(R, model_type="qwen2"):
    c = llama(R, model_type, head_dim=model_type == "qwen3")
    if R.random() < 0.5:
        c.update(use_sliding_window=True, sliding_window=8, max_window_layers=R.choice([0, 1]))
    return c


def apertus(R):
    c = llama(R, "apertus", ropes=("llama3", "llama3", "default", "linear"))
    c["attention_bias"] = R.random() < 0.3
    if R.random() < 0.8:
        c["hidden_act"] = "xielu"
    return c


def internlm3(R):
    c = llama(R, "internlm3", ropes=("default", "dynamic", "linear"))
    bias = R.random() < 0.4
    c.update({"qkv_bias": bias, "bias": bias} if R.random() < 0.5 else {"attention_bias": bias, "mlp_bias": bias})
    return c


def iquestcoder(R):
    c = llama(R, "iquestcoder")
    c.update(attention_bias=R.random() < 0.4, mlp_bias=R.random() < 0.4, clip_qkv=None)
    return c


def ministral(R):
    c = windows(R, llama(R, "ministral"))
    c["sliding_window"] = 8
    c.setdefault("head_dim", R.choice([6, 8, 14]))  # which the reference does not derive
    return c


def cwm(R):
    c = llama(R, "cwm")
    c.update(sliding_window=8, mlp_bias=R.random() < 0.4)
    c.setdefault("head_dim", R.choice([6, 8, 14]))
    if R.random() < 0.6:
        c["layer_types"] = windowed_kinds(R, c["num_hidden_layers"])
    if R.random() < 0.3:
        for name in ("rope_parameters", "rope_theta", "rope_scaling"):
            c.pop(name, None)
    return c


def vaultgemma(R):
    c = llama(R, "vaultgemma", head_dim=False)
    c.pop("hidden_act", None)
    c.update(head_dim=R.choice([6, 8, 14]), sliding_window=8, query_pre_attn_scalar=R.choice([8, 12]), attn_logit_softcapping=R.choice([None, 5.0]),
             final_logit_softcapping=R.choice([None, 8.0]), attention_bias=R.random() < 0.3)
    if R.random() < 0.4:
        c["layer_types"] = windowed_kinds(R, c["num_hidden_layers"])
    return c


def exaone(R):
    c = llama(R, "exaone")
    c.update(attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3)
    if R.random() < 0.6:
        c.update(num_layers=c.pop("num_hidden_layers"), layer_norm_epsilon=c.pop("rms_norm_eps"), activation_function=c.pop("hidden_act", "silu"))
    return c


def hyperclovax(R):
    c = multipliers(R, llama(R, "hyperclovax"))
    c.update(mlp_bias=R.random() < 0.3, use_post_norm=R.random() < 0.7)
    if R.random() < 0.4:
        c["attention_multiplier"] = None
    return c


def jais2(R):
    c = llama(R, "jais2")
    c["layer_norm_eps"] = c.pop("rms_norm_eps")
    c.update(attention_bias=R.random() < 0.7, mlp_bias=R.random() < 0.7)
    return c


def nanochat(R):
    c = llama(R, "nanochat")
    c.update(final_logit_softcapping=R.choice([15.0, 4.0]), attention_bias=R.random() < 0.3)
    return c


def bitnet(R):
    c = llama(R, "bitnet", head_dim=False)
    c["attention_bias"] = R.random() < 0.3
    return c


def gemma3n_text(R):
    c = llama(R, "gemma3n_text", head_dim=False)
    for name in ("hidden_act", "rope_parameters", "rope_theta", "rope_scaling"):
        c.pop(name, None)
    n = R.choice([4, 5, 6])
    inner = R.choice([20, 36])
    c.update(num_hidden_layers=n, head_dim=R.choice([8, 14, 16]), sliding_window=8, rms_norm_eps=1e-5, attention_bias=R.random() < 0.3, tie_word_embeddings=R.random() < 0.7,
             intermediate_size=R.choice([inner, [inner + 2 * (i % 3) for i in range(n)]]), final_logit_softcapping=R.choice([8.0, 30.0]),
             hidden_activation=R.choice(["gelu_pytorch_tanh", "gelu_pytorch_tanh", "silu"]), layer_types=windowed_kinds(R, n), hidden_size_per_layer_input=R.choice([4, 6]),
             vocab_size_per_layer_input=c["vocab_size"] - R.choice([0, 0, 9]), num_kv_shared_layers=R.choice([0, 1, 2, n - 2]), laurel_rank=R.choice([3, 6]),
             altup_num_inputs=R.choice([1, 2, 3, 4, 4]), altup_correct_scale=R.random() < 0.7,
             activation_sparsity_pattern=[R.choice([0.0, 0.3, 0.5, 0.95]) for _ in range(n)])
    c["altup_active_idx"] = R.choice([0, 0, c["altup_num_inputs"] - 1])
    if R.random() < 0.5:
        c["rope_parameters"] = dict(full_attention=dict(rope_type=R.choice(["default", "linear"]), rope_theta=R.choice([5000.0, 50000.0]), factor=2.0),
                                    sliding_attention=dict(rope_type="default", rope_theta=1000.0))
    elif R.random() < 0.5:
        c.update(rope_theta=50000.0, rope_local_base_freq=1000.0)
    return c


def kolibri1(R):
    c = shared_and_routed(R, windowed(R, llama(R, "kolibri1")))
    c.pop("intermediate_size")
    c.update(norm_topk_prob=R.random() < 0.6, head_dim=R.choice([6, 8, 14]))
    if R.random() < 0.2:
        c.update(sliding_window=None, layer_types=["full_attention"] * c["num_hidden_layers"])
    return c


def flint(R):
    c = shared_and_routed(R, windowed(R, llama(R, "flint")))
    c.update(norm_topk_prob=R.random() < 0.6, head_dim=R.choice([6, 8, 14]), attention_bias=R.random() < 0.3)
    if R.random() < 0.7:
        c["mlp_only_layers"] = R.choice([[], [0], [1]])
    if R.random() < 0.3:
        c["decoder_sparse_step"] = 2
    return c


def laguna(R):
    c = shared_and_routed(R, windowed(R, llama(R, "laguna", ropes=("default",))))
    n, keys = c["num_hidden_layers"], c["num_key_value_heads"]
    for name in ("rope_parameters", "rope_theta", "rope_scaling"):
        c.pop(name, None)
    c.update(head_dim=R.choice([8, 16]), attention_bias=R.random() < 0.3, gating=R.choice([True, "per-head", "per-element"]),
             moe_routed_scaling_factor=R.choice([1.0, 2.5]), moe_router_logit_softcapping=R.choice([0.0, 0.0, 1.5]))
    if R.random() < 0.6:
        c["num_attention_heads_per_layer"] = [keys * R.choice([1, 2, 3]) for _ in range(n)]
    if R.random() < 0.5:
        c["mlp_layer_types"] = ["sparse"] + [R.choice(["dense", "sparse"]) for _ in range(n - 1)]
    if R.random() < 0.6:
        full = R.choice([dict(rope_type="default"), dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)])
        c["rope_parameters"] = dict(full_attention=dict(full, rope_theta=50000.0, partial_rotary_factor=R.choice([0.5, 1.0])),
                                    sliding_attention=dict(rope_type="default", rope_theta=1000.0))
    return c


def gemma4_unified_text(R):
    c = gemma4_text(R, R.choice(["dense", "small"]))
    c["model_type"] = "gemma4_unified_text"
    for name in ("hidden_size_per_layer_input", "vocab_size_per_layer_input"):
        c.pop(name, None)
    return c


def apertus1p5_text(R):
    c = llama(R, "apertus1p5_text", ropes=("llama3", "llama3", "default", "linear"))
    c["attention_bias"] = R.random() < 0.3
    if R.random() < 0.8:
        c["hidden_act"] = "xielu"
    if R.random() < 0.7:
        c.update(output_vocab_size=c["vocab_size"] - R.choice([0, 6, 17]), tie_word_embeddings=False)
    return c


def diffllama(R):
    c = llama(R, "diffllama", dims=(6, 8), heads=R.choice([4, 6]))
    heads = c["num_attention_heads"]
    c.update(num_key_value_heads=R.choice([k for k in (2, 4, 6) if heads % k == 0]), attention_bias=R.random() < 0.3)
    return c


def doge(R):
    c = llama(R, "doge", dims=(6, 8))
    c.update(attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3, keep_window_size=R.choice([3, 6, 100, 100]))
    if R.random() < 0.2:
        c.update(sliding_window=5, keep_window_size=8)
    return c


def cohere_compass_text(R):
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


# The makers, each with the seeds of the committed fixtures.
MAKERS = {
    "apertus": (apertus, [1, 2, 3]),
    "apertus1p5_text": (apertus1p5_text, [1, 2, 3]),
    "bitnet": (bitnet, [1, 2]),
    "cohere2": (cohere2, [1, 2]),
    "cohere_compass_text": (cohere_compass_text, [3]),
    "cwm": (cwm, [1, 2]),
    "diffllama": (diffllama, [3, 7]),
    "doge": (doge, [1, 5]),
    "ernie4_5": (ernie4_5, [1]),
    "exaone": (exaone, [1, 2]),
    "exaone4": (exaone4, [1, 2]),
    "flint": (flint, [1, 2]),
    "gemma": (gemma, [1]),
    "gemma2": (gemma2, [1]),
    "gemma3_text": (gemma3_text, [1]),
    "gemma3n_text": (gemma3n_text, [1, 2, 3]),
    "gemma4_unified_text": (gemma4_unified_text, [1]),
    "glm": (lambda R: glm4(R, "glm"), [1]),
    "glm4": (glm4, [1, 2]),
    "hyperclovax": (hyperclovax, [1, 2]),
    "internlm3": (internlm3, [1]),
    "iquestcoder": (iquestcoder, [1]),
    "jais2": (jais2, [1, 2]),
    "kolibri1": (kolibri1, [1, 2]),
    "laguna": (laguna, [1, 2, 3]),
    "ministral": (ministral, [1, 2]),
    "ministral3": (ministral3, [1, 2]),
    "nanochat": (nanochat, [1, 2]),
    "olmo2": (lambda R: llama(R, "olmo2", head_dim=False), [1]),
    "olmo3": (olmo3, [1, 2]),
    "phi3": (lambda R: llama(R, "phi3", head_dim=False, ropes=("default",)), [1]),
    "qwen2": (qwen2, [1]),
    "seed_oss": (seed_oss, [1]),
    "smollm3": (smollm3, [1, 2]),
    "vaultgemma": (vaultgemma, [1]),
}
