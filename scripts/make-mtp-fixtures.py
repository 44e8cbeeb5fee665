#!/usr/bin/env python3
"""Makes testdata/mtp: small models with a module for multi-token prediction, and what transformers
computes with it.

    python scripts/make-mtp-fixtures.py testdata/mtp [NAME...]      (transformers 5.24, some minutes on two cores)

Each model is trained on sequences that follow a permutation of the tokens, with a random token now and then, so that
the module predicts well and not always. recall is another text: pairs of a key and a value, and a walk from each value to its
key, whose values only the pairs tell (prompts.json has pairs with the first key of the walk); its module is trained behind a model that is done. It is saved in bfloat16 under the names of published checkpoints and read
again by transformers. cases.json.gz has, in float32, the module's logits behind each token of a prompt, whose hidden states
are the model's, and behind a further one, whose hidden state is the module's own.
"""
import gzip
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, DeepseekV3Config, DeepseekV32Config, Glm4MoeConfig, Glm4MoeLiteConfig, MellumConfig, Qwen3NextConfig
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

import packed

VOCAB, LENGTH, STEPS = 64, 24, 800
SIZES = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, moe_intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
             n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=1, max_position_embeddings=256,
             tie_word_embeddings=False, num_nextn_predict_layers=1, initializer_range=0.1, bos_token_id=None, eos_token_id=None, pad_token_id=None)
LATENT = dict(num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8, num_mtp_layers=1,
              mtp_mlp_layer_types=["sparse"])
# Qwen3-Next and its descendants have the module beside the model, under mtp. transformers has no fields for it.
SMALL = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
             max_position_embeddings=256, tie_word_embeddings=False, initializer_range=0.1, bos_token_id=None, eos_token_id=None, pad_token_id=None)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=True)
HYBRID = dict(SMALL, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4,
              linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=3, num_mtp_layers=1, mtp_layer_types=["full_attention"])
MODELS = {
    "deepseek_v3": lambda: DeepseekV3Config(**SIZES, num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8,
                                            v_head_dim=8, n_group=2, topk_group=2, routed_scaling_factor=1.5),
    # Of the positions that the indexer chooses among, none has the same score: with few heads many have 0, and which of them torch takes is not defined.
    "deepseek_v32": lambda: DeepseekV32Config(**SIZES, num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8,
                                              v_head_dim=8, n_group=2, topk_group=2, index_n_heads=16, index_head_dim=16, index_topk=8,
                                              num_mtp_layers=1, mtp_layer_types=["full_attention"], mtp_mlp_layer_types=["sparse"]),
    "deepseek_v3_two": lambda: DeepseekV3Config(**SIZES | dict(num_nextn_predict_layers=2), num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16,
                                                qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8, n_group=2, topk_group=2),
    "glm4_moe": lambda: Glm4MoeConfig(**SIZES, num_key_value_heads=2, head_dim=8, attention_bias=True, use_qk_norm=True, n_group=1, topk_group=1),
    "glm4_moe_lite": lambda: Glm4MoeLiteConfig(**SIZES, **LATENT, n_group=1, topk_group=1),
    "qwen3_next": lambda: Qwen3NextConfig(**HYBRID, **EXPERTS, intermediate_size=48, shared_expert_intermediate_size=16),
    "qwen3_5": lambda: Qwen3_5TextConfig(**HYBRID | dict(tie_word_embeddings=True), intermediate_size=48),
    "qwen3_5_moe": lambda: Qwen3_5MoeTextConfig(**HYBRID, **EXPERTS, shared_expert_intermediate_size=16),
    "recall": lambda: Glm4MoeConfig(**SIZES | dict(hidden_size=48, intermediate_size=64, first_k_dense_replace=2), num_key_value_heads=4, head_dim=16,
                                    n_group=1, topk_group=1),
    "mellum": lambda: MellumConfig(**SMALL, **EXPERTS, num_mtp_layers=1, sliding_window=6, layer_types=["full_attention", "sliding_attention"]),
}
BESIDE = {"qwen3_next", "qwen3_5", "qwen3_5_moe", "mellum"}
# The fields of published configs, for those that only transformers' module needs.
COUNTS = {"glm4_moe_lite": {}, "deepseek_v32": {}, "qwen3_next": {}, "qwen3_5": {"mtp_num_hidden_layers": 1}, "qwen3_5_moe": {"mtp_num_hidden_layers": 1}}



def text(rows, generator):
    """Sequences of the next token's permutation, with one of ten tokens at random."""
    follow = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(3))
    ids = torch.randint(0, VOCAB, (rows, LENGTH), generator=generator)
    for i in range(1, LENGTH):
        regular = torch.rand(rows, generator=generator) > 0.1
        ids[:, i] = torch.where(regular, follow[ids[:, i - 1]], ids[:, i])
    return ids


KEYS, WALK = 20, 36


