"""Sizes, ropes and windows that makers of several families draw."""
import random

SCALINGS = {
    "linear": dict(factor=2.5),
    "dynamic": dict(factor=2.0),
    "yarn": dict(factor=4.0, original_max_position_embeddings=32),
    "llama3": dict(factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32),
}
ACTS = ["gelu", "gelu_pytorch_tanh", "relu", "silu"]


class Narrow(random.Random):
    """Draws the options that random.Random draws, and widths of heads of at most 8."""

    def choice(self, seq):
        drawn, numbers = super().choice(seq), [n for n in seq if type(n) is int]
        narrow = [n for n in numbers if n <= 8]
        return narrow[-1] if type(drawn) is int and drawn > 8 and narrow and min(numbers) >= 6 else drawn


def common(R, model_type, v5, heads=None, kv=True, dims=(6, 8, 10, 12, 16)):
    """Sizes that decoders share."""
    wide = getattr(R, "wide", False)
    heads = heads or R.choice([1, 2, 3, 4, 5, 7] if wide else [2, 3, 4])
    dim = R.choice(dims)
    c = dict(model_type=model_type, vocab_size=R.choice([60, 64, 71]), hidden_size=heads * dim,
             intermediate_size=R.choice([20, 24, 36]), num_hidden_layers=R.choice([2, 3]), num_attention_heads=heads,
             max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    if kv:
        c["num_key_value_heads"] = R.choice([k for k in range(1, 8 if wide else 5) if heads % k == 0])
    c["dtype" if v5 else "torch_dtype"] = R.choice(["bfloat16", "float16"])
    return c


def rope(R, c, v5, kinds=("default", "default", "linear", "yarn", "llama3"), theta=(10000.0, 50000.0), **more):
    """A rotary embedding, in one of the two forms. more are fields of the parameters."""
    kind = R.choice(kinds)
    scaling = dict(SCALINGS.get(kind, {}))
    base = R.choice(theta)
    if v5:
        c["rope_parameters"] = dict(rope_type=kind, rope_theta=base, **scaling, **more)
    else:
        c["rope_theta"] = base
        c["rope_scaling"] = None if kind == "default" else {R.choice(["type", "rope_type"]): kind, **scaling}
        c.update(more)


def llama(R, model_type="llama", head_dim=True, ropes=("default", "default", "linear", "yarn", "llama3"), **kwargs):
    v5 = R.random() < 0.5
    c = common(R, model_type, v5, **kwargs)
    c["rms_norm_eps"] = R.choice([1e-5, 1e-3])
    if head_dim and R.random() < 0.5:
        c["head_dim"] = R.choice([6, 8, 14])
    c["tie_word_embeddings"] = R.random() < 0.5
    if R.random() < 0.3:
        c["hidden_act"] = R.choice(["gelu", "gelu_pytorch_tanh", "relu"])
    rope(R, c, v5, ropes)
    return c


def wrap(model_type, text, vision, v5, **more):
    """Lifts what the whole config decides out of the text's."""
    c = dict(model_type=model_type, text_config=text, vision_config=dict(vision), **more)
    field = "dtype" if "dtype" in text else "torch_dtype"
    c[field] = text[field]
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        c[name] = text[name]
    return c


def untied(text, R, key="tie_word_embeddings"):
    return {key: text.pop(key, R.random() < 0.5)}


def windowed_kinds(R, n):
    """The types of n layers, both of them among the first two."""
    first = R.choice([["full_attention", "sliding_attention"], ["sliding_attention", "full_attention"]])
    return first + [R.choice(first) for _ in range(n - 2)]


def routed(R, c, count="n_routed_experts"):
    """Experts, some with groups."""
    c.update({count: R.choice([6, 8])}, num_experts_per_tok=R.choice([1, 2, 3]), moe_intermediate_size=R.choice([10, 12, 14]))


def partial(R, c, *choices):
    if R.random() < 0.6:
        (c["rope_parameters"] if "rope_parameters" in c else c)["partial_rotary_factor"] = R.choice(choices)
    return c


def windows(R, c):
    """A window in some layers, or in all of them, or none."""
    c["sliding_window"] = R.choice([8, 8, None])
    if c["sliding_window"] and R.random() < 0.6:
        c["layer_types"] = ["sliding_attention", "full_attention", "sliding_attention"][:c["num_hidden_layers"]]
    return c


def mixture(R, c, count):
    c.update({count: R.choice([4, 6])}, num_experts_per_tok=R.choice([1, 2]), moe_intermediate_size=R.choice([10, 12]), n_group=R.choice([1, 2]), topk_group=1,
             norm_topk_prob=R.random() < 0.7, routed_scaling_factor=R.choice([1.0, 2.5]))
    return c


def multipliers(R, c):
    c.update(embedding_multiplier=R.choice([1.0, 6.0]), logits_scaling=R.choice([0.5, 2.0]), residual_multiplier=R.choice([0.3, 1.0]),
             attention_multiplier=R.choice([0.2, 0.5]), attention_bias=R.random() < 0.3)
    return c


def typed_ropes(R, c, full, local):
    """Ropes by type of layers, as transformers 5 has them."""
    for name in ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"):
        c.pop(name, None)
    if R.random() < 0.8:
        c["rope_parameters"] = dict(full_attention=full, sliding_attention=local)
    return c


def step_limit(R, c):
    """A limit of the steps, in one of the forms of published files."""
    chosen = R.choice([None, [0.0, float("inf")], [0.05, 0.6], [0.1, {"__float__": "Infinity"}]])
    if chosen:
        c["time_step_limit"] = chosen
    return c


def kinds(R, n, *types):
    """Types of n layers, all of them among the first."""
    first = list(types)
    R.shuffle(first)
    return (first + [R.choice(first) for _ in range(n)])[:n]


def windowed(R, c, some=0.7):
    c["sliding_window"] = R.choice([5, 8])
    if R.random() < some:
        c["layer_types"] = kinds(R, c["num_hidden_layers"], "full_attention", "sliding_attention")
    return c


def shared_and_routed(R, c):
    c.update(num_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), moe_intermediate_size=R.choice([10, 12]),
             shared_expert_intermediate_size=R.choice([12, 18]))
    return c
