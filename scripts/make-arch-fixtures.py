#!/usr/bin/env python3
"""Makes tiny checkpoints of cohere, granite, starcoder2 and stablelm with transformers.

    python scripts/make-arch-fixtures.py testdata/golden/infer/models [NAME...]

Between them the models set every option that their config classes have. Layout, weights
and figures are those of make-model-fixtures.py, with two prompts of different lengths
in one padded batch besides. golden.json is gzipped.
"""
import gzip
import json
import pathlib
import runpy
import sys
import types

import torch
import transformers
from transformers import AutoConfig

import packed

base = types.SimpleNamespace(**runpy.run_path(str(pathlib.Path(__file__).with_name("make-model-fixtures.py"))))

VOCAB, MARGIN, DIGITS = 64, 1e-3, 7
LENGTHS = (1, 7, 12, 21)
PADDED = (1, 3)  # of LENGTHS

SIZES = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
BF16, F16 = torch.bfloat16, torch.float16


def rope(theta=10000.0, **more):
    return dict(dict(rope_type="default"), rope_theta=theta, **more)


# name: model type, dtype, config style, fields
MODELS = {
    "small-cohere-bf16": ("cohere", BF16, "published", dict(
        num_key_value_heads=2, rope_parameters=rope(50000.0))),
    "small-cohere-qknorm-f16": ("cohere", F16, "v5", dict(
        num_key_value_heads=2, use_qk_norm=True, attention_bias=True, tie_word_embeddings=False, logit_scale=0.25,
        layer_norm_eps=1e-3, hidden_act="gelu", rope_parameters=rope(rope_type="linear", factor=2.5))),
    "small-granite-bf16": ("granite", BF16, "published", dict(
        num_key_value_heads=2, embedding_multiplier=6.0, attention_multiplier=0.2, residual_multiplier=0.35,
        logits_scaling=2.5, tie_word_embeddings=True, rope_parameters=rope())),
    "small-granite-biases-f16": ("granite", F16, "v5", dict(
        num_key_value_heads=4, attention_bias=True, mlp_bias=True, embedding_multiplier=0.75, attention_multiplier=1.25,
        residual_multiplier=1.5, logits_scaling=0.5, rms_norm_eps=1e-3, hidden_act="gelu_pytorch_tanh",
        rope_parameters=rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=32))),
    "small-starcoder2-window-bf16": ("starcoder2", BF16, "published", dict(
        num_key_value_heads=2, sliding_window=8, rope_parameters=rope(100000.0))),
    "small-starcoder2-plain-f16": ("starcoder2", F16, "v5", dict(
        num_key_value_heads=1, use_bias=False, tie_word_embeddings=False, norm_epsilon=1e-3, hidden_act="relu",
        rope_parameters=rope(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=32))),
    "small-stablelm-bf16": ("stablelm", BF16, "published", dict(
        num_key_value_heads=4, rope_parameters=rope(partial_rotary_factor=0.25))),
    "small-stablelm-parallel-bf16": ("stablelm", BF16, "published", dict(
        num_key_value_heads=4, use_parallel_residual=True, use_qkv_bias=True, tie_word_embeddings=True, hidden_act="gelu",
        layer_norm_eps=1e-3, rope_parameters=rope(partial_rotary_factor=0.5))),
    "small-stablelm-parallel-qknorm-f16": ("stablelm", F16, "v5", dict(
        num_key_value_heads=2, use_parallel_residual=True, qk_layernorm=True, rope_parameters=rope(
            partial_rotary_factor=1.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32))),
    "small-stablelm-qknorm-f16": ("stablelm", F16, "v5", dict(
        num_key_value_heads=2, qk_layernorm=True, use_qkv_bias=True, rope_parameters=rope(
            partial_rotary_factor=0.75, rope_type="linear", factor=2.0))),
}


def shorter(value):
    """Seven digits say more than the tolerance."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [shorter(v) for v in value]
    if isinstance(value, dict):
        return {k: shorter(v) for k, v in value.items()}
    return value


def published(config):
    """The form in which models were published before transformers 5."""
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    config["torch_dtype"] = config.pop("dtype")
    if "partial_rotary_factor" in scaling:
        config["partial_rotary_factor"] = scaling.pop("partial_rotary_factor")
    config["rope_scaling"] = None if scaling.pop("rope_type") == "default" and not scaling else scaling
    return config


@torch.no_grad()
def padding(model, prompts):
    """The two padded prompts in one batch, which must say what each says alone."""
    rows = [prompts[i]["input_ids"] for i in PADDED]
    width = max(map(len, rows))
    ids = [[0] * (width - len(r)) + r for r in rows]
    mask = [[0] * (width - len(r)) + [1] * len(r) for r in rows]
    positions = [[0] * (width - len(r)) + list(range(len(r))) for r in rows]
    logits = model(torch.tensor(ids), attention_mask=torch.tensor(mask), position_ids=torch.tensor(positions),
                   use_cache=False).logits[:, -1].float()
    off = max((logits[i] - torch.tensor(prompts[p]["last_logits"])).abs().max().item() for i, p in enumerate(PADDED))
    assert off < 1e-4, off
    return dict(pad_id=0, input_ids=ids, attention_mask=mask, position_ids=positions, measured_max_abs_diff=off)


def search(kind, dtype, fields):
    for seed in range(1, 1000):
        config, model = base.build(kind, dtype, dict(SIZES, **fields), seed)
        ids = torch.randint(3, VOCAB, (max(LENGTHS),), generator=torch.Generator().manual_seed(seed)).tolist()
        cases = []
        for n in LENGTHS:
            cases.append(base.prompt(model, ids[:n]))
            if cases[-1][1] < MARGIN:
                break
        else:
            return seed, model, cases
    raise SystemExit(f"{kind}: every seed has a greedy choice that is nearly a tie")


def make(folder, name, kind, dtype, style, fields):
    seed, model, cases = search(kind, dtype, fields)
    prompts = [case for case, _ in cases]
    golden = dict(
        name=name, architecture=type(model).__name__, model_type=kind, weights_dtype=str(dtype)[6:], config_style=style,
        shards=1, tied_embeddings=model.config.tie_word_embeddings, seed=seed,
        compute="float32, weights widened from the checkpoint's dtype", versions=dict(
            torch=torch.__version__, transformers=transformers.__version__),
        tolerance=dict(logits_atol=2e-4, logits_rtol=2e-4), min_greedy_margin=min(margin for _, margin in cases),
        num_parameters=sum(p.numel() for p in model.parameters()), padding=padding(model, prompts), prompts=prompts)
    out = folder / name
    out.mkdir(parents=True, exist_ok=True)
    model.to(dtype).save_pretrained(out)
    packed.pack(out / "model.safetensors")
    config = json.loads((out / "config.json").read_text())
    if style == "published":
        config = published(config)
    (out / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    again = AutoConfig.from_pretrained(out)
    assert again.rope_parameters == model.config.rope_parameters, again.rope_parameters
    (out / "golden.json.gz").write_bytes(gzip.compress((json.dumps(shorter(golden)) + "\n").encode(), mtime=0))
    print(name, "seed", seed, sum(f.stat().st_size for f in out.iterdir()), "bytes")


def main():
    folder, only = pathlib.Path(sys.argv[1]), sys.argv[2:]
    for name, model in MODELS.items():
        if not only or name in only:
            make(folder, name, *model)


if __name__ == "__main__":
    main()
