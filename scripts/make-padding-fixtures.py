#!/usr/bin/env python3
"""Writes train/model/testdata/padding-row: a small random Llama with a padding token, a batch that
has the token as padding and as text, and the loss and the gradients of its embeddings that
transformers computes, with embeddings of their own and tied to the head.

usage: make-padding-fixtures.py (with torch and transformers installed)
"""
import json
import os

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(19)
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train", "model", "testdata", "padding-row")
PAD, columns, cases = 5, 7, []
for name, tied in (("untied", False), ("tied", True)):
    config = LlamaConfig(vocab_size=24, hidden_size=16, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
                         num_key_value_heads=1, max_position_embeddings=16, initializer_range=0.5, pad_token_id=PAD,
                         tie_word_embeddings=tied)
    model = LlamaForCausalLM(config).float().train()
    with torch.no_grad():
        model.get_input_embeddings().weight[PAD].normal_()  # a published model's row need not be 0
    ids, labels = [], []
    for n in (7, 3, 5):
        row = torch.randint(6, 24, (n,)).tolist()
        row[1] = PAD  # a model whose padding token is its end of text reads it inside of texts, too
        ids.append(row + [PAD] * (columns - n))
        labels.append(row + [-100] * (columns - n))
    out = model(input_ids=torch.tensor(ids), labels=torch.tensor(labels))
    out.loss.backward()
    model.save_pretrained(os.path.join(folder, name), safe_serialization=True)
    for f in os.listdir(os.path.join(folder, name)):
        if f not in ("config.json", "model.safetensors"):
            os.remove(os.path.join(folder, name, f))
    grads = {n: [float("%.9g" % v) for v in p.grad.flatten().tolist()] for n, p in model.named_parameters() if "embed_tokens" in n}
    with open(os.path.join(folder, name, "padding.json"), "w") as f:
        json.dump({"ids": sum(ids, []), "labels": sum(labels, []), "length": columns, "loss": out.loss.item(), "gradients": grads}, f)
        f.write("\n")
    print(name, out.loss.item(), model.get_input_embeddings().weight.grad[PAD].abs().max().item())
