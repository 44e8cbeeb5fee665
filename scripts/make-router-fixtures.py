#!/usr/bin/env python3
"""Writes train/model/testdata/router-padding: a small random Mixtral, a batch with padding, and the
loss, the routers' auxiliary loss and gradients that transformers computes for it.

usage: make-router-fixtures.py (with torch and transformers installed)
"""
import json
import os

import torch
from transformers import MixtralConfig, MixtralForCausalLM

torch.manual_seed(17)
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train", "model", "testdata", "router-padding")
config = MixtralConfig(vocab_size=24, hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
                       num_key_value_heads=1, max_position_embeddings=16, num_local_experts=4, num_experts_per_tok=2,
                       output_router_logits=True, router_aux_loss_coef=0.5, initializer_range=0.5, sliding_window=None)
model = MixtralForCausalLM(config).float().train()
lengths, columns = (7, 3, 5), 7
ids, labels, mask = [], [], []
for n in lengths:
    row = torch.randint(1, 24, (n,)).tolist()
    ids.append(row + [0] * (columns - n))
    labels.append(row + [-100] * (columns - n))
    mask.append([1] * n + [0] * (columns - n))
out = model(input_ids=torch.tensor(ids), labels=torch.tensor(labels), attention_mask=torch.tensor(mask))
out.loss.backward()
model.save_pretrained(folder, safe_serialization=True)
for name in os.listdir(folder):
    if name not in ("config.json", "model.safetensors"):
        os.remove(os.path.join(folder, name))
wanted = {n: p.grad.flatten().double().tolist() for n, p in model.named_parameters()
          if n.endswith("gate.weight") or "embed_tokens" in n}
with open(os.path.join(folder, "padding.json"), "w") as f:
    json.dump({"ids": sum(ids, []), "labels": sum(labels, []), "mask": sum(mask, []), "length": columns,
               "loss": out.loss.item(), "auxiliary": out.aux_loss.item(),
               "gradients": {n: [float("%.9g" % v) for v in g] for n, g in wanted.items()}}, f)
    f.write("\n")
print("loss", out.loss.item(), "auxiliary", out.aux_loss.item(), sorted(wanted))
