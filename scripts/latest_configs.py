"""Configs of small models of the families that transformers added last, for make-family-fixtures.py.

latest is the part of family_configs.FAMILIES for these families.
"""
from late_configs import kinds, windowed
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.rwkv.modeling_rwkv import RwkvModel
from transformers.models.step3p7.modeling_step3p7 import Step3p7PreTrainedModel, Step3p7TextConfig, Step3p7TextModel


class Step3p5ForCausalLM(Step3p7PreTrainedModel, GenerationMixin):
    """The text model of Step 3.7 with a head, which transformers has within the model of images alone."""

    config: Step3p7TextConfig
    config_class = Step3p7TextConfig
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = Step3p7TextModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids=None, labels=None, output_hidden_states=False, **kwargs):
        out = self.model(input_ids, output_hidden_states=output_hidden_states, **kwargs)
        logits = self.lm_head(out.last_hidden_state)
        loss = None if labels is None else self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=out.past_key_values, hidden_states=out.hidden_states)


AutoModelForCausalLM.register(Step3p7TextConfig, Step3p5ForCausalLM, exist_ok=True)


def rescaled(model, *args, **kwargs):
    """RWKV's halves of hidden states without a change of the weights, which would be saved: what a block adds is divided where it is made."""
    made(model, *args, **kwargs)
    model.layers_are_rescaled, every = True, model.config.rescale_every
    for i, block in enumerate(model.blocks):
        if every > 0:
            for linear in block.attention.output, block.feed_forward.value:
                linear.register_forward_hook(lambda _, __, y, by=2 ** (i // every): y / by)


made, RwkvModel.__init__, RwkvModel._rescale_layers = RwkvModel.__init__, rescaled, lambda model: None


def rwkv(R):
    hidden = R.choice([12, 16, 40, 72] if getattr(R, "wide", False) else [12, 16])
    c = dict(model_type="rwkv", vocab_size=R.choice([60, 64, 71]), hidden_size=hidden, num_hidden_layers=R.choice([2, 3]), layer_norm_epsilon=R.choice([1e-5, 1e-3]),
             rescale_every=R.choice([6, 1, 2, 0]), tie_word_embeddings=R.random() < 0.5, bos_token_id=1, eos_token_id=2,
             **{R.choice(["dtype", "torch_dtype"]): R.choice(["bfloat16", "float16"])})
    if R.random() < 0.7:
        c["intermediate_size"] = R.choice([20, 24, 36])
    if R.random() < 0.3:
        c["attention_hidden_size"] = hidden
    return c


def step3p5(R, llama):
    c = windowed(R, llama(R, "step3p5", ropes=("default",), dims=(6, 8)))
    n, keys = R.choice([3, 4]) if getattr(R, "wide", False) else 3, c["num_key_value_heads"]
    for name in ("rope_parameters", "rope_theta", "rope_scaling", "hidden_act"):
        c.pop(name, None)
    c.update(num_hidden_layers=n, head_dim=R.choice([8, 16] if getattr(R, "wide", False) else [8]), attention_bias=R.random() < 0.2, mlp_bias=R.random() < 0.2, moe_intermediate_size=R.choice([10, 12]),
             moe_router_scaling_factor=R.choice([1.0, 3.0]), layer_types=kinds(R, n, "full_attention", "sliding_attention"))
    sizes = dict(n_routed_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), share_expert_dim=R.choice([12, 18]))
    limits = lambda *of: [R.choice(of) for _ in range(n)]
    if R.random() < 0.8:
        c.update(swiglu_limits=limits(0, 0.3, 0.7, None), swiglu_limits_shared=limits(0.0, 0.4, 16))
    window, sparse = keys * R.choice([1, 2, 3]), [i for i in range(n) if R.random() < 0.7] or [n - 1]
    full = R.choice([dict(rope_type="default"), dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32),
                     dict(rope_type="llama3", factor=2.0, original_max_position_embeddings=32, low_freq_factor=1.0, high_freq_factor=4.0)])
    partial = R.choice([0.5, 1.0])
    if "dtype" in c:  # as transformers saves it
        c.update(sizes, mlp_layer_types=["sparse" if i in sparse else "dense" for i in range(n)], rope_parameters=dict(
            full_attention=dict(full, rope_theta=50000.0, partial_rotary_factor=partial), sliding_attention=dict(rope_type="default", rope_theta=1000.0)))
        if R.random() < 0.5:
            c["num_sliding_attention_heads"] = window
        if R.random() < 0.4:
            c["per_layer_config"] = {str(i): dict(num_attention_heads=keys * R.choice([1, 2, 3])) for i in range(n) if R.random() < 0.6}
        return c
    ahead = R.choice([0, 0, 1])  # layers that predict several tokens ahead, of which the lists speak
    c.update(num_attention_groups=c.pop("num_key_value_heads"), moe_num_experts=sizes["n_routed_experts"], moe_top_k=sizes["num_experts_per_tok"],
             share_expert_dim=sizes["share_expert_dim"], attention_other_setting=dict(num_attention_heads=window, num_attention_groups=keys),
             num_nextn_predict_layers=ahead)
    if R.random() < 0.7:
        c["moe_layers_enum"] = R.choice([",".join(map(str, sparse + [n] * ahead)), sparse])
    by_kind = lambda a, b: [a if kind == "full_attention" else b for kind in c["layer_types"]] + [b] * ahead
    c.update(rope_theta=R.choice([by_kind(50000.0, 1000.0), 10000.0]), rope_scaling=R.choice([full, None]))
    if R.random() < 0.7:
        c["partial_rotary_factors"] = by_kind(partial, 1.0)
    for name, more in ("layer_types", "sliding_attention"), ("swiglu_limits", 0.0), ("swiglu_limits_shared", 0.0):
        if name in c:
            c[name] = c[name] + [more] * ahead
    return c


