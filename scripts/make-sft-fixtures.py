#!/usr/bin/env python3
"""Writes testdata/golden/train/sft: what TRL's SFTTrainer logs at every step and evaluation, on a tiny model.

The model and its tokenizer are those of testdata/golden/train/preference. Data is taken in order. A case with ranks
runs that many processes over gloo. Needs torch, transformers, datasets and trl 1.16.0.
usage: make-sft-fixtures.py [FOLDER]
"""
import gzip
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
import torch
import transformers
import trl
from datasets import load_dataset
from transformers import AutoTokenizer, LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent / "testdata/golden/train/preference"
SEED, STEPS, BATCH, RATE = 42, 6, 2, 3e-2
KEEP = ("loss", "grad_norm", "learning_rate", "entropy", "mean_token_accuracy", "num_tokens", "eval_entropy",
        "eval_mean_token_accuracy", "eval_num_tokens")


def write_data(folder):
    words = ["red", "green", "blue", "seven", "the sun", "a river", "snow", "many birds", "old stones", "nothing", "a song", "rain"]
    pairs = [(f"What is {w}?", f" It is {words[(i + 5) % 12]}{' and rain' * (i % 4)}.") for i, w in enumerate(words)]
    forms = {
        "text": [dict(text=p + c) for p, c in pairs],
        "answers": [dict(prompt=p, completion=c) for p, c in pairs],
        "eval": [dict(prompt=p, completion=c * 2) for p, c in pairs[:5]],
    }
    for name, rows in forms.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def run(folder, case):
    """Returns what one rank of a case logs."""
    files = {"train": str(folder / f"{case['data']}.jsonl"), "eval": str(folder / "eval.jsonl")}
    data = {k: load_dataset("json", data_files=f, split="train", cache_dir=tempfile.mkdtemp()) for k, f in files.items()}
    if not case.get("eval"):
        data["eval"] = None
    torch.manual_seed(SEED)
    model = LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")
    evals = dict(eval_strategy="steps", eval_steps=2, per_device_eval_batch_size=BATCH) if case.get("eval") else {}
    args = trl.SFTConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=BATCH, max_steps=STEPS, learning_rate=RATE, logging_steps=case.get("log", 1),
                         logging_strategy="steps", save_strategy="no", report_to=[], bf16=False, gradient_checkpointing=False, use_cpu=True,
                         lr_scheduler_type="linear", max_grad_norm=1.0, max_length=64, train_sampling_strategy="sequential", seed=SEED, **evals, **case["trl"])
    t = trl.SFTTrainer(model=model, args=args, train_dataset=data["train"], eval_dataset=data["eval"], processing_class=AutoTokenizer.from_pretrained(MODEL))
    t.train()
    return [{k: float(v) for k, v in e.items() if k in KEEP} | {"step": e["step"]} for e in t.state.log_history if "train_loss" not in e]


def run_ranks(folder, case):
    """Runs the ranks of a case as processes and returns what the first one logs."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    out = pathlib.Path(tempfile.mkdtemp()) / "steps.json"
    ranks = []
    for rank in range(case["ranks"]):
        env = os.environ | dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(case["ranks"]), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                                ACCELERATE_USE_CPU="true")
        ranks.append(subprocess.Popen([sys.executable, __file__, str(folder), case["name"], str(out)], env=env))
    assert all([r.wait() == 0 for r in ranks]), case["name"]
    return json.loads(out.read_text())


CASES = [
    dict(name="text", data="text", trl={}, flags=[]),
    dict(name="answers_evaluated", data="answers", eval=True, trl={}, flags=[]),
    dict(name="accumulated", data="answers", log=2, trl={"gradient_accumulation_steps": 4}, flags=["--gradient-accumulation-steps", "4"]),
    dict(name="smoothed", data="text", trl={"label_smoothing_factor": 0.1}, flags=["--label-smoothing", "0.1"]),
    dict(name="two_ranks", data="answers", ranks=2, trl={"gradient_accumulation_steps": 3},
         flags=["--gradient-accumulation-steps", "3", "--num-processes", "2"]),
]


def main():
    assert trl.__version__ == "1.16.0", trl.__version__
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent / "testdata/golden/train/sft")
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if len(sys.argv) > 2:  # one rank of a case
        steps = run(out, next(c for c in CASES if c["name"] == sys.argv[2]))
        if os.environ["RANK"] == "0":
            pathlib.Path(sys.argv[3]).write_text(json.dumps(steps))
        return
    write_data(out)
    made = []
    for case in CASES:
        steps = run_ranks(out, case) if "ranks" in case else run(out, case)
        made.append(dict(name=case["name"], data=case["data"], eval=case.get("eval", False), log=case.get("log", 1), flags=case["flags"], steps=steps))
        print(case["name"], steps, flush=True)
    text = json.dumps(dict(batch=BATCH, rate=RATE, seed=SEED, steps=STEPS, trl=trl.__version__, transformers=transformers.__version__, cases=made), indent=1)
    (out / "trace.json.gz").write_bytes(gzip.compress((text + "\n").encode(), mtime=0))


if __name__ == "__main__":
    main()
