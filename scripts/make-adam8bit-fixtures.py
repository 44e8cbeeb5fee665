#!/usr/bin/env python3
"""Writes train/optim/testdata/adam8bit.json.gz: bitsandbytes' dynamic maps, and some values after steps of its
AdamW8bit on a CPU. Its library for CPUs overwrites the first number of a map with -1, so codes are found as
its fallback in torch does: the nearest number of the map. Weights and gradients are normal numbers of torch's generator, which the test draws, too.

usage: make-adam8bit-fixtures.py (with torch and bitsandbytes installed)
"""
import gzip
import json
import os

import bitsandbytes as bnb
import torch
from bitsandbytes import functional as F
from bitsandbytes.backends.cpu import ops

short = lambda t: [float("%.9g" % v) for v in t.flatten().tolist()]


def nearest(x, code, absmax, out, blocksize):
    for i, block in enumerate(x.split(blocksize)):
        absmax[i] = block.abs().max()
        out[i * blocksize : i * blocksize + len(block)] = ((block * (1 / absmax[i])).unsqueeze(-1) - code).abs().argmin(-1).to(torch.uint8)


ops._quant_blockwise_fp32_direct = nearest
SIZES, STEPS, EVERY, SEED = (5000, 100), 6, 37, 13
cases = []
for options in ({}, {"weight_decay": 0.2, "betas": (0.8, 0.95)}):
    torch.manual_seed(SEED)
    params = [torch.nn.Parameter(torch.empty(n).normal_()) for n in SIZES]
    opt = bnb.optim.AdamW8bit(params, lr=0.01, **{"weight_decay": 0.0, **options})
    steps = []
    for _ in range(STEPS):
        for p in params:
            p.grad = torch.empty(p.numel()).normal_(0, 0.3)
        opt.step()
        steps.append([short(p.data[::EVERY]) for p in params])
    cases.append({"options": options, "steps": steps})
maps = [short(F.create_dynamic_map(signed=s)) for s in (True, False)]
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train", "optim", "testdata")
with open(os.path.join(folder, "adam8bit.json.gz"), "wb") as f:
    f.write(gzip.compress(json.dumps({"bitsandbytes": bnb.__version__, "seed": SEED, "sizes": SIZES, "every": EVERY, "maps": maps, "cases": cases}).encode(), mtime=0))
    f.write("\n")
print(len(cases), "cases")
