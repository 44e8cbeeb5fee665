#!/usr/bin/env python3
"""Writes train/model/testdata/neftune.json: the losses and a gradient of a small random Llama (that of
testdata/padding-row/untied) with NEFTune's noise, as transformers' Trainer adds it, by seed.

usage: make-neftune-fixtures.py (with torch and transformers installed)
"""
import json
import os

import torch
from transformers import LlamaForCausalLM
from transformers.integrations.neftune import neftune_post_forward_hook

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train", "model", "testdata")
model = LlamaForCausalLM.from_pretrained(os.path.join(folder, "padding-row", "untied")).float().train()
embed = model.get_input_embeddings()
embed.neftune_noise_alpha = 5.0
embed.register_forward_hook(neftune_post_forward_hook)
ids = torch.tensor([[7, 9, 11, 20, 8], [6, 6, 23, 14, 10]])
torch.manual_seed(4)
losses = []
for _ in range(2):
    model.zero_grad()
    out = model(input_ids=ids, labels=ids)
    out.loss.backward()
    losses.append(out.loss.item())
with open(os.path.join(folder, "neftune.json"), "w") as f:
    json.dump({"ids": ids.flatten().tolist(), "length": 5, "seed": 4, "alpha": 5.0, "losses": losses,
               "gradients": {n: [float("%.9g" % v) for v in p.grad.flatten().tolist()]
                             for n, p in model.named_parameters() if "embed_tokens" in n or "q_proj" in n}}, f)
    f.write("\n")
print(losses)
