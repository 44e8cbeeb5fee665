#!/usr/bin/env python3
"""Writes testdata/golden/train/peft: adapters that PEFT trains with DoRA and modules_to_save, step by step.

Each run has the losses, norms and weights of its steps, the adapter before and after them, and logits of the
adapter and, where PEFT merges it, of the merged model. Dropout takes its masks from torch's generator in the
order of the linear maps, so that another program can draw the same ones. Needs torch, transformers and peft.
usage: make-peft-fixtures.py [FOLDER]
"""
import gzip
import json
import pathlib
import shutil
import sys
import warnings

import peft
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, get_scheduler

HERE = pathlib.Path(__file__).resolve().parent
SIZES = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=None)
BASES = {
    "llama": ("llama", dict(tie_word_embeddings=False)),
    "qwen2": ("qwen2", dict(tie_word_embeddings=True)),  # biases of q, k and v, and a tied head
    "gpt2": ("gpt2", dict(n_embd=16, n_layer=2, n_head=4, n_positions=64, vocab_size=40, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)),  # weights [in, out]
    "qwen3": ("qwen3", dict(tie_word_embeddings=False, head_dim=4)),  # norms of heads
    "gemma2": ("gemma2", dict(tie_word_embeddings=True, head_dim=4, query_pre_attn_scalar=4, sliding_window=8)),  # norms with 1 added
    "mixtral": ("mixtral", dict(tie_word_embeddings=False, num_local_experts=3, num_experts_per_tok=2)),
    "deepseek": ("deepseek_v3", dict(tie_word_embeddings=False, num_key_value_heads=4, q_lora_rank=8, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4,
                                     v_head_dim=4, first_k_dense_replace=2, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1)),
    "bloom": ("bloom", dict(n_layer=2, n_head=4)),  # biases by distance
    "mpt": ("mpt", dict(d_model=16, n_layers=2, n_heads=4, max_seq_len=64)),
    "phi3": ("phi3", dict(tie_word_embeddings=False)),  # fused gates, and queries with keys and values
}
# Fields of SIZES that models with names of their own take.
OWN_NAMES = {"gpt2": ("bos_token_id", "eos_token_id"), "bloom": ("vocab_size", "hidden_size", "bos_token_id", "eos_token_id", "pad_token_id"),
             "mpt": ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")}
RUNS = [
    dict(name="dora", base="llama", lora=dict(r=4, lora_alpha=8, use_dora=True, target_modules=["q_proj", "v_proj", "down_proj", "lm_head"]),
         optimizer=dict(name="AdamW", lr=1e-2, weight_decay=0.01), accumulation=2, clip=1.0),
    dict(name="dora_biases", base="qwen2", lora=dict(r=2, lora_alpha=3, use_dora=True, use_rslora=True, target_modules="all-linear"),
         optimizer=dict(name="SGD", lr=0.3), accumulation=1, clip=None),
    dict(name="dora_dropout", base="qwen2", lora=dict(r=3, lora_alpha=6, use_dora=True, lora_dropout=0.3, target_modules=["q_proj", "o_proj", "up_proj"]),
         optimizer=dict(name="SGD", lr=0.3), accumulation=1, clip=None, dropout_seed=11),
    dict(name="dora_transposed", base="gpt2", lora=dict(r=3, lora_alpha=6, use_dora=True, fan_in_fan_out=True, target_modules=["c_attn", "c_fc"]),
         optimizer=dict(name="SGD", lr=0.3), accumulation=1, clip=None),
    dict(name="saved", base="llama", lora=dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], modules_to_save=["lm_head", "embed_tokens"]),
         optimizer=dict(name="AdamW", lr=1e-2, weight_decay=0.01), accumulation=2, clip=1.0),
    dict(name="saved_tied", base="qwen2", lora=dict(r=2, lora_alpha=4, use_dora=True, target_modules="all-linear", modules_to_save=["lm_head", "k_proj"]),
         optimizer=dict(name="SGD", lr=0.3), accumulation=1, clip=None),
    dict(name="saved_transposed", base="gpt2", lora=dict(r=2, lora_alpha=4, fan_in_fan_out=True, target_modules=["c_proj"], modules_to_save=["c_attn", "wte", "wpe"]),
         optimizer=dict(name="SGD", lr=0.1), accumulation=1, clip=None),
    dict(name="norms", base="llama", lora=dict(r=2, lora_alpha=4, use_dora=True, target_modules=["q_proj", "v_proj"], modules_to_save=["norm"]),
         optimizer=dict(name="AdamW", lr=1e-2, weight_decay=0.01), accumulation=2, clip=1.0),
    dict(name="norms_heads", base="qwen3", lora=dict(r=2, lora_alpha=4, target_modules=["q_proj", "k_proj"], modules_to_save=["q_norm", "k_norm", "model.norm"]),
         optimizer=dict(name="SGD", lr=0.1), accumulation=1, clip=None),
    dict(name="norms_offset", base="gemma2", lora=dict(r=2, lora_alpha=4, target_modules=["down_proj"], modules_to_save=["layernorm", "model.norm"]),
         optimizer=dict(name="SGD", lr=0.1), accumulation=1, clip=None),
    dict(name="norms_biases", base="gpt2", lora=dict(r=2, lora_alpha=4, fan_in_fan_out=True, target_modules=["c_attn"], modules_to_save=["ln_1", "ln_f"]),
         optimizer=dict(name="SGD", lr=0.1), accumulation=1, clip=None),
    dict(name="container", base="llama", lora=dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["layers.1.mlp"]),
         optimizer=dict(name="SGD", lr=0.1), accumulation=1, clip=None),
    dict(name="router", base="mixtral", lora=dict(r=2, lora_alpha=4, target_modules=["v_proj"], modules_to_save=["mlp.gate"]),
         optimizer=dict(name="SGD", lr=0.3), accumulation=1, clip=None),
    dict(name="dora_latent", base="deepseek", lora=dict(r=2, lora_alpha=4, use_dora=True, target_modules=["kv_b_proj", "q_b_proj"], modules_to_save=["kv_a_layernorm"]),
         optimizer=dict(name="SGD", lr=0.3), accumulation=1, clip=None),
    dict(name="dora_fused", base="phi3", lora=dict(r=2, lora_alpha=4, use_dora=True, target_modules=["gate_up_proj", "qkv_proj"]),
         optimizer=dict(name="SGD", lr=0.3), accumulation=1, clip=None),
    # The modules that PEFT adapts in these models by default.
    dict(name="bloom", base="bloom", lora=dict(r=2, lora_alpha=4), optimizer=dict(name="AdamW", lr=1e-2, weight_decay=0.01), accumulation=2, clip=1.0),
    dict(name="bloom_dora", base="bloom", lora=dict(r=2, lora_alpha=4, use_dora=True, target_modules=["query_key_value", "dense", "dense_4h_to_h"]),
         optimizer=dict(name="SGD", lr=0.3), accumulation=1, clip=None),
    dict(name="mpt", base="mpt", lora=dict(r=2, lora_alpha=4), optimizer=dict(name="SGD", lr=0.3), accumulation=1, clip=None),
    dict(name="mpt_dora", base="mpt", lora=dict(r=2, lora_alpha=4, use_dora=True, target_modules=["Wqkv", "down_proj"]),
         optimizer=dict(name="AdamW", lr=1e-2, weight_decay=0.01), accumulation=2, clip=1.0),
]
STEPS, ROWS, LENGTH = 5, 2, 12