def step3p5_published(name, t):
    """What published files have of a tensor: the mixture under moe, its gates apart, and the shared expert beside it."""
    for ours, theirs in ((".mlp.gate.e_score_correction_bias", ".moe.router_bias"), (".mlp.gate.", ".moe.gate."), (".mlp.shared_experts.", ".share_expert."),
                         (".mlp.experts.down_proj", ".moe.down_proj.weight")):
        name = name.replace(ours, theirs)
    if not name.endswith(".mlp.experts.gate_up_proj"):
        return [(name, t)]
    name = name.replace(".mlp.experts.gate_up_proj", ".moe.")
    return [(name + part + "_proj.weight", half.contiguous()) for part, half in zip(("gate", "up"), t.chunk(2, dim=1))]


def step3p7(R, llama, wrap):
    t = step3p5(R, llama)
    vision = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4, mlp_ratio=1.0)
    tie = dict(tie_word_embeddings=t.pop("tie_word_embeddings")) if R.random() < 0.7 else {}
    return wrap("step3p7", t, vision, "dtype" in t, image_token_id=5, **tie)


def axk2(R, sparse):
    c = sparse(R, "axk2")
    c.update(index_head_dim=R.choice([8, 12]), gated_norm_rank=R.choice([2, 3, 5]), num_experts_per_tok=2)
    for name in ("first_k_dense_replace", "n_group", "topk_group"):
        c.pop(name, None)
    if R.random() < 0.5:
        c.update(n_group=2, topk_group=1)
    if R.random() < 0.5:
        c["mlp_layer_types"] = kinds(R, c["num_hidden_layers"], "dense", "sparse")
    elif R.random() < 0.5:
        c.update(first_k_dense_replace=R.choice([0, 1]), moe_layer_freq=R.choice([1, 2]))
    return c


def mistral_large4(R, sparse, wrap):
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


def beam(R, llama):
    c = llama(R, "beam", ropes=("default",), dims=(6, 8))
    n, theta = R.choice([2, 3, 4]), R.choice([1000.0, 50000.0])
    for name in ("rope_parameters", "rope_theta", "rope_scaling", "dtype", "torch_dtype"):
        kept = c.pop(name, None)
        if "dtype" in name and kept:
            c["dtype"] = kept
    c.update(num_hidden_layers=n, head_dim=R.choice([6, 8]), attention_bias=R.random() < 0.3, sliding_window=R.choice([4, 8]), moe_intermediate_size=R.choice([10, 12]),
             num_experts=R.choice([4, 8]), num_experts_per_tok=R.choice([1, 2]), n_group=2, topk_group=R.choice([1, 2]), routed_scaling_factor=R.choice([1.0, 2.5]),
             norm_topk_prob=R.random() < 0.7, final_logit_softcapping=R.choice([3.0, 30.0, None]), mlp_layer_types=kinds(R, n, "dense", "sparse"),
             layer_types=kinds(R, n, "sliding_attention", "full_attention"))
    roped = dict(rope_type="default", rope_theta=theta)
    if R.random() < 0.6:
        yarn = dict(rope_type="yarn", rope_theta=theta, factor=4.0, original_max_position_embeddings=32)
        c["rope_parameters"] = dict(sliding_attention=R.choice([roped, roped, yarn, None] if getattr(R, "wide", False) else [roped]), full_attention=R.choice([None, None, roped]))
    return c


