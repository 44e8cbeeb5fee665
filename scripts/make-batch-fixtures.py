#!/usr/bin/env python3
"""Adds batches.json.gz to the tiny models of make-train-fixtures.py: what transformers computes for
batches with padding and for texts that share rows, its hidden states, and the routers' loss.

    python scripts/make-batch-fixtures.py testdata/golden/train/gradients [NAME...]

hidden: summaries of output_hidden_states, and of gradients of Σ cos(i + place) · state[i]; null for blocks of several streams.
texts: texts of several lengths, each by itself: their labels' summed loss and its gradients. Padded and
packed batches of them must give the same. packs says whether transformers isolates texts in one row by
their position_ids alone; it does so in attention, but not in all models.
left: the logits of each row's last token, padded on the left, with positions as generate() counts them. If
layers have a state, those of each row by itself: padding advances the states of transformers' mixers. Such
models are computed in float64.
router: loss and auxiliary loss of the texts padded on the right, for models that have one, with the
gradients of their sum.
"""
import gzip
import json
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import packed
from in_double import in_double

LENGTHS, IGNORED, COLUMNS = (7, 3, 1, 11, 5, 5), -100, 11
STATES = ("conv_L_cache", "linear_num_key_heads", "state_size", "ssm_state_size", "mamba_d_state", "compress_rates")


def digits(x):
    return float(f"{float(x):.8g}")


def summary(x):
    x = x.double().flatten()
    return [digits(x.norm()), digits((x * torch.arange(len(x), dtype=torch.float64).cos()).sum())]


def load(folder):
    with packed.unpacked(folder) as plain:
        model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
    return model.eval()


def gradients(model, loss):
    """Summaries of gradients under the checkpoint's names: they are saved in place of the weights."""
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(pathlib.Path(folder) / "model.safetensors")
    return {n: summary(t) for n, t in sorted(tensors.items()) if t.is_floating_point() and not any(b in n for b in ("correction", "expert_bias", "ffn.gate.bias", "layer_scalar"))}


def hidden(folder, ids):
    model = load(folder)
    if hasattr(model.config, "hc_mult"):
        return None
    states = model(torch.tensor(ids), use_cache=False, output_hidden_states=True).hidden_states
    if model.config.model_type == "mamba2":  # transformers leaves out the embeddings
        states = (model.get_input_embeddings()(torch.tensor(ids)),) + states[:-2] + states[-1:]
    loss = sum((s.flatten() * (torch.arange(s.numel()) + place).double().cos().to(s.dtype)).sum() for place, s in enumerate(states))
    return dict(ids=sum(ids, []), length=len(ids[0]), states=[summary(s.detach()) for s in states], gradients=gradients(model, loss))


def summed(model, ids, labels, **more):
    logits = model(torch.tensor(ids), use_cache=False, **more).logits
    shifted = torch.tensor([row[1:] + [IGNORED] for row in labels])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), shifted.flatten(), ignore_index=IGNORED, reduction="sum")


def texts():
    g = torch.Generator().manual_seed(23)
    return [torch.randint(3, 40, (n,), generator=g).tolist() for n in LENGTHS]


def padded(rows, left):
    fill = lambda row, v: [v] * (COLUMNS - len(row)) + row if left else row + [v] * (COLUMNS - len(row))
    ids = [fill(row, 0) for row in rows]
    mask = [fill([1] * len(row), 0) for row in rows]
    labels = [fill([IGNORED] + row[1:], IGNORED) for row in rows]
    return ids, labels, torch.tensor(mask)


def one_by_one(folder):
    model = load(folder)
    loss = sum(summed(model, [row], [row]) for row in texts())
    out = dict(texts=texts(), loss=loss.item(), gradients=gradients(model, loss))
    rows, labels, positions = [[], []], [[], []], [[], []]
    for row in texts():
        at = 0 if len(rows[0]) + len(row) <= 16 else 1
        rows[at] += row
        labels[at] += [IGNORED] + row[1:]
        positions[at] += list(range(len(row)))
    assert len(rows[0]) == len(rows[1]) == 16
    model = load(folder)
    with torch.no_grad():
        try:
            packed = summed(model, rows, labels, position_ids=torch.tensor(positions)).item()
        except (TypeError, ValueError):
            packed = 0
    out["packs"] = abs(packed - loss.item()) < 1e-4 * loss.item()
    return out


def left(folder):
    model = load(folder)
    ids, _, mask = padded(texts(), True)
    positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
    with torch.no_grad():
        if has_state(model):
            return [summary(model(torch.tensor([row]), use_cache=False).logits[0, -1]) for row in texts()]
        try:
            logits = model(torch.tensor(ids), attention_mask=mask, position_ids=positions, use_cache=False).logits
        except TypeError:  # positions are the model's own
            logits = model(torch.tensor(ids), attention_mask=mask, use_cache=False).logits
    return [summary(row[-1]) for row in logits]


def router(folder):
    model = load(folder)
    if not hasattr(model.config, "router_aux_loss_coef"):
        return None
    model.config.output_router_logits = True
    model.config.router_aux_loss_coef = model.router_aux_loss_coef = 0.5
    ids, labels, mask = padded(texts(), False)
    out = model(torch.tensor(ids), attention_mask=mask, labels=torch.tensor(labels), use_cache=False, output_router_logits=True)
    if getattr(out, "aux_loss", None) is None or not torch.is_tensor(out.aux_loss):
        return None
    with torch.no_grad():
        everything = model(torch.tensor(ids), use_cache=False, output_router_logits=True).aux_loss.item()
    return dict(loss=out.loss.item(), auxiliary=out.aux_loss.item(), with_padding=everything, gradients=gradients(model, out.loss))


def has_state(model):
    return any(hasattr(model.config, name) for name in STATES)


def main():
    for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        if sys.argv[2:] and folder.name not in sys.argv[2:]:
            continue
        model = load(folder)
        with in_double(model, has_state(model)):
            make(folder)


def make(folder):
    golden = json.loads(gzip.open(folder / "golden.json.gz").read())
    with torch.no_grad():
        loss = load(folder)(torch.tensor(golden["input_ids"]), labels=torch.tensor(golden["labels"]), use_cache=False).loss.item()
    assert abs(loss - golden["loss"]) < 1e-5, (folder.name, loss, golden["loss"])
    out = dict(hidden=hidden(folder, golden["input_ids"]), texts=one_by_one(folder), left=left(folder), router=router(folder))
    with gzip.GzipFile(folder / "batches.json.gz", "wb", mtime=0) as f:
        f.write(json.dumps(out).encode())
    r = out["router"] or {}
    print(folder.name, "loss", out["texts"]["loss"], "packs", out["texts"]["packs"], "router", r.get("auxiliary"), r.get("with_padding"),
          (folder / "batches.json.gz").stat().st_size, "bytes", flush=True)


if __name__ == "__main__":
    main()
