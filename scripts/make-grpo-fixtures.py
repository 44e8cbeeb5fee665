#!/usr/bin/env python3
"""Writes testdata/golden/train/grpo: GRPO by TRL on given completions and rewards, step by step.

The model and its tokenizer are those of testdata/golden/train/preference. Each case holds the loss and the
metrics that TRL logs at every step, and the flags of `train run` that give the same run. Data is taken in
order. Needs torch, transformers, datasets, peft 0.21.2 and trl 1.16.0. usage: make-grpo-fixtures.py [FOLDER]
"""
import collections
import gzip
import json
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
import torch
import transformers
import trl
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoTokenizer, LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent / "testdata/golden/train/preference"
SEED, STEPS, PROMPTS, GENERATIONS, RATE, LONGEST = 42, 6, 2, 4, 5e-3, 24


def records():
    words = ["red", "green", "blue", "seven", "the sun", "a river", "snow", "many birds", "old stones", "nothing", "a song", "rain"]
    for i, w in enumerate(words):
        completions = [f" It is {words[(i + k + 1) % 12]}{' and more' * (k * (i + 1) % 3)}." for k in range(GENERATIONS)]
        rewards = [round(((i * 7 + k * 5) % 11) / 4 - 1, 2) for k in range(GENERATIONS)]
        yield f"What is {w}?", completions, rewards


def write_data(folder):
    text = [dict(prompt=p, completions=c, rewards=r) for p, c, r in records()]
    chat = [dict(prompt=[dict(role="user", content=p)], completions=c, rewards=[None if i % 5 == 2 and k == 1 else v for k, v in enumerate(r)])
            for i, (p, c, r) in enumerate(records())]
    named = [r | dict(rewards=dict(first=r["rewards"], second=[None if (i + k) % 4 == 1 else ((i * 3 + k * 2) % 5) / 2 for k in range(GENERATIONS)]))
             for i, r in enumerate(text)]
    for name, rows in {"text": text, "chat": chat, "named": named}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return {"text": text, "chat": chat, "named": named}


def run(case, rows):
    model = LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    peft = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM") if case.get("lora") else None
    by_prompt = {json.dumps(r["prompt"]): r for r in rows}

    def numbered(prompts):
        seen = collections.Counter()
        for p in prompts:
            key = json.dumps(p)
            yield by_prompt[key], seen[key]
            seen[key] += 1

    def roll_out(prompts, trainer):
        prompt_ids, completion_ids = [], []
        for r, k in numbered(prompts):
            p = r["prompt"]
            if isinstance(p, list):
                p = tokenizer.apply_chat_template(p, add_generation_prompt=True, tokenize=False)
            prompt_ids.append(tokenizer(p, add_special_tokens=isinstance(r["prompt"], str))["input_ids"])
            ids = tokenizer(r["completions"][k], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
            completion_ids.append(ids[:LONGEST])
        return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": None}

    def reward(prompts, completions, **_):
        return [r["rewards"][k] for r, k in numbered(prompts)]

    def first(prompts, completions, **_):
        return [r["rewards"]["first"][k] for r, k in numbered(prompts)]

    def second(prompts, completions, **_):
        return [r["rewards"]["second"][k] for r, k in numbered(prompts)]

    args = trl.GRPOConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=PROMPTS * GENERATIONS, num_generations=GENERATIONS, max_steps=STEPS,
                          learning_rate=RATE, logging_steps=1, logging_strategy="steps", save_strategy="no", report_to=[], bf16=False,
                          gradient_checkpointing=False, use_cpu=True, lr_scheduler_type="linear", max_grad_norm=1.0, seed=SEED, shuffle_dataset=False,
                          max_completion_length=LONGEST, **case["trl"])
    torch.manual_seed(SEED)
    t = trl.GRPOTrainer(model=model, reward_funcs=[first, second] if case["data"] == "named" else [reward], args=args, train_dataset=Dataset.from_list([dict(prompt=r["prompt"]) for r in rows]),
                        processing_class=tokenizer, peft_config=peft, rollout_func=roll_out)
    if peft is not None:  # begins with the adapter that a generator with the run's seed gives, as train run does
        torch.manual_seed(SEED)
        donor = get_peft_model(LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32), peft)
        begin = {name: p for name, p in donor.named_parameters() if "lora_" in name}
        with torch.no_grad():
            for name, p in t.model.named_parameters():
                if p.requires_grad:
                    p.copy_(begin.pop(name))
        assert not begin, begin.keys()
    t.train()
    keep = {"loss", "grad_norm", "learning_rate", "reward", "reward_std", "frac_reward_zero_std", "kl", "completions/mean_length", "completions/min_length", "completions/max_length",
            "entropy", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean",
            "rewards/first/mean", "rewards/first/std", "rewards/second/mean", "rewards/second/std"} - set(case.get("without", []))
    steps = [{k: float(v) for k, v in e.items() if k in keep} for e in t.state.log_history if "loss" in e]
    assert len(steps) == STEPS, t.state.log_history
    return steps


