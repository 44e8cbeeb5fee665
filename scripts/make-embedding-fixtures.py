#!/usr/bin/env python3
"""Makes testdata/golden/infer/embeddings/cases.json.gz with transformers.

    python scripts/make-embedding-fixtures.py testdata/golden/infer

last_hidden_state of small models of testdata/golden/infer/models in float32, pooled as
sentence-transformers does: the first token, the last, or the mean; as it is, scaled to
length 1, or cut to the first dimensions and scaled.
"""
import gzip
import json
import pathlib
import sys

import torch
from transformers import AutoModel

import packed

MODELS = ("small-llama-bf16", "small-cohere-bf16", "small-starcoder2-window-bf16", "small-gpt2-bf16")
LENGTHS, CUT = (1, 6, 33), 7


def pooled(hidden, mode):
    return {"cls": hidden[0], "lasttoken": hidden[-1], "mean": hidden.mean(0)}[mode]


@torch.no_grad()
def cases(folder, name):
    with packed.unpacked(folder / "models" / name) as plain:
        model = AutoModel.from_pretrained(plain, dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(7)
    for n in LENGTHS:
        ids = torch.randint(3, model.config.vocab_size, (n,), generator=generator)
        hidden = model(ids[None], use_cache=False).last_hidden_state[0]
        for mode in ("cls", "lasttoken", "mean"):
            for normalise, dimensions in ((False, 0), (True, 0), (True, CUT)):
                v = pooled(hidden, mode)
                v = v[:dimensions] if dimensions else v
                v = torch.nn.functional.normalize(v, dim=-1) if normalise else v
                yield dict(model=f"models/{name}", input_ids=ids.tolist(), pooling=mode, normalize=normalise,
                           dimensions=dimensions, embedding=[float(f"{x:.6g}") for x in v.tolist()])


def main():
    folder = pathlib.Path(sys.argv[1])
    out = folder / "embeddings" / "cases.json.gz"
    out.parent.mkdir(exist_ok=True)
    rows = [case for name in MODELS for case in cases(folder, name)]
    out.write_bytes(gzip.compress(('{"tolerance": 1e-4, "cases": [\n' + ",\n".join(json.dumps(r) for r in rows) + "\n]}\n").encode(), mtime=0))
    print(len(rows), "cases,", out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
