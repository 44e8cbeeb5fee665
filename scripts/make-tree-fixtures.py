#!/usr/bin/env python3
"""Writes meta/testdata/trees.json.gz: module trees and derived values by transformers.

usage: make-tree-fixtures.py OUT.json.gz [SIZES.json [FAMILY...]]   (needs torch and transformers 5)

With families, their cases and sizes are added to the files, of which the others stay as they are.

One JSON object a line: a small config with some fields left out, the module tree it
makes, the epsilon, scale and window of its modules, and its rotary frequencies.
"""
import copy
import gzip
import json
import logging
import pathlib
import random
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMultimodalLM

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from families import FAMILIES
from families.reference import is_text_within, with_stacked_experts, without_experts_of_images, without_idle_experts, without_layers_of_images

transformers.logging.set_verbosity_error()
logging.disable(logging.CRITICAL)
R = random.Random(20)
PER_TYPE = 4
SCALINGS = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
}
FULL_ROPE = list(SCALINGS)
PLAIN_ROPE = ["default", "linear"]


def floats(config):
    """A copy with infinite numbers where the config names them."""
    return transformers.PreTrainedConfig._decode_special_floats(copy.deepcopy(config))


def tree(module):
    """The tree as the fixtures of device maps have it."""
    params, modules = {}, {}

    def node(m, path):
        if id(m) in modules:
            return {"same_as": modules[id(m)]}
        modules[id(m)] = path
        dot = path + "." if path else ""
        out = {"class": type(m).__name__}
        for name, p in m._parameters.items():
            if p is None:
                continue
            row = [name, list(p.shape), str(p.dtype).removeprefix("torch.")]
            if id(p) in params:
                row.append(params[id(p)])
            params.setdefault(id(p), dot + name)
            out.setdefault("params", []).append(row)
        for name, b in m._buffers.items():
            if b is not None:
                persistent = name not in m._non_persistent_buffers_set
                row = [name, list(b.shape), str(b.dtype).removeprefix("torch."), persistent]
                out.setdefault("buffers", []).append(row)
        for name, child in m._modules.items():
            if child is not None:
                out.setdefault("children", []).append([name, node(child, dot + name)])
        return out

    return node(module, "")


def values(model):
    """What modules keep of the config: {path: {name: value}}."""
    out = {}
    for path, m in model.named_modules():
        kept = {}
        for name in ("variance_epsilon", "eps", "scaling", "sliding_window"):
            if isinstance(getattr(m, name, ""), (int, float, type(None))):
                kept[name] = getattr(m, name)
        if getattr(m, "is_sliding", True) is False:
            kept.pop("sliding_window", None)
        if kept:
            out[path] = kept
    return out


def rotary(model, config):
    for path, m in model.named_modules():
        if path.endswith(("rotary_emb", "pos_emb")):
            real = type(m)(config)
            inv = {k: v.tolist() for k, v in real.named_buffers() if "original" not in k}
            if not any("inv_freq" in k for k in inv):  # codegen has sines and cosines instead
                return None
            scale = {k: float(v) for k, v in vars(real).items() if k.endswith("attention_scaling")}
            if getattr(config, "layer_rope_theta", None):  # a rope for each layer
                inv = {}
                for i, theta in enumerate(config.layer_rope_theta):
                    if theta:
                        own = copy.deepcopy(config)
                        own.rope_parameters = {**config.rope_parameters, "rope_theta": theta}
                        real = type(m)(own)
                        inv[f"layer_{i}_inv_freq"], scale[f"layer_{i}_attention_scaling"] = real.inv_freq.tolist(), float(real.attention_scaling)
            if hasattr(config, "rope_scaling_layers"):  # a rope that some layers do not scale
                ropes = {i: type(m)(config, scaled=i in config.rope_scaling_layers) for i in range(config.num_hidden_layers)}
                inv = {f"layer_{i}_inv_freq": r.inv_freq.tolist() for i, r in ropes.items()}
                scale = {f"layer_{i}_attention_scaling": float(r.attention_scaling) for i, r in ropes.items()}
            return {"inv": inv, "scale": scale}
    return None


def maybe(config, name, *choices):
    if R.random() < 0.5:
        config[name] = R.choice(choices)


def rope(config, types):
    kind = R.choice(types)
    if kind == "default":
        maybe(config, "rope_theta", 5e5, 10000)
        return
    scaling = {R.choice(["type", "rope_type"]): kind, **SCALINGS[kind]}
    if R.random() < 0.5:
        config["rope_scaling"] = scaling
        maybe(config, "rope_theta", 5e5, 10000)
    else:
        config["rope_parameters"] = {**scaling, "rope_theta": 12345.0}


def base(model_type):
    heads = R.choice([1, 2, 4])
    size = R.choice([8, 16, 32])
    c = dict(model_type=model_type, vocab_size=R.choice([50, 97]), hidden_size=heads * size,
             intermediate_size=R.choice([24, 40]), num_hidden_layers=R.choice([1, 2, 3]), num_attention_heads=heads,
             num_key_value_heads=R.choice([k for k in (1, 2, 4) if heads % k == 0]),
             max_position_embeddings=R.choice([64, 512]), pad_token_id=0)
    maybe(c, "tie_word_embeddings", True, False)
    maybe(c, R.choice(["torch_dtype", "dtype"]), "float32", "bfloat16", "float16")
    maybe(c, "attention_bias", True, False)
    return c


