#!/usr/bin/env python3
"""Makes the tiny checkpoints of testdata/golden/infer/models with transformers.

    python scripts/make-model-fixtures.py testdata/golden/infer/models

Weights are random. golden.json.gz holds what float32 arithmetic makes of them: logits,
log-probabilities, hidden states and greedy continuations of a few prompts. A seed is
taken only if no greedy choice is nearly a tie.
"""
import gzip
import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoConfig

import packed

VOCAB, WIDTH, GREEDY, MARGIN = 96, 32, 16, 2e-3
LENGTHS = (1, 5, 19)

COMMON = dict(vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
              rms_norm_eps=1e-5, rope_theta=10000.0, bos_token_id=1, eos_token_id=2)
MODELS = {
    "small-llama-bf16": ("llama", torch.bfloat16, dict(COMMON, tie_word_embeddings=False, rope_scaling=dict(
        rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32))),
    "small-mistral-window-f16": ("mistral", torch.float16, dict(COMMON, sliding_window=6)),
    "small-mixtral-bf16": ("mixtral", torch.bfloat16, dict(
        COMMON, intermediate_size=24, num_local_experts=4, num_experts_per_tok=2)),
    "small-qwen3-tied-f16": ("qwen3", torch.float16, dict(COMMON, head_dim=16, tie_word_embeddings=True)),
    "small-gpt2-bf16": ("gpt2", torch.bfloat16, dict(
        vocab_size=VOCAB, n_embd=WIDTH, n_layer=2, n_head=4, n_inner=64, n_positions=64, bos_token_id=1, eos_token_id=2)),
}


def build(kind, dtype, fields, seed):
    """The model in float32, its weights rounded to dtype."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **fields)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1:
                p.normal_(0, 1.6 / p.shape[-1] ** 0.5)
            else:
                p.add_(torch.randn_like(p) * 0.2)
            p.copy_(p.to(dtype).float())
    return config, model


def rounded(values):
    return [float(f"{v:.8g}") for v in values]


def summary(h):
    return dict(mean=float(f"{h.double().mean():.8g}"), std=float(f"{h.double().std(unbiased=False):.8g}"),
                last_pos_first8=rounded(h[-1, :8].tolist()), first_pos_first8=rounded(h[0, :8].tolist()))


def layers_of(model):
    return next(m for n, m in model.named_modules() if n.endswith(("layers", ".h", "rwkv.blocks")))


def by_token(h, n):
    """Hidden states as a row of each of n tokens; the streams of gemma3n come first."""
    return (h.permute(1, 2, 0, 3) if h.dim() == 4 and h.shape[0] > 1 else h).reshape(n, -1)


@torch.no_grad()
def prompt(model, ids):
    seen = []
    hooks = [layer.register_forward_hook(lambda _, __, out: seen.append(out[0] if isinstance(out, (tuple, list)) else out))
             for layer in layers_of(model)]
    first = []
    hooks.append(layers_of(model)[0].register_forward_pre_hook(
        lambda _, args, kwargs: first.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True))
    out = model(torch.tensor([ids]), output_hidden_states=True, use_cache=False)
    for h in hooks:
        h.remove()
    if hasattr(model.config, "H_cycles") or hasattr(model.config, "n_recurrent_loops"):  # whose first block has something else
        first = [model.base_model.embed_tokens(torch.tensor([ids])) * getattr(model.config, "embedding_scale", 1)]
    last = out.hidden_states[-1][0]
    if out.hidden_states[-1].dim() == 4:  # streams, which the reference gives before their norm
        last = model.base_model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]
    logits = out.logits[0].float()
    logp = logits.double().log_softmax(-1)
    top = logits.topk(5, -1)
    token_logprobs = [logp[i, t].item() for i, t in enumerate(ids[1:])]
    case = dict(input_ids=ids, last_logits=rounded(logits[-1].tolist()), top5_ids=top.indices.tolist(),
                top5_logits=[rounded(r) for r in top.values.tolist()], token_logprobs=rounded(token_logprobs),
                logprob_sum=float(f"{sum(token_logprobs):.8g}"),
                hidden=dict(embeddings=summary(by_token(first[0], len(ids))),
                            layers=[summary(by_token(h, len(ids))) for h in seen],
                            final_norm=summary(last)))
    greedy, logprobs, margin = [], [], 1e9
    for _ in range(GREEDY):
        row = model(torch.tensor([ids + greedy]), use_cache=False).logits[0, -1].float()
        best = row.topk(2).values
        margin = min(margin, (best[0] - best[1]).item())
        greedy.append(row.argmax().item())
        logprobs.append(row.double().log_softmax(-1)[greedy[-1]].item())
    case.update(greedy_ids=greedy, greedy_logprobs=rounded(logprobs), greedy_min_margin=float(f"{margin:.8g}"))
    return case, margin


def make(folder, name, kind, dtype, fields):
    for seed in range(1, 200):
        config, model = build(kind, dtype, fields, seed)
        ids = torch.randint(3, VOCAB, (max(LENGTHS),), generator=torch.Generator().manual_seed(seed)).tolist()
        cases = [prompt(model, ids[:n]) for n in LENGTHS]
        if min(margin for _, margin in cases) > MARGIN:
            break
    out = folder / name
    out.mkdir(parents=True, exist_ok=True)
    model.to(dtype).save_pretrained(out)
    packed.pack(out / "model.safetensors")
    text = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(text, indent=1, sort_keys=True) + "\n")
    golden = dict(name=name, model_type=kind, seed=seed, tolerance=dict(logits_atol=2e-4, logits_rtol=2e-4),
                  num_parameters=sum(p.numel() for p in model.parameters()), prompts=[case for case, _ in cases])
    (out / "golden.json.gz").write_bytes(gzip.compress((json.dumps(golden) + "\n").encode(), mtime=0))
    print(name, "seed", seed, sum(f.stat().st_size for f in out.iterdir()), "bytes")


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, (kind, dtype, fields) in MODELS.items():
        make(folder, name, kind, dtype, fields)


if __name__ == "__main__":
    main()
