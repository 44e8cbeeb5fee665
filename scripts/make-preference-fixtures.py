#!/usr/bin/env python3
"""Writes testdata/golden/train/preference: preference tuning by TRL, step by step, on a tiny model.

Each case of a method (dpo, orpo, kto) holds the loss and the metrics that TRL logs at every step, and
the flags of `train run` that give the same run. Data is taken in order.
Needs torch, transformers, datasets, peft 0.21.2 and trl 1.16.0. usage: make-preference-fixtures.py [FOLDER]
"""
import gzip
import json
import os
import pathlib
import shutil
import sys
import tempfile

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
import torch
import transformers
import trl
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).resolve().parent
TOKENIZER = HERE.parent / "testdata/golden/text/tokenizers/tiny-bytebpe-512/tokenizer.json"
SEED, STEPS, BATCH, RATE = 42, 6, 2, 5e-3
TEMPLATE = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def write_model(folder):
    torch.manual_seed(7)
    config = LlamaConfig(vocab_size=512, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=1, max_position_embeddings=128, initializer_range=0.2, bos_token_id=0,
                         eos_token_id=0, pad_token_id=1, tie_word_embeddings=False)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER), eos_token="<|endoftext|>", pad_token="<|system|>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
    shutil.copy(TOKENIZER, folder / "tokenizer.json")


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def write_data(folder):
    words = ["red", "green", "blue", "seven", "the sun", "a river", "snow", "many birds", "old stones", "nothing", "a song", "rain"]
    pairs = [(f"What is {w}?", f" It is {words[(i + 1) % 12]} and {words[(i + 5) % 12]}.", f" No{' idea' * (i % 4)}!") for i, w in enumerate(words)]
    forms = {
        "text": [dict(prompt=p, chosen=c, rejected=r) for p, c, r in pairs],
        "implicit": [dict(chosen=p + c, rejected=p + r) for p, c, r in pairs],
        "chat": [dict(prompt=[user(p)], chosen=[assistant(c)], rejected=[assistant(r)]) for p, c, r in pairs],
        "chat_implicit": [dict(chosen=[user(p), assistant(c)], rejected=[user(p), assistant(r)]) for p, c, r in pairs],
        "label": [dict(prompt=p, completion=c if i % 3 else r, label=bool(i % 3)) for i, (p, c, r) in enumerate(pairs)],
    }
    for name, rows in forms.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def arguments(config, out, **more):
    return config(output_dir=str(out), per_device_train_batch_size=BATCH, max_steps=STEPS, learning_rate=RATE, logging_steps=1,
                  logging_strategy="steps", save_strategy="no", report_to=[], bf16=False, gradient_checkpointing=False, use_cpu=True,
                  lr_scheduler_type="linear", max_grad_norm=1.0, max_length=64, train_sampling_strategy="sequential", seed=SEED, **more)


def run(folder, case):
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    peft = None
    if case.get("lora"):
        peft = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
    kind = {"dpo": (trl.DPOConfig, trl.DPOTrainer)}
    if case["method"] == "kto":
        kind["kto"] = (trl.KTOConfig, trl.KTOTrainer)
    if case["method"] == "orpo":
        from trl.experimental.orpo import ORPOConfig, ORPOTrainer

        kind["orpo"] = (ORPOConfig, ORPOTrainer)
    config, trainer = kind[case["method"]]
    data = load_dataset("json", data_files=str(folder / f"{case['data']}.jsonl"), split="train", cache_dir=tempfile.mkdtemp())
    torch.manual_seed(SEED)
    t = trainer(model=model, args=arguments(config, tempfile.mkdtemp(), **case["trl"]), train_dataset=data, processing_class=tokenizer,
                peft_config=peft)
    if peft:  # begins with the adapter that a generator with the run's seed gives, as train run does
        torch.manual_seed(SEED)
        donor = get_peft_model(LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32), peft)
        begin = {name: p for name, p in donor.named_parameters() if "lora_" in name}
        with torch.no_grad():
            for name, p in t.model.named_parameters():
                if p.requires_grad:
                    p.copy_(begin.pop(name))
        assert not begin, begin.keys()
    t.train()
    keep = ("loss", "grad_norm", "learning_rate", "rewards/", "logps/", "log_odds", "nll_loss", "kl", "entropy")
    if case["method"] != "orpo":
        keep += ("logits/", "mean_token_accuracy")
    steps = [{k: float(v) for k, v in e.items() if k.startswith(keep)} for e in t.state.log_history if "loss" in e]
    assert len(steps) == STEPS, t.state.log_history
    return steps


LORA = "r=4,alpha=8,targets=q_proj+down_proj"
CASES = [
    dict(name="dpo_sigmoid", method="dpo", data="text", trl={}, flags=[]),
    dict(name="dpo_implicit", method="dpo", data="implicit", trl={"beta": 0.5}, flags=["--beta", "0.5"]),
    dict(name="dpo_chat_lora", method="dpo", data="chat", lora=True, trl={"beta": 0.3}, flags=["--beta", "0.3", "--lora", LORA]),
    dict(name="dpo_chat_implicit_accumulated", method="dpo", data="chat_implicit", lora=True, trl={"gradient_accumulation_steps": 2},
         flags=["--gradient-accumulation-steps", "2", "--lora", LORA]),
    dict(name="dpo_ipo", method="dpo", data="text", trl={"loss_type": ["ipo"], "beta": 0.2}, flags=["--loss-type", "ipo", "--beta", "0.2"]),
    dict(name="dpo_hinge", method="dpo", data="text", trl={"loss_type": ["hinge"]}, flags=["--loss-type", "hinge"]),
    dict(name="dpo_robust", method="dpo", data="text", trl={"loss_type": ["robust"], "label_smoothing": 0.1},
         flags=["--loss-type", "robust", "--label-smoothing", "0.1"]),
    dict(name="orpo", method="orpo", data="text", trl={}, flags=[]),
    dict(name="orpo_implicit_lora", method="orpo", data="implicit", lora=True, trl={"beta": 0.4}, flags=["--beta", "0.4", "--lora", LORA]),
    dict(name="kto", method="kto", data="label", trl={}, flags=[]),
    dict(name="kto_lora_weighted", method="kto", data="label", lora=True, trl={"beta": 0.5, "desirable_weight": 0.7, "undesirable_weight": 1.3},
         flags=["--beta", "0.5", "--desirable-weight", "0.7", "--undesirable-weight", "1.3", "--lora", LORA]),
    dict(name="kto_paired", method="kto", data="chat", trl={"beta": 0.3}, flags=["--beta", "0.3"]),
]


def main():
    assert trl.__version__ == "1.16.0", trl.__version__
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent / "testdata/golden/train/preference")
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    write_model(out)
    write_data(out)
    made = []
    for case in CASES:
        steps = run(out, case)
        made.append({k: case[k] for k in ("name", "method", "data", "flags")} | {"steps": steps})
        print(case["name"], [round(s["loss"], 6) for s in steps], flush=True)
    text = json.dumps(dict(batch=BATCH, rate=RATE, seed=SEED, trl=trl.__version__, transformers=transformers.__version__, cases=made), indent=1)
    (out / "trace.json.gz").write_bytes(gzip.compress((text + "\n").encode(), mtime=0))


if __name__ == "__main__":
    main()
