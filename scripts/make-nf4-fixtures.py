#!/usr/bin/env python3
"""Writes train/model/testdata/nf4.json.gz: what bitsandbytes makes of matrices in NF4 with blocks of 64,
and the losses of PEFT's LoRA on a small random Llama (that of testdata/golden/train/models/llama)
whose linear maps, but for the head, are bitsandbytes' numbers: QLoRA by step.

usage: make-nf4-fixtures.py (with torch, transformers, peft and bitsandbytes installed)
"""
import gzip
import json
import os

import torch
from bitsandbytes.functional import quantize_4bit
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoConfig, LlamaForCausalLM

top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
short = lambda t: [float("%.9g" % v) for v in t.flatten().tolist()]


def nf4(w):
    codes, state = quantize_4bit(w.contiguous(), blocksize=64, quant_type="nf4")
    # by bitsandbytes' own table: its dequantize_4bit on CPUs is wrong where rows are no multiples of 64
    at = torch.stack([codes.flatten().int() >> 4, codes.flatten().int() & 15], 1).flatten()
    return codes, state, (state.code[at].view(-1, 64) * state.absmax[:, None]).view(w.shape)


torch.manual_seed(5)
w = torch.randn(6, 96) * torch.logspace(-6, 2, 6).unsqueeze(1)
w[1, :64] = 0
codes, state, back = nf4(w)
out = {"weights": short(w), "codes": codes.flatten().tolist(), "scales": short(state.absmax), "values": short(back)}

folder = os.path.join(top, "testdata", "golden", "train", "models", "llama")
model = LlamaForCausalLM(AutoConfig.from_pretrained(folder)).float()
model.load_state_dict(load_file(os.path.join(folder, "init.safetensors")))
with torch.no_grad():
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            module.weight.copy_(nf4(module.weight.data)[2])
torch.manual_seed(1)
model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, use_rslora=True, target_modules="all-linear", task_type="CAUSAL_LM")).train()
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.02, weight_decay=0)
ids = torch.tensor([[3, 9, 4, 8, 30, 12, 7], [5, 1, 22, 17, 2, 40, 33]])
losses = []
for _ in range(6):
    opt.zero_grad()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    opt.step()
    losses.append(loss.item())
out.update(ids=ids.flatten().tolist(), length=7, losses=losses)
with open(os.path.join(top, "train", "model", "testdata", "nf4.json.gz"), "wb") as f:
    f.write(gzip.compress(json.dumps(out).encode(), mtime=0))
    f.write("\n")
print(losses)
