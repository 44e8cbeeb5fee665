#!/usr/bin/env python3
"""Writes meta/testdata/rope.json.gz: rotary frequencies by transformers.

usage: make-rope-fixtures.py OUT.json.gz   (needs torch and transformers 5)
"""
import gzip
import json
import random
import sys

import torch
import transformers
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

transformers.logging.set_verbosity_error()
BASE = dict(model_type="llama", hidden_size=256, num_attention_heads=8, num_hidden_layers=1,
            intermediate_size=8, vocab_size=8)
random.seed(7)
SHORT = [round(1 + 2 * random.random(), 4) for _ in range(16)]
LONG = [round(1 + 60 * random.random(), 4) for _ in range(16)]


def cases():
    for theta in (10000.0, 150000, 1000000.0):
        yield (1,), dict(rope_theta=theta)
    yield (1,), dict(head_dim=80)
    yield (1,), dict(rope_theta=12345.5, rope_scaling={"type": "linear", "factor": 3.7})
    yield (1,), dict(rope_parameters={"rope_type": "linear", "rope_theta": 500000.0, "factor": 2})
    yield (1, 512, 513, 4096, 100000), dict(
        max_position_embeddings=512, rope_scaling={"type": "dynamic", "factor": 2.5})
    for factor, original in ((8.0, 8192), (32.0, 8192), (3.3, 100)):
        yield (1,), dict(rope_theta=500000.0, max_position_embeddings=131072, rope_scaling={
            "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": original})
    for theta in (10000.0, 1000000.0):
        for more in ({"factor": 4.0}, {"factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32},
                     {"factor": 40, "mscale": 0.707, "mscale_all_dim": 1.2}, {"factor": 32.0, "truncate": False},
                     {"factor": 4.0, "attention_factor": 1.5}, {"factor": 2.0, "beta_fast": 16, "beta_slow": 2.5},
                     {"factor": 1.0}):
            yield (1,), dict(rope_theta=theta, max_position_embeddings=32768, rope_scaling={
                "rope_type": "yarn", "original_max_position_embeddings": 4096, **more})
    yield (1,), dict(max_position_embeddings=32768, rope_scaling={"type": "yarn", "factor": 4.0})
    for more in ({}, {"factor": 8.0}, {"attention_factor": 1.19}):
        yield (1, 4096, 4097), dict(max_position_embeddings=131072, rope_scaling={
            "rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG,
            "original_max_position_embeddings": 4096, **more})


def main():
    out = []
    for lengths, more in cases():
        for length in lengths:
            config = {**BASE, **more}
            rope = LlamaRotaryEmbedding(LlamaConfig(**json.loads(json.dumps(config))))
            rope(torch.zeros(1, 1, 1), torch.tensor([[length - 1]]))
            out.append(dict(config=config, length=length, inv=rope.inv_freq.tolist(), scale=float(rope.attention_scaling)))
    with open(sys.argv[1], "wb") as f:
        f.write(gzip.compress(("[\n" + ",\n".join(json.dumps(c) for c in out) + "\n]\n").encode(), mtime=0))


main()