class Masks(torch.nn.Module):
    """Dropout with masks of a generator."""

    def __init__(self, p, generator):
        super().__init__()
        self.p, self.generator = p, generator

    def forward(self, x):
        if not self.training:
            return x
        kept = torch.rand(x.numel(), generator=self.generator) >= self.p
        return x * kept.view_as(x) / (1 - self.p)


def make_bases(out):
    for name, (kind, fields) in BASES.items():
        torch.manual_seed(7)
        sizes = {n: v for n, v in SIZES.items() if kind not in OWN_NAMES or n in OWN_NAMES[kind]}
        config = AutoConfig.for_model(kind, **{**sizes, **fields})
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
        with torch.no_grad():
            for n, p in model.named_parameters():
                if "norm" in n or "ln_" in n:
                    p.copy_(1 + 0.1 * torch.randn_like(p) if n.endswith("weight") else 0.1 * torch.randn_like(p))
                else:
                    p.copy_(0.2 * torch.randn_like(p))
        model.save_pretrained(out / "base" / name)
        (out / "base" / name / "generation_config.json").unlink(missing_ok=True)


def micro_batches(vocab):
    g = torch.Generator().manual_seed(3)
    made = []
    for k in range(2 * STEPS):
        ids = torch.randint(3, vocab, (ROWS, LENGTH), generator=g)
        labels = ids.clone()
        labels[0, : k % 4] = -100
        made.append(dict(input_ids=ids.tolist(), labels=labels.tolist()))
    return made