def walks(rows, generator):
    """Pairs of all keys in random order, each with its value, and a walk: a key, its value, the key of that value, …"""
    out = torch.empty(rows, 2 * KEYS + WALK, dtype=torch.long)
    for row in out:
        cycle = torch.randperm(KEYS, generator=generator)
        following = torch.empty(KEYS, dtype=torch.long)
        following[cycle] = cycle.roll(-1)
        keys = torch.randperm(KEYS, generator=generator)
        row[: 2 * KEYS : 2], row[1 : 2 * KEYS : 2] = keys, KEYS + following[keys]
        at = int(torch.randint(0, KEYS, (1,), generator=generator))
        for i in range(2 * KEYS, len(row), 2):
            row[i], at = at, int(following[at])
            row[i + 1] = KEYS + at
    return out


def states(model, ids):
    out = model.model(ids, use_cache=False)
    return out.last_hidden_state


def cache_of(config):
    """A cache of the module. transformers has masks for its full attention only, and a cache for the indexer by another name."""
    config = config.get_mtp_config()
    if hasattr(config, "index_topk"):
        config.layer_types = ["indexed_attention"]
    return MtpCache(config=config)


def module(mtp, hidden, ids, cache, start, depth=0):
    """The hidden states of a module for the model's, or those of the module before it (hidden), and the tokens behind them (ids)."""
    places = torch.arange(start, start + ids.shape[1])[None] + 1 + depth
    return mtp.forward_layer(depth, hidden, places, cache, input_ids=ids)


@torch.no_grad()
def begin(mtp):
    """Gives the module's matrices numbers: some of its classes leave that to the model."""
    for p in mtp.layers.parameters():
        if p.dim() > 1:
            p.normal_(std=0.1)
    for b in mtp.layers.buffers():
        b.zero_()
    return mtp