def llama_like(model_type, types=FULL_ROPE, head_dim=True):
    c = base(model_type)
    maybe(c, "mlp_bias", True, False)
    maybe(c, "rms_norm_eps", 1e-5, 1e-8)
    maybe(c, "hidden_act", "gelu", "gelu_new", "relu", "silu", "swish")
    maybe(c, "sliding_window", 8, None)
    if head_dim:
        maybe(c, "head_dim", 8, 24)
    rope(c, types)
    return c


def windows(c):
    maybe(c, "use_sliding_window", True, False)
    maybe(c, "max_window_layers", 0, 1)
    if R.random() < 0.4:
        kinds = ["sliding_attention", "full_attention"]
        c["layer_types"] = [R.choice(kinds) for _ in range(c["num_hidden_layers"])]
    return c


def qwen3(model_type):
    c = llama_like(model_type)
    c.setdefault("head_dim", 16)
    return c


def qwen3_moe():
    c = qwen3("qwen3_moe")
    c.update(num_experts=4, num_experts_per_tok=R.choice([1, 2]), moe_intermediate_size=12)
    maybe(c, "norm_topk_prob", True, False)
    maybe(c, "decoder_sparse_step", 1, 2)
    maybe(c, "mlp_only_layers", [0], [], None)
    maybe(c, "use_sliding_window", True, False)
    return c


def mixtral():
    c = llama_like("mixtral", PLAIN_ROPE)
    c.update(num_local_experts=R.choice([2, 4]))
    maybe(c, "num_experts_per_tok", 1, 2)
    return c


def gpt2():
    heads = R.choice([1, 2, 4])
    c = dict(model_type="gpt2", vocab_size=50, n_embd=8 * heads, n_head=heads, n_layer=R.choice([1, 2]))
    maybe(c, "n_positions", 32)
    maybe(c, "n_inner", None, 40)
    maybe(c, "activation_function", "gelu", "gelu_fast", "relu")
    maybe(c, "layer_norm_epsilon", 1e-6)
    maybe(c, "tie_word_embeddings", True, False)
    maybe(c, "scale_attn_weights", True, False)
    maybe(c, "scale_attn_by_inverse_layer_idx", True, False)
    return c


def gemma(model_type):
    c = llama_like(model_type, PLAIN_ROPE)
    c.pop("hidden_act", None)
    c.update(sliding_window=8, head_dim=R.choice([8, 16]))
    maybe(c, "hidden_activation", "gelu", "gelu_pytorch_tanh")
    maybe(c, "query_pre_attn_scalar", 24, 144)
    maybe(c, "attn_logit_softcapping", None, 2.0)
    maybe(c, "final_logit_softcapping", None, 8.0)
    return c


def gemma3():
    c = gemma("gemma3_text")
    for name in ("rope_scaling", "rope_parameters", "rope_theta"):
        c.pop(name, None)
    maybe(c, "sliding_window_pattern", 2, 3)
    dialect = R.choice(["published", "scaled", "nested", "none"])
    if dialect in ("published", "scaled"):
        c.update(rope_theta=500000, rope_local_base_freq=5000)
    if dialect == "scaled":
        c["rope_scaling"] = {"rope_type": "linear", "factor": 8.0}
    if dialect == "nested":
        c["rope_parameters"] = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}}
    return c


def phi3():
    c = llama_like("phi3", ["default"], head_dim=False)
    maybe(c, "partial_rotary_factor", 0.5)
    c["original_max_position_embeddings"] = 32
    if R.random() < 0.6:
        n = int(c["hidden_size"] // c["num_attention_heads"] * c.get("partial_rotary_factor", 1.0)) // 2
        c["rope_scaling"] = {"type": R.choice(["longrope", "su"]), "original_max_position_embeddings": 4096,
                             "short_factor": [1 + i / 8 for i in range(n)], "long_factor": [1 + i for i in range(n)]}
    return c


def granite():
    c = llama_like("granite")
    for name in ("embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier"):
        maybe(c, name, 0.5, 4.0)
    return c


def cohere():
    c = llama_like("cohere")
    maybe(c, "use_qk_norm", True, False)
    maybe(c, "layer_norm_eps", 1e-6)
    return c


def starcoder2():
    c = llama_like("starcoder2")
    maybe(c, "use_bias", True, False)
    maybe(c, "norm_epsilon", 1e-6)
    return c


def stablelm():
    c = llama_like("stablelm", PLAIN_ROPE, head_dim=False)
    for name in ("use_qkv_bias", "qk_layernorm", "use_parallel_residual"):
        maybe(c, name, True, False)
    maybe(c, "partial_rotary_factor", 0.5, 1.0)
    return c


def gpt_neox():
    c = base("gpt_neox")
    del c["num_key_value_heads"]
    maybe(c, "rotary_pct", 0.5, 1.0)
    maybe(c, "rotary_emb_base", 5000)
    maybe(c, "use_parallel_residual", True, False)
    maybe(c, "layer_norm_eps", 1e-6)
    return c


def deepseek_v3():
    c = base("deepseek_v3")
    c.update(num_key_value_heads=c["num_attention_heads"], kv_lora_rank=12, q_lora_rank=R.choice([None, 16]),
             qk_rope_head_dim=8, qk_nope_head_dim=R.choice([8, 16]), v_head_dim=R.choice([8, 24]),
             n_group=R.choice([1, 2]), topk_group=1, n_routed_experts=R.choice([4, 8]), num_experts_per_tok=2,
             moe_intermediate_size=12, first_k_dense_replace=R.choice([0, 1]), n_shared_experts=R.choice([1, 2]))
    maybe(c, "rms_norm_eps", 1e-5)
    if R.random() < 0.6:
        c["rope_scaling"] = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 64, "mscale": 1.0,
                             "mscale_all_dim": R.choice([1.0, 0.7])}
    return c


