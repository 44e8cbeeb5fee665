#!/usr/bin/env python3
"""Writes testdata/golden/train/reward: reward models trained by TRL, step by step, on a tiny model.

The model, its tokenizer and the data are those of testdata/golden/train/preference. The head begins with
the numbers of torch's generator after the seed, as train run's does. Needs torch, transformers, datasets and
trl 1.16.0. usage: make-reward-fixtures.py [FOLDER]
"""
import json
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
import torch
import transformers
import trl
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent / "testdata/golden/train/preference"
SEED, STEPS, BATCH, RATE = 42, 6, 2, 5e-3


def run(case):
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=1, dtype=torch.float32, attn_implementation="eager")
    torch.manual_seed(SEED)
    with torch.no_grad():
        model.score.weight.copy_(torch.empty(model.score.weight.numel()).normal_(0, model.config.initializer_range).view_as(model.score.weight))
    data = load_dataset("json", data_files=str(MODEL / f"{case['data']}.jsonl"), split="train", cache_dir=tempfile.mkdtemp())
    args = trl.RewardConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=BATCH, max_steps=STEPS, learning_rate=RATE, logging_steps=1,
                            logging_strategy="steps", save_strategy="no", report_to=[], bf16=False, gradient_checkpointing=False, use_cpu=True,
                            lr_scheduler_type="linear", max_grad_norm=1.0, max_length=64, train_sampling_strategy="sequential", seed=SEED, **case["trl"])
    t = trl.RewardTrainer(model=model, args=args, train_dataset=data, processing_class=AutoTokenizer.from_pretrained(MODEL))
    t.train()
    keep = {"loss", "grad_norm", "learning_rate", "accuracy", "margin", "mean_reward"}
    steps = [{k: float(v) for k, v in e.items() if k in keep} for e in t.state.log_history if "loss" in e]
    assert len(steps) == STEPS, t.state.log_history
    return steps


CASES = [
    dict(name="text", data="text", trl={}, flags=[]),
    dict(name="chat_centered", data="chat", trl={"center_rewards_coefficient": 0.3}, flags=["--center-rewards-coefficient", "0.3"]),
    dict(name="implicit_accumulated", data="implicit", trl={"gradient_accumulation_steps": 2}, flags=["--gradient-accumulation-steps", "2"]),
]


def main():
    assert trl.__version__ == "1.16.0", trl.__version__
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent / "testdata/golden/train/reward")
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    made = []
    for case in CASES:
        steps = run(case)
        made.append({k: case[k] for k in ("name", "data", "flags")} | {"steps": steps})
        print(case["name"], [round(s["loss"], 6) for s in steps], flush=True)
    text = json.dumps(dict(batch=BATCH, rate=RATE, seed=SEED, trl=trl.__version__, transformers=transformers.__version__, cases=made), indent=1)
    (out / "trace.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