def named(name):
    """The name of a parameter without PEFT's wrappers."""
    name = name.removeprefix("base_model.model.").replace(".default", "")
    return name.removesuffix(".weight") if name.endswith("lora_magnitude_vector.weight") else name


def summary(p):
    v = p.detach().flatten()
    return dict(sum=v.double().sum().item(), l2=v.double().norm().item(), first4=v[:4].tolist())


def run(case, out):
    folder = out / case["name"]
    base = out / "base" / case["base"]
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **case["lora"]))
    if "dropout_seed" in case:
        g = torch.Generator().manual_seed(case["dropout_seed"])
        for m in model.modules():
            if isinstance(getattr(m, "lora_dropout", None), torch.nn.ModuleDict):
                m.lora_dropout["default"] = Masks(case["lora"]["lora_dropout"], g)
    save(model, folder / "init")
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    o = dict(case["optimizer"])
    made = {"AdamW": torch.optim.AdamW, "SGD": torch.optim.SGD}[o.pop("name")]([*trained.values()], **o)
    schedule = get_scheduler("linear", made, num_warmup_steps=1, num_training_steps=2 * STEPS)
    micro = micro_batches(model.config.vocab_size)
    steps = []
    model.train()
    for i in range(STEPS):
        losses = []
        for k in range(case["accumulation"]):
            b = micro[i * case["accumulation"] + k]
            loss = model(input_ids=torch.tensor(b["input_ids"]), labels=torch.tensor(b["labels"])).loss
            (loss / case["accumulation"]).backward()
            losses.append(loss.item())
        norm = torch.nn.utils.clip_grad_norm_([*trained.values()], case["clip"] or 1e30).item()
        rate = made.param_groups[0]["lr"]
        made.step()
        schedule.step()
        made.zero_grad()
        steps.append(dict(lr=rate, micro_losses=losses, grad_norm=norm, loss=sum(losses) / len(losses), weights={named(n): summary(p) for n, p in trained.items()}))
    model.eval()
    save(model, folder / "final")
    ids = torch.tensor(micro[0]["input_ids"])
    with torch.no_grad():
        tensors = dict(input_ids=ids, adapter_logits=model(input_ids=ids).logits.contiguous())
        plain = model.merge_and_unload()
        tensors["merged_logits"] = plain(input_ids=ids).logits.contiguous()
    save_file(tensors, folder / "logits.safetensors")
    print(case["name"], [round(s["loss"], 5) for s in steps], float((tensors["adapter_logits"] - tensors["merged_logits"]).abs().max()), flush=True)
    again = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager"), folder / "final")
    with torch.no_grad():
        assert (again.eval()(input_ids=ids).logits - tensors["adapter_logits"]).abs().max() < 1e-5
    return dict(run=case["name"], base=case["base"], optimizer=case["optimizer"], accumulation=case["accumulation"], max_grad_norm=case["clip"],
                dropout_seed=case.get("dropout_seed"), scheduler=dict(type="linear", num_warmup_steps=1, num_training_steps=2 * STEPS),
                loss_rule="mean per micro batch, divided by accumulation", steps=steps)


def save(model, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "base"  # no path of the machine
    if isinstance(config["target_modules"], list):  # a set, whose order changes from run to run
        config["target_modules"].sort()
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent / "testdata/golden/train/peft")
    shutil.rmtree(out, ignore_errors=True)
    torch.set_num_threads(1)
    make_bases(out)
    runs = [run(case, out) for case in RUNS]
    text = dict(versions=dict(torch=torch.__version__, transformers=transformers.__version__, peft=peft.__version__), micro_batches=micro_batches(40), runs=runs)
    (out / "trace.json.gz").write_bytes(gzip.compress((json.dumps(text, indent=None, separators=(",", ":")) + "\n").encode(), mtime=0))


if __name__ == "__main__":
    main()
