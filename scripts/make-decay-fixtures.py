#!/usr/bin/env python3
"""Asks transformers' Trainer which parameters of small models decay.

    make-decay-fixtures.py FILE

FILE (train/finetune/testdata/decay.json.gz) has for each model its config and the names of all parameters, with
true for those that weight decay applies to. Needs torch and transformers.
"""
import gzip
import json
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, Trainer

small = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, pad_token_id=None, bos_token_id=0, eos_token_id=0)
MODELS = {
    "llama": dict(small, attention_bias=True),
    "gpt2": dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0),
    "olmo2": small,
    "cohere": dict(small, use_qk_norm=True),
    "gpt_oss": dict(small, num_local_experts=4, num_experts_per_tok=2, head_dim=8),
    "mamba2": dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, state_size=8, num_heads=4, head_dim=16, n_groups=1, chunk_size=8,
                   bos_token_id=0, eos_token_id=0, pad_token_id=0),
    "falcon_h1": dict(small, head_dim=8, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_d_state=8, mamba_n_groups=1, mamba_chunk_size=8),
}

out = dict(transformers=transformers.__version__, models=[])
for kind, fields in MODELS.items():
    config = AutoConfig.for_model(kind, **fields)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    decayed = set(Trainer.get_decay_parameter_names(None, model))
    # JSON knows no infinite number, such as those of time_step_limit, which is as by default.
    config = {k: v for k, v in config.to_diff_dict().items() if k != "time_step_limit"}
    config["architectures"] = [type(model).__name__]
    out["models"].append(dict(config=config, decays={n: n in decayed for n, _ in model.named_parameters()}))
text = json.dumps(out, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"
with open(sys.argv[1], "wb") as f:
    f.write(gzip.compress(text.encode(), mtime=0))
