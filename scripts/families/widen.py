"""Widens fresh models beyond vary.py, for make-family-fixtures.py --fresh.

widen changes any field that a config class has, known by name or not: Heft must compute what the
reference computes, or refuse the field. disguise rewrites the files of a model in other forms that
the reference loads alike: other names, dtypes by tensor, tensors that nothing reads.
"""
import json

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

# Fields that change training, logging or special tokens, and none of the logits.
NOISE = ("dropout", "pdrop", "layerdrop", "jitter", "initializer", "init_", "_init", "output_", "return_", "use_cache", "token_id", "loss", "summary", "version", "chunk_size_feed",
         "is_encoder", "is_decoder", "cross_attention", "time_step_", "kernels", "associative", "mambapy", "mem_eff", "problem_type", "name_or_path", "pretraining", "tie_word", "z_loss",
         "initialized", "model_type", "nextn", "mtp", "num_logits", "slow_but", "classifier", "cutoff", "_max", "_min", "long_context", "dtype", "train", "lambda_std", "cache", "bidirectional")
SIZES = {
    "intermediate_size": (9, 17, 33, 40, 70, 129), "moe_intermediate_size": (5, 9, 17, 33), "kv_lora_rank": (5, 17, 34), "q_lora_rank": (5, 17, 34), "v_head_dim": (5, 7, 18),
    "qk_nope_head_dim": (5, 7, 18), "qk_rope_head_dim": (2, 6, 12), "shared_expert_intermediate_size": (5, 9, 33), "ffn_hidden_size": (9, 33), "n_inner": (9, 33), "ffn_dim": (9, 33),
    "head_dim": (2, 6, 22, 40, 72, 80, 128), "intermediate_size_mlp": (9, 33), "expert_ffn_hidden_size": (9, 33), "index_head_dim": (8, 16, 34), "index_topk": (1, 2, 3, 17),
    "global_head_dim": (4, 12, 40), "num_hidden_layers": (1, 2, 4, 5), "hidden_size": (10, 18, 33, 50, 66, 100), "vocab_size": (33, 61, 97, 131, 257), "num_kv_shared_layers": (1, 2),
    "num_nextn_predict_layers": (0, 1), "conv_L_cache": (1, 2, 3, 4), "conv_kernel": (2, 3, 4), "mamba_d_conv": (2, 3, 4), "linear_conv_kernel_dim": (2, 3, 4)}
EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
TOP = ("num_experts_per_tok", "moe_k", "moe_topk", "top_k_experts", "num_experts_per_token")


def is_noise(name):
    return any(part in name for part in NOISE)


def scalars(R, c, known):
    for name, value in known.items():
        if is_noise(name) or name in SIZES or name in EXPERTS or name in TOP:
            continue
        if isinstance(value, bool):
            if R.random() < 0.06:
                c[name] = not value
        elif isinstance(value, float) and R.random() < 0.08:
            c[name] = round(value * R.choice([0.5, 0.9, 1.7]), 9)


def sizes(R, c, known):
    for name, values in SIZES.items():
        if isinstance(known.get(name), int) and not (name == "head_dim" and "qk_rope_head_dim" in known) and R.random() < 0.12:
            c[name] = R.choice(values)
    for name in EXPERTS:
        if isinstance(known.get(name), int) and known[name] and R.random() < 0.3:
            per = R.choice([1, 2, 3, 5, 7, 9])
            c[name] = per * (known.get("n_group") or 1)
            for top in TOP:
                if isinstance(known.get(top), int):
                    c[top] = R.randint(1, per * (known.get("topk_group") or 1))  # Heft refuses more experts than the chosen groups have
    if isinstance(known.get("vocab_size_per_layer_input"), int) and "vocab_size" in c:
        c["vocab_size_per_layer_input"] = c["vocab_size"]


def layers(R, c):
    types = c.get("layer_types")
    if types and set(types) <= {"full_attention", "sliding_attention"} and R.random() < 0.5:
        c["layer_types"] = [R.choice(["full_attention", "sliding_attention"]) for _ in range(c.get("num_hidden_layers", len(types)))]


def widen(R, config):
    """Another config of the family of config, which may not be one that the reference runs."""
    c = config.get("text_config", config)
    try:
        made = AutoConfig.for_model(c["model_type"])
        defaults, aliases = made.to_dict(), made.attribute_map
    except Exception:
        defaults, aliases = {}, {}
    # A config that has a field under two names is ambiguous.
    known = {**{k: v for k, v in defaults.items() if not k.startswith("_") and not any(a in c for a, name in aliases.items() if name == k)}, **c}
    scalars(R, c, known)
    sizes(R, c, known)
    layers(R, c)
    return config


def lengths(R, config):
    """How long the prompts are."""
    c = config.get("text_config", config)
    longest = min(c.get(n) or 128 for n in ("max_position_embeddings", "n_positions", "max_seq_len"))
    return R.choice([(1, 7, 12, 21)] * 3 + [(2, 15, 16, 17), (1, 31, 33, 70)] if longest > 96 else [(1, 7, 12, 21)])


class Disguise:
    """Changes of the names of a file's tensors, and of their values."""

    def __init__(self, R, model):
        base = model.base_model_prefix
        self.R, self.tied, self.base = R, bool(getattr(model.config, "tie_word_embeddings", False)), base + "."
        self.bare = bool(base) and R.random() < 0.25
        self.head = self.tied and hasattr(model, "lm_head") and R.random() < 0.3
        self.extra = R.random() < 0.3 and any("rotary" in name for name, _ in model.named_modules())
        self.mixed = R.random() < 0.4

    def names(self, tensors):
        if self.bare:
            tensors = {n.removeprefix(self.base): t for n, t in tensors.items()}
        return tensors

    def tensors(self, tensors):
        tensors = self.names(tensors)
        if self.mixed:
            tensors = {n: t.float() if t.dtype in (torch.bfloat16, torch.float16) and ".experts." not in n and self.R.random() < 0.4 else t for n, t in tensors.items()}
        if self.head:
            embed = [n for n in tensors if n.endswith("embed_tokens.weight")]
            if embed and "lm_head.weight" not in tensors:
                tensors["lm_head.weight"] = tensors[embed[0]].clone()
        if self.extra and "model.layers.0.self_attn.q_proj.weight" in tensors:
            tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)  # as old checkpoints of llama have it
        return tensors


def rewrite(folder, change):
    index = folder / "model.safetensors.index.json"
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        part = change(load_file(file))
        save_file(part, file, metadata={"format": "pt"})
        tensors.update((n, file.name) for n in part)
    if index.exists():
        whole = json.loads(index.read_text())
        whole["weight_map"] = tensors
        index.write_text(json.dumps(whole))


def config_forms(R, folder):
    file = folder / "config.json"
    config = json.loads(file.read_text())
    if R.random() < 0.2:
        config.pop("architectures", None)
    if R.random() < 0.15:
        (folder / "generation_config.json").unlink(missing_ok=True)
    elif R.random() < 0.3:
        file2 = folder / "generation_config.json"
        made = json.loads(file2.read_text()) if file2.exists() else {}
        made["eos_token_id"] = R.choice([[2, 4], 2, [2], None])
        file2.write_text(json.dumps(made))
    file.write_text(json.dumps(config, indent=R.choice([None, 1, 2]), sort_keys=R.random() < 0.5))


@torch.no_grad()
def agrees(folder, ids, want):
    """Whether the reference loads the folder as the model that was computed."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    got = model.eval()(torch.tensor([ids])).logits[0, -1]
    return (got - torch.tensor(want)).abs().max() < 1e-3
