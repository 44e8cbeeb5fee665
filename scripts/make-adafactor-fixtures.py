#!/usr/bin/env python3
"""Writes train/optim/testdata/adafactor.json.gz: values after steps of transformers' Adafactor, as its
Trainer uses it, for a vector, a matrix and a stack of matrices.

usage: make-adafactor-fixtures.py (with torch and transformers installed)
"""
import gzip
import json
import os

import torch
from transformers.optimization import Adafactor

short = lambda t: [float("%.9g" % v) for v in t.flatten().tolist()]
torch.manual_seed(11)
shapes = ((5,), (4, 6), (2, 3, 5))
cases = []
for options in ({}, {"weight_decay": 0.1, "clip_threshold": 0.5}, {"beta1": 0.9}, {"scale_parameter": True}):
    start = [torch.randn(s) for s in shapes]
    params = [torch.nn.Parameter(v.clone()) for v in start]
    opt = Adafactor(params, lr=0.01, relative_step=False, **{"scale_parameter": False, **options})
    steps = []
    for _ in range(4):
        grads = [torch.randn(s) * 0.3 for s in shapes]
        for p, g in zip(params, grads):
            p.grad = g.clone()
        opt.step()
        steps.append({"grads": [short(g) for g in grads], "values": [short(p.data) for p in params]})
    cases.append({"options": options, "start": [short(v) for v in start], "steps": steps})
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train", "optim", "testdata")
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, "adafactor.json.gz"), "wb") as f:
    f.write(gzip.compress(json.dumps({"shapes": shapes, "cases": cases}).encode(), mtime=0))
    f.write("\n")
print(len(cases), "cases")