def train(model, mtp, config):
    generator = torch.Generator().manual_seed(1)
    own = [p for n, p in mtp.named_parameters() if n.startswith("layers.")]
    optimizer = torch.optim.AdamW(list(model.parameters()) + own, lr=2e-3)
    loss_of = torch.nn.functional.cross_entropy
    for step in range(STEPS):
        ids = text(16, generator)
        hidden = states(model, ids)
        loss = loss_of(model.lm_head(hidden[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        cache = cache_of(config)
        ahead = module(mtp, hidden[:, :-1], ids[:, 1:], cache, 0)
        further = loss_of(model.lm_head(ahead[:, :-1]).flatten(0, 1), ids[:, 2:].flatten())
        if len(mtp.layers) > 1:
            ahead = module(mtp, ahead[:, :-1], ids[:, 2:], cache, 0, 1)
            further = further + loss_of(model.lm_head(ahead[:, :-1]).flatten(0, 1), ids[:, 3:].flatten())
        optimizer.zero_grad()
        (loss + further).backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}, of the module {further.item():.3f}")


def beside(mtp, name):
    """The module's tensors under the names of Qwen3-Next's published checkpoints: experts one by one, but in Qwen3.5."""
    out = {}
    for key, value in mtp.state_dict().items():
        if not key.startswith("layers.0."):
            continue
        key = key.removeprefix("layers.0.")
        for own, theirs in (("enorm", "pre_fc_norm_embedding"), ("hnorm", "pre_fc_norm_hidden"), ("eh_proj", "fc"), ("post_norm", "norm"), ("mtp_block", "layers.0")):
            if key.startswith(own + "."):
                key = "mtp." + theirs + key.removeprefix(own)
                break
        one = key.removesuffix("gate_up_proj").removesuffix("down_proj")
        if name == "qwen3_5_moe" or not one.endswith("experts."):
            out[key] = value
            continue
        for i, expert in enumerate(value):
            parts = {"down_proj": expert} if key.endswith("down_proj") else dict(zip(("gate_proj", "up_proj"), expert.chunk(2)))
            out |= {f"{one}{i}.{part}.weight": v for part, v in parts.items()}
    return out


def published(mtp, model, layer, depth=0):
    """A module's tensors under the names of published checkpoints."""
    prefix, own = f"model.layers.{layer + depth}.", f"layers.{depth}."
    out = {prefix + "embed_tokens.weight": model.model.embed_tokens.weight, prefix + "shared_head.head.weight": model.lm_head.weight}
    for name, value in mtp.state_dict().items():
        if not name.startswith(own):
            continue
        name = name.removeprefix(own).removeprefix("mtp_block.").replace("post_norm.", "shared_head.norm.") \
            if not name.startswith(own + "mtp_block.") else name.removeprefix(own + "mtp_block.")
        if name == "mlp.experts.gate_up_proj":
            for i, both in enumerate(value):
                gate, up = both.chunk(2)
                out[f"{prefix}mlp.experts.{i}.gate_proj.weight"], out[f"{prefix}mlp.experts.{i}.up_proj.weight"] = gate, up
        elif name == "mlp.experts.down_proj":
            for i, down in enumerate(value):
                out[f"{prefix}mlp.experts.{i}.down_proj.weight"] = down
        else:
            out[prefix + name] = value
    return out


def recall(model, mtp, config):
    """Trains the model on walks, and then its module alone: the model's hidden states are not made for it."""
    generator = torch.Generator().manual_seed(1)
    loss_of, begin = torch.nn.functional.cross_entropy, 2 * KEYS
    own = [p for n, p in mtp.named_parameters() if n.startswith("layers.")]
    for params, steps, ahead in ((list(model.parameters()), 6000, False), (own, 2500, True)):
        optimizer = torch.optim.AdamW(params, lr=2e-3, weight_decay=0.01)
        for step in range(steps):
            ids = walks(32, generator)
            with torch.set_grad_enabled(not ahead):
                hidden = states(model, ids)
            if ahead:
                out = module(mtp, hidden[:, :-1], ids[:, 1:], cache_of(config), 0)
                loss = loss_of(model.lm_head(out[:, begin - 1 : -1]).flatten(0, 1), ids[:, begin + 1 :].flatten())
            else:
                loss = loss_of(model.lm_head(hidden[:, begin:-1]).flatten(0, 1), ids[:, begin + 1 :].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 500 == 499:
                print(f"{'module' if ahead else 'model'} step {step + 1}: loss {loss.item():.3f}", flush=True)


@torch.no_grad()
def cases(folder, model):
    # transformers knows the module by the number of the published models' layer.
    if folder.name not in BESIDE:
        type(model)._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{model.config.num_hidden_layers + d}.*" for d in range(model.config.num_mtp_layers)]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    mtp = MtpModel.from_pretrained(model).eval()
    generator = torch.Generator().manual_seed(9)
    for n in (1, 5, 17):
        ids = (walks if folder.name == "recall" else text)(1, generator)[:, : n + 1]
        cache = cache_of(model.config)
        ahead = module(mtp, states(model, ids[:, :-1]), ids[:, 1:], cache, 0)
        logits = model.lm_head(ahead)[0]
        guess = logits[-1].argmax().view(1, 1)
        if len(mtp.layers) > 1:
            second = model.lm_head(module(mtp, ahead, torch.cat([ids[:, 2:], guess], 1), cache, 0, 1))[0]
            yield dict(input_ids=ids[0].tolist(), guess=guess.item(), **{k: [[float(f"{x:.6g}") for x in row] for row in rows.tolist()] for k, rows in (("logits", logits), ("second", second))})
            continue
        chained = module(mtp, ahead[:, -1:], guess, cache, n)
        logits = torch.cat([logits, model.lm_head(chained)[0]])
        yield dict(input_ids=ids[0].tolist(), guess=guess.item(), logits=[[float(f"{x:.6g}") for x in row] for row in logits.tolist()])


def publish(folder):
    """Gives the config the fields of published ones."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    for field in ("num_mtp_layers", "mtp_layer_types", "mtp_mlp_layer_types"):
        config.pop(field, None)
    file.write_text(json.dumps(config | COUNTS[folder.name], indent=2) + "\n")


def main():
    for name, config in MODELS.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        folder = pathlib.Path(sys.argv[1]) / name
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config(), dtype=torch.float32, attn_implementation="eager").train()
        mtp = begin(MtpModel(model, getattr(model.config, "num_mtp_layers", None) or 1).train())
        (recall if name == "recall" else train)(model, mtp, model.config)
        model.to(torch.bfloat16)
        mtp.to(torch.bfloat16)
        model.save_pretrained(folder)
        file = folder / "model.safetensors"
        own = beside(mtp, name) if name in BESIDE else {k: v for d in range(len(mtp.layers)) for k, v in published(mtp, model, model.config.num_hidden_layers, d).items()}
        tensors = load_file(file) | {k: v.detach().to(torch.bfloat16).clone() for k, v in own.items()}
        save_file(tensors, file, metadata={"format": "pt"})
        (folder / "generation_config.json").unlink(missing_ok=True)
        rows = list(cases(folder, model))
        if name in COUNTS:
            publish(folder)
        (folder / "cases.json.gz").write_bytes(gzip.compress(('{"tolerance": 1e-4, "cases": [\n' + ",\n".join(json.dumps(r) for r in rows) + "\n]}\n").encode(), mtime=0))
        if name == "recall":
            prompts = walks(12, torch.Generator().manual_seed(11))[:, : 2 * KEYS + 1].tolist()
            (folder / "prompts.json").write_text('{"prompts": [\n' + ",\n".join(map(json.dumps, prompts)) + "\n]}\n")
        packed.pack(file)
        print(name, sum(f.stat().st_size for f in folder.iterdir()), "bytes")


if __name__ == "__main__":
    main()