def inkling_text(R, common):
    v5 = R.random() < 0.5
    c = common(R, "inkling_text", v5)
    n, wide = R.choice([2, 3, 4]), getattr(R, "wide", False)
    c.update(num_hidden_layers=n, head_dim=R.choice([6, 8, 12]), swa_head_dim=R.choice([6, 8, 10]), d_rel=R.choice([2, 4, 6]), rel_extent=R.choice([4, 9, 40]), rms_norm_eps=R.choice([1e-5, 1e-3]),
             n_routed_experts=R.choice([4, 6]), num_experts_per_tok=R.choice([1, 2, 3]), n_shared_experts=R.choice([1, 2, 3] if wide else [1, 2]), route_scale=R.choice([1.0, 2.5]),
             logits_mup_width_multiplier=R.choice([0.5, 2.0]))
    keys = R.choice([1, 2])
    c.update(swa_num_key_value_heads=keys, swa_num_attention_heads=keys * R.choice([1, 2, 3]))
    c["sliding_window_size" if R.random() < 0.5 else "sliding_window"] = R.choice([3, 5, 8])
    c["conv_kernel_size" if v5 or R.random() < 0.5 else "sconv_kernel_size"] = R.choice([2, 3, 4])
    if R.random() < 0.5:
        c.update(log_scaling_n_floor=R.choice([3, 8]), log_scaling_alpha=R.choice([0.1, 0.6]))
    if R.random() < 0.5:
        c["unpadded_vocab_size"] = R.choice([50, 57])
    local, dense, inner = [i for i in range(n) if R.random() < 0.5], R.choice([0, 1, 2]), R.choice([10, 12])
    if v5:  # as transformers saves it
        c.update(layer_types=["hybrid_sliding" if i in local else "hybrid" for i in range(n)], mlp_layer_types=["dense" if i < dense else "sparse" for i in range(n)], moe_intermediate_size=inner)
        return c
    c.update(dense_mlp_idx=dense, dense_intermediate_size=c.pop("intermediate_size"), intermediate_size=inner)
    if R.random() < 0.8:
        c["local_layer_ids"] = local
    return c


def inkling(R, common, wrap):
    """transformers saves the names of published files, with rows of gate and up in turn."""
    t = inkling_text(R, common)
    vision = dict(patch_size=2, temporal_patch_size=2, num_hidden_layers=3)
    return wrap("inkling_mm_model", t, vision, "dtype" in t, audio_config=dict(n_mel_bins=2, mel_vocab_size=4), image_token_id=5, audio_token_id=6)


def zaya(R, llama):
    c = llama(R, "zaya", ropes=("default",), dims=(6, 8))
    n, wide, theta = R.choice([2, 3, 4]), getattr(R, "wide", False), R.choice([1000.0, 50000.0])
    for name in ("rope_parameters", "rope_theta", "rope_scaling", "intermediate_size"):
        c.pop(name, None)
    keys = R.choice([1, 2, 3] if wide else [1, 2])
    c.update(num_hidden_layers=n, head_dim=R.choice([6, 8, 12] if wide else [8]), num_key_value_heads=keys, num_attention_heads=keys * R.choice([1, 2, 3]), attention_bias=R.random() < 0.3,
             moe_intermediate_size=R.choice([10, 12]), num_experts=R.choice([3, 4]), router_hidden_size=R.choice([6, 10]), cca_time0=R.choice([2, 2, 3, 4]), lm_head_bias=R.random() < 0.3)
    if R.random() < 0.6:
        c.update(sliding_window=R.choice([3, 8]), layer_types=kinds(R, n, "hybrid_sliding", "hybrid"))
    if R.random() < 0.7:
        more = lambda: R.choice([{}, {}, dict(rope_type="linear", factor=2.0), dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)] if wide else [{}])
        partial = [dict(partial_rotary_factor=p) if p else {} for p in (R.choice([0.5, None, 1.0]), 0.5)]
        c["rope_parameters"] = {kind: dict(dict(rope_type="default", rope_theta=t, **p), **more()) for kind, t, p in (("hybrid", theta, partial[0]), ("hybrid_sliding", 500.0, partial[1]))}
    return c


def latest(llama, wrap, sparse, common):
    """The makers, each with the seeds of the committed fixtures. llama, sparse and common are family_configs'."""
    return {
        "beam": (lambda R: beam(R, llama), [3, 8]),
        "axk2": (lambda R: axk2(R, sparse), [6, 15]),
        "inkling": (lambda R: inkling(R, common, wrap), [20]),
        "inkling_text": (lambda R: inkling_text(R, common), [11, 24]),
        "mistral_large4": (lambda R: mistral_large4(R, sparse, wrap), [76, 77]),
        "rwkv": (rwkv, [1, 2]),
        "step3p5": (lambda R: step3p5(R, llama), [7, 13]),
        "step3p7": (lambda R: step3p7(R, llama, wrap), [1]),
        "zaya": (lambda R: zaya(R, llama), [1, 2]),
    }