def gpt_oss():
    c = base("gpt_oss")
    c.update(head_dim=R.choice([8, 16]), num_local_experts=4, num_experts_per_tok=2)
    rope(c, ["default", "yarn"])
    maybe(c, "sliding_window", 8)
    return c


MAKERS = [
    lambda: llama_like("llama"), lambda: llama_like("mistral"), lambda: windows(llama_like("qwen2")),
    lambda: windows(qwen3("qwen3")), qwen3_moe, mixtral, gpt2, lambda: windows(gemma("gemma2")), gemma3,
    lambda: llama_like("olmo2", PLAIN_ROPE, head_dim=False), phi3, granite, cohere, starcoder2, stablelm, gpt_neox,
    deepseek_v3, gpt_oss,
]


def without_other_parts(model):
    """Takes the modules for images and sound out of Phi-4-multimodal. Cohere Compass has its frequencies in the order of a set, which differs between runs."""
    getattr(model, "model", model)._modules.pop("embed_tokens_extend", None)
    for m in model.modules():
        if type(m).__name__ == "CohereCompassRotaryEmbedding":
            m._buffers = dict(sorted(m._buffers.items()))


def case(config):
    made = AutoConfig.for_model(**floats(config))
    cls = AutoModelForMultimodalLM if is_text_within(config) else AutoModelForCausalLM
    with torch.device("meta"):
        model = with_stacked_experts(without_experts_of_images(without_layers_of_images(without_idle_experts(cls.from_config(made, dtype=made.dtype or torch.float32)))))
    model.tie_weights()
    without_other_parts(model)
    text = AutoConfig.for_model(**floats(config))
    if cls is AutoModelForMultimodalLM:  # the text model alone
        text = text.get_text_config()
        parts = getattr(model, "model", model)
        parts._parameters.clear()
        for name in list(parts._modules):
            if name not in ("language_model", "text_model"):
                del parts._modules[name]
    there = {type(m).__name__ for m in model.modules()}
    return dict(config=transformers.PreTrainedConfig._encode_special_floats(config), tree=tree(model), values=values(model), rope=rotary(model, text),
                no_split=sorted(there & set(model._no_split_modules)))


def sizes(names):
    """The number of parameters that each class has by its defaults, of text models alone."""
    out = {}
    for name in names:
        config = AutoConfig.for_model(name)
        wrapper = is_text_within(dict(config.to_dict(), model_type=name))
        cls = AutoModelForMultimodalLM if wrapper else AutoModelForCausalLM
        try:
            with torch.device("meta"):
                model = without_experts_of_images(without_layers_of_images(without_idle_experts(cls.from_config(config))))
        except (ValueError, TypeError, AttributeError, KeyError, ImportError):  # defaults that do not fit together: of a vision tower, of lfm2_moe, of dbrx
            continue
        model.tie_weights()
        without_other_parts(model)
        kept = ("model.language_model.", "model.text_model.", "language_model.", "lm_head.") if wrapper else ("",)
        out[name] = sum(p.numel() for n, p in model.named_parameters() if n.startswith(kept))
    return out


def main():
    added, lines, known = sys.argv[3:], [], {}
    configs = [] if added else [make() for make in MAKERS for _ in range(PER_TYPE)]
    configs += [maker(random.Random(f"{name} tree {i}")) for name, (maker, _) in FAMILIES.items() if not added or name in added for i in range(PER_TYPE)]
    types = {c["model_type"] for c in configs}
    if added:
        with gzip.open(sys.argv[1], "rt") as old:
            lines = [line for line in old.read().splitlines() if json.loads(line)["config"]["model_type"] not in types]
        known = json.loads(pathlib.Path(sys.argv[2]).read_text())
    lines += [json.dumps(case(c), separators=(",", ":")) for c in configs]
    with open(sys.argv[1], "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
        out.write(("\n".join(lines) + "\n").encode())
    if len(sys.argv) > 2:
        known.update(sizes(sorted(types)))
        with open(sys.argv[2], "w") as out:
            json.dump(dict(sorted(known.items())), out, indent=1)
            out.write("\n")


main()
