"""Makers of decoders whose tokens pass some blocks several times."""
from families.shapes import common, kinds, rope


def hrm_text(R):
    v5 = R.random() < 0.5
    c = common(R, "hrm_text", v5, kv=False)
    c.update(head_dim=R.choice([6, 8, 14]), H_cycles=R.choice([1, 2, 3]), L_cycles=R.choice([1, 2, 3]), initializer_range=R.choice([0.5, 1.0]), rms_norm_eps=R.choice([1e-6, 1e-3]),
             tie_word_embeddings=R.random() < 0.5, attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3, num_hidden_layers=R.choice([1, 2]))
    if R.random() < 0.7:  # all runs have gradients
        c["L_bp_cycles"] = [c["L_cycles"]] * c["H_cycles"]
    if R.random() < 0.3:
        c["embedding_scale"] = R.choice([1.5, 3.0])
    if v5:  # as transformers saves it
        c["num_layers_per_stack"] = c["num_hidden_layers"]
        c["num_hidden_layers"] *= c["H_cycles"] * (c["L_cycles"] + 1)
    rope(R, c, v5)
    return c


def dory(R):
    c = common(R, "dory", True)
    first, looped, last = R.choice([0, 1, 2]), R.choice([1, 2]), R.choice([0, 1])
    n = first + looped + last
    c.update(head_dim=R.choice([6, 8, 14]), num_hidden_layers=n, n_input_layers=first, n_recurrent_layers=looped, n_output_layers=last, n_recurrent_loops=R.choice([1, 2, 3]),
             sliding_window=R.choice([5, 8]), initializer_range=R.choice([0.5, 0.8]), ngpt_alpha_init=R.choice([0.2, 0.5]), attention_bias=R.random() < 0.3, mlp_bias=R.random() < 0.3,
             tie_word_embeddings=R.random() < 0.5, layer_types=kinds(R, n, "full_attention", "sliding_attention"))
    if R.random() < 0.3:
        c["n_recurrent_layers"] = None
    if R.random() < 0.5:
        c["rope_parameters"] = {kind: dict(rope_type="default", rope_theta=R.choice([500.0, 10000.0])) for kind in ("full_attention", "sliding_attention")}
    if R.random() < 0.5:  # as published
        c["layer_types"] = [t for kind in c["layer_types"] for t in (kind, "mlp")]
        for name in ("num_hidden_layers", "n_input_layers", "n_recurrent_layers", "n_output_layers"):
            c[name] = c[name] and 2 * c[name]
    return c


# The makers, each with the seeds of the committed fixtures.
MAKERS = {
    "hrm_text": (hrm_text, [7]),
    "dory": (dory, [2, 7]),
}
