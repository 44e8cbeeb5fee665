#!/usr/bin/env python3
"""Writes train/optim/testdata/muon.json.gz: values after steps of torch.optim.Muon on matrices, with its
Newton-Schulz iteration in float32, and of torch.optim.AdamW on a vector.

usage: make-muon-fixtures.py (with torch installed)
"""
import gzip
import inspect
import json
import os

import torch
from torch.optim import _muon

source = inspect.getsource(_muon._zeropower_via_newtonschulz)
assert "torch.bfloat16" in source
exec(source.replace("torch.bfloat16", "torch.float32"), _muon.__dict__)

short = lambda t: [float("%.9g" % v) for v in t.flatten().tolist()]
torch.manual_seed(12)
shapes = ((5,), (4, 6), (7, 3))
cases = []
for options in ({}, {"weight_decay": 0.2, "adjust_lr_fn": "match_rms_adamw"}, {"momentum": 0.8}):
    start = [torch.randn(s) for s in shapes]
    params = [torch.nn.Parameter(v.clone()) for v in start]
    decay = options.get("weight_decay", 0.0)
    matrices = torch.optim.Muon(params[1:], lr=0.02, **{"weight_decay": 0.0, **options})
    vectors = torch.optim.AdamW(params[:1], lr=0.02, weight_decay=decay)
    steps = []
    for _ in range(4):
        grads = [torch.randn(s) * 0.3 for s in shapes]
        for p, g in zip(params, grads):
            p.grad = g.clone()
        matrices.step()
        vectors.step()
        steps.append({"grads": [short(g) for g in grads], "values": [short(p.data) for p in params]})
    cases.append({"options": options, "start": [short(v) for v in start], "steps": steps})
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train", "optim", "testdata")
with open(os.path.join(folder, "muon.json.gz"), "wb") as f:
    f.write(gzip.compress(json.dumps({"shapes": shapes, "cases": cases}).encode(), mtime=0))
    f.write("\n")
print(len(cases), "cases")
