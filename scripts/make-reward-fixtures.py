#!/usr/bin/env python3
"""Writes testdata/golden/train/reward: reward models trained by TRL, step by step, on a tiny model.

The model, its tokenizer and the data are those of testdata/golden/train/preference. The head begins with
the numbers of torch's generator after the seed, as train run's does. Needs torch, transformers, datasets,
peft and trl 1.16.0. usage: make-reward-fixtures.py [FOLDER]
"""
import gzip
import json
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
import peft
import torch
import transformers
import trl
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent / "testdata/golden/train/preference"
SEED, STEPS, BATCH, RATE = 42, 6, 2, 5e-3


def run(case, out):
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=1, dtype=torch.float32, attn_implementation="eager")
    torch.manual_seed(SEED)
    with torch.no_grad():
        model.score.weight.copy_(torch.empty(model.score.weight.numel()).normal_(0, model.config.initializer_range).view_as(model.score.weight))
    if "lora" in case:
        torch.manual_seed(SEED)  # as train run starts an adapter
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", **case["lora"]))
    data = load_dataset("json", data_files=str((out if case["data"] == "margins" else MODEL) / f"{case['data']}.jsonl"), split="train", cache_dir=tempfile.mkdtemp())
    args = trl.RewardConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=BATCH, max_steps=STEPS, learning_rate=RATE, logging_steps=1,
                            logging_strategy="steps", save_strategy="no", report_to=[], bf16=False, gradient_checkpointing=False, use_cpu=True,
                            lr_scheduler_type="linear", max_grad_norm=1.0, max_length=64, train_sampling_strategy="sequential", seed=SEED, **case["trl"])
    t = trl.RewardTrainer(model=model, args=args, train_dataset=data, processing_class=AutoTokenizer.from_pretrained(MODEL))
    t.train()
    keep = {"loss", "grad_norm", "learning_rate", "accuracy", "margin", "min_reward", "mean_reward", "max_reward"}
    steps = [{k: float(v) for k, v in e.items() if k in keep} for e in t.state.log_history if "loss" in e]
    assert len(steps) == STEPS, t.state.log_history
    if "lora" in case:
        model.save_pretrained(out / case["name"])
        (out / case["name"] / "README.md").unlink(missing_ok=True)
        config = json.loads((out / case["name"] / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = "base"  # no path of the machine
        (out / case["name"] / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    return steps


def margins(out):
    """Writes text.jsonl of the preference fixtures with a column of margins."""
    lines = [json.loads(line) for line in (MODEL / "text.jsonl").read_text().splitlines() if line]
    text = "".join(json.dumps(line | {"margin": (0, 0.5, 1.25)[i % 3]}) + "\n" for i, line in enumerate(lines))
    (out / "margins.jsonl").write_text(text)


CASES = [
    dict(name="text", data="text", trl={}, flags=[]),
    dict(name="chat_centered", data="chat", trl={"center_rewards_coefficient": 0.3}, flags=["--center-rewards-coefficient", "0.3"]),
    dict(name="margins", data="margins", trl={}, flags=[]),
    dict(name="lora", data="text", trl={}, flags=["--lora", "r=4,alpha=8"], lora=dict(r=4, lora_alpha=8, target_modules="all-linear")),
    dict(name="dora_margins", data="margins", trl={"gradient_accumulation_steps": 2}, flags=["--lora", "r=2,alpha=4,targets=q_proj+v_proj", "--dora", "true",
         "--gradient-accumulation-steps", "2"], lora=dict(r=2, lora_alpha=4, use_dora=True, target_modules=["q_proj", "v_proj"])),
    dict(name="implicit_accumulated", data="implicit", trl={"gradient_accumulation_steps": 2}, flags=["--gradient-accumulation-steps", "2"]),
]


def main():
    assert trl.__version__ == "1.16.0", trl.__version__
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent / "testdata/golden/train/reward")
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    margins(out)
    made = []
    for case in CASES:
        steps = run(case, out)
        made.append({k: case[k] for k in ("name", "data", "flags")} | {"steps": steps})
        print(case["name"], [round(s["loss"], 6) for s in steps], flush=True)
    text = json.dumps(dict(batch=BATCH, rate=RATE, seed=SEED, trl=trl.__version__, transformers=transformers.__version__, cases=made), indent=1)
    (out / "trace.json.gz").write_bytes(gzip.compress((text + "\n").encode(), mtime=0))


if __name__ == "__main__":
    main()
