#!/usr/bin/env python3
"""Compares adapters with PEFT's, both ways.

    check-lora.py SERVE            makes small models and adapters of many kinds with PEFT, serves
                                   them with the binary SERVE and compares log-probabilities
    check-lora.py --load BASE DIR  loads an adapter that Heft saved with PEFT on a base and prints
                                   its parameters; an unknown or missing tensor is an error

Needs torch, transformers, peft. Exits with 1 where something differs.
"""
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
import warnings

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
small = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128)
for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
    small[name] = 0
models = {
    "llama": transformers.LlamaConfig(**small),
    "llama-tied": transformers.LlamaConfig(**small, tie_word_embeddings=True),
    "qwen2": transformers.Qwen2Config(**small, tie_word_embeddings=False),
    "phi3": transformers.Phi3Config(**small, tie_word_embeddings=False),
    "gpt2": transformers.GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=128),
    "gpt_neox": transformers.GPTNeoXConfig(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                           num_attention_heads=4, max_position_embeddings=128),
    "gemma2": transformers.Gemma2Config(**small, head_dim=8, sliding_window=16),
    "stablelm": transformers.StableLmConfig(**small, use_parallel_residual=True, tie_word_embeddings=False),
    "deepseek_v3": transformers.DeepseekV3Config(**small | {"num_key_value_heads": 4}, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8,
                                                 qk_nope_head_dim=8, v_head_dim=8, first_k_dense_replace=2, n_routed_experts=4, num_experts_per_tok=2,
                                                 n_group=1, topk_group=1, tie_word_embeddings=False),
    "qwen3_moe": transformers.Qwen3MoeConfig(**small, moe_intermediate_size=24, num_experts=4, num_experts_per_tok=2, head_dim=8,
                                             tie_word_embeddings=False),
    "gpt_oss": transformers.GptOssConfig(**small, num_local_experts=4, num_experts_per_tok=2, head_dim=8, tie_word_embeddings=False),
    "mixtral": transformers.MixtralConfig(**small, num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=False),
}
adapters = {
    "all": dict(target_modules="all-linear", r=4, lora_alpha=8),
    "rslora": dict(target_modules="all-linear", r=3, lora_alpha=5, use_rslora=True),
    "pattern": dict(target_modules=r".*\.(0|1)\..*(o_proj|c_proj|dense|qkv_proj)", r=2, lora_alpha=4),
    "ranks": dict(target_modules="all-linear", r=2, lora_alpha=4, rank_pattern={r"layers\.1\.self_attn\..*proj": 5, "c_attn": 7, "dense": 1},
                  alpha_pattern={"o_proj": 16, "mlp.*": 2}),
    "head": dict(target_modules=["lm_head", "embed_out"], r=2, lora_alpha=4),
    "latent": dict(target_modules=["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"], r=3, lora_alpha=6),
    "experts": dict(target_modules=[], target_parameters=["experts.gate_up_proj", "down_proj"], r=2, lora_alpha=5),
    "layer": dict(target_modules=["q_proj", "c_attn", "qkv_proj", "query_key_value"], r=2, lora_alpha=4, layers_to_transform=[1]),
    "dora": dict(target_modules=r".*\.(q_proj|v_proj|o_proj|q_b_proj|gate_proj|up_proj|down_proj|gate_up_proj|qkv_proj|c_attn|c_proj|query_key_value|dense|dense_4h_to_h)",
                 r=3, lora_alpha=5, use_dora=True),
    "saved": dict(target_modules=["q_proj", "q_a_proj", "c_fc", "gate_up_proj", "dense_h_to_4h"], r=2, lora_alpha=4, use_rslora=True,
                  modules_to_save=["lm_head", "embed_out", "embed_tokens", "wte", "o_proj", "c_proj"]),
}


def make(folder):
    """Saves each model with each adapter that fits; returns folders and log-probabilities."""
    cases = []
    for name, config in models.items():
        torch.manual_seed(len(name))
        base = os.path.join(folder, name)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(base)
        tokens = torch.randint(0, 96, (1, 24))
        for kind, options in adapters.items():
            model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
            if kind == "head" and config.tie_word_embeddings:
                continue
            try:
                model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", fan_in_fan_out=name == "gpt2", **options))
            except ValueError:
                continue  # it names no module of this model
            for n, p in model.named_parameters():
                if "lora_B" in n:
                    torch.nn.init.normal_(p, std=0.3)
                elif "magnitude" in n or "modules_to_save" in n:
                    with torch.no_grad():
                        p.mul_(1 + 0.3 * torch.randn_like(p))
            path = os.path.join(folder, f"{name}-{kind}")
            model.save_pretrained(path)
            # What counts is what PEFT reads: the order of patterns is lost in the file, which sorts them.
            model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
            model = PeftModel.from_pretrained(model, path)
            with torch.no_grad():
                logits = model.eval()(tokens).logits[0].double()
            logs = torch.log_softmax(logits, -1)
            cases.append((name, kind, path, tokens[0].tolist(), [logs[i, t].item() for i, t in enumerate(tokens[0, 1:].tolist())]))
    return cases


def compare(serve, folder, cases):
    """Serves each model with its adapters and returns how many differ."""
    wrong = 0
    for name in models:
        mine = [c for c in cases if c[0] == name]
        args = [serve, "--model", os.path.join(folder, name), "--precision", "high", "--port", "0"]
        for _, kind, path, _, _ in mine:
            args += ["--lora", f"{kind}={path}"]
        p = subprocess.Popen(args, stderr=subprocess.PIPE, text=True)
        url, said = None, []
        for line in p.stderr:
            said.append(line)
            if found := re.search(r"at=(http://\S+)", line):
                url = found[1]
                break
        if url is None:
            print(name, "".join(said))
            wrong += 1
            continue
        for _, kind, _, tokens, want in mine:
            body = json.dumps({"model": kind, "prompt": tokens, "max_tokens": 0, "echo": True, "logprobs": 1}).encode()
            with urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})) as r:
                got = json.load(r)["choices"][0]["logprobs"]["token_logprobs"][1:]
            off = max(abs(a - b) for a, b in zip(got, want))
            good = off < 2e-4 and len(got) == len(want) and not any(map(math.isnan, got))
            wrong += not good
            print(f"{name:12} {kind:8} {off:.1e} {'' if good else 'DIFFERS'}")
        p.terminate()
        p.wait()
    return wrong


def load(base, path):
    model = PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), path)
    result = model.load_adapter(path, "again")
    left = [k for k in list(result.missing_keys) + list(result.unexpected_keys) if "lora" in k and "default" not in k]
    print(sum(p.numel() for n, p in model.named_parameters() if "lora_" in n and ".default" in n), "parameters", left or "")
    return len(left)


if len(sys.argv) == 4 and sys.argv[1] == "--load":
    sys.exit(1 if load(sys.argv[2], sys.argv[3]) else 0)
if len(sys.argv) != 2:
    sys.exit(__doc__)
with tempfile.TemporaryDirectory() as folder:
    failed = compare(sys.argv[1], folder, make(folder))
print(f"{failed} adapters differ")
sys.exit(1 if failed else 0)