LORA = "r=4,alpha=8,targets=q_proj+down_proj"
CASES = [
    dict(name="dapo", data="text", trl={}, flags=[]),
    dict(name="grpo_beta_lora", data="text", lora=True, trl={"beta": 0.3, "loss_type": "grpo"}, flags=["--beta", "0.3", "--loss-type", "grpo", "--lora", LORA]),
    dict(name="bnpo_unscaled", data="text", trl={"beta": 0.2, "loss_type": "bnpo", "scale_rewards": "none"},
         flags=["--beta", "0.2", "--loss-type", "bnpo", "--scale-rewards", "none"]),
    dict(name="dr_grpo_batch_clipped", data="text", trl={"beta": 0.1, "loss_type": "dr_grpo", "scale_rewards": "batch", "num_iterations": 2, "epsilon": 0.1},
         flags=["--beta", "0.1", "--loss-type", "dr_grpo", "--scale-rewards", "batch", "--num-iterations", "2", "--epsilon", "0.1"]),
    dict(name="dapo_clipped_higher_accumulated", data="text", without=["entropy", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean", "kl"],
         trl={"beta": 0.1, "num_iterations": 3, "epsilon": 0.05, "epsilon_high": 0.1, "gradient_accumulation_steps": 2},
         flags=["--beta", "0.1", "--num-iterations", "3", "--epsilon", "0.05", "--epsilon-high", "0.1", "--gradient-accumulation-steps", "2"]),
    dict(name="chat_unknown_rewards", data="chat", trl={"beta": 0.1}, flags=["--beta", "0.1"]),
    dict(name="weighted_rewards", data="named", trl={"beta": 0.1, "reward_weights": [1.0, 0.5]}, flags=["--beta", "0.1", "--reward-weights", "first=1,second=0.5"]),
    dict(name="temperature", data="text", trl={"beta": 0.1, "temperature": 0.7, "loss_type": "grpo"},
         flags=["--beta", "0.1", "--temperature", "0.7", "--loss-type", "grpo"]),
]


def main():
    assert trl.__version__ == "1.16.0", trl.__version__
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent / "testdata/golden/train/grpo")
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    data = write_data(out)
    made = []
    for case in CASES:
        steps = run(case, data[case["data"]])
        made.append({k: case[k] for k in ("name", "data", "flags")} | {"steps": steps})
        print(case["name"], [round(s["loss"], 6) for s in steps], flush=True)
    text = json.dumps(dict(batch=PROMPTS, rate=RATE, seed=SEED, longest=LONGEST, trl=trl.__version__, transformers=transformers.__version__, cases=made), indent=1)
    (out / "trace.json.gz").write_bytes(gzip.compress((text + "\n").encode(), mtime=0))


if __name__ == "__main__":
    main()
