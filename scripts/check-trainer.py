#!/usr/bin/env python3
"""Compares `train run` with transformers' Trainer, flag by flag, on a small random model.

    check-trainer.py TRAIN [CASE...]

TRAIN is the binary. Losses, norms of gradients and rates of all steps, the number of evaluations and the weights at the
end must agree; the last eval_loss must be torch's mean over labels. Cases with adapters need peft, the others torch
and transformers. Takes two minutes. Exits with 1 where something differs.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
tok = AutoTokenizer.from_pretrained(os.path.join(root, "testdata/golden/text/tokenizers/tiny-bytebpe-512"))
lora = dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"])


def schedule(name, **kwargs):
    return dict(args=dict(lr_scheduler_type=name, lr_scheduler_kwargs=kwargs or None, warmup_steps=3),
                flags=["--lr-scheduler", name, "--warmup-steps", "3"] + (["--lr-scheduler-kwargs", json.dumps(kwargs)] if kwargs else []))


def option(flag, value, **args):
    return dict(args=args, flags=[flag, str(value)])


accumulated = dict(args=dict(gradient_accumulation_steps=3, num_train_epochs=2), flags=["--gradient-accumulation-steps", "3", "--epochs", "2"])
decayed = option("--weight-decay", 0.5, weight_decay=0.5)
evaluated = dict(args=dict(eval_strategy="steps", eval_steps=5), flags=["--eval-steps", "5"], evaluate=True)
CASES = {
    "plain": dict(), "weight decay": decayed, "clipping": option("--max-grad-norm", 0.2, max_grad_norm=0.2),
    "no clipping": option("--max-grad-norm", 0, max_grad_norm=0), "accumulation": accumulated,
    "steps": dict(args=dict(gradient_accumulation_steps=4, max_steps=7), flags=["--gradient-accumulation-steps", "4", "--max-steps", "7"]),
    "smoothing": option("--label-smoothing", 0.1, label_smoothing_factor=0.1), "parts of an epoch": option("--epochs", 1.5, num_train_epochs=1.5),
    "answers": dict(data="answers"), "answers, accumulation": dict(accumulated, data="answers"),
    "warm-up ratio": option("--warmup-ratio", 0.13, warmup_steps=0.13),
    "cosine": schedule("cosine"), "restarts": schedule("cosine_with_restarts", num_cycles=2), "polynomial": schedule("polynomial", power=2.0, lr_end=1e-5),
    "inverse root": schedule("inverse_sqrt"), "constant": schedule("constant_with_warmup"), "least rate": schedule("cosine_with_min_lr", min_lr_rate=0.1),
    "least rate, warm": schedule("cosine_warmup_with_min_lr", min_lr_rate=0.1),
    "stable": schedule("warmup_stable_decay", num_decay_steps=5, decay_type="cosine"),
    "betas": dict(args=dict(adam_beta1=0.8, adam_beta2=0.95, adam_epsilon=1e-6), flags=["--adam-beta1", "0.8", "--adam-beta2", "0.95", "--adam-epsilon", "1e-6"]),
    **{name: option("--optimizer", name, optim=name) for name in ("sgd", "adagrad", "rmsprop", "adafactor")},
    "evaluation": evaluated,
    "plateau": dict(args=dict(evaluated["args"], lr_scheduler_type="reduce_lr_on_plateau", lr_scheduler_kwargs=dict(patience=0, factor=0.5, threshold=0.5)),
                    flags=evaluated["flags"] + ["--lr-scheduler", "reduce_lr_on_plateau", "--lr-scheduler-kwargs", '{"patience": 0, "factor": 0.5, "threshold": 0.5}'],
                    evaluate=True),
    "lora": dict(lora=lora), "lora, decay": dict(decayed, lora=lora), "rslora": dict(decayed, lora=dict(lora, use_rslora=True)),
    "dora": dict(decayed, lora=dict(lora, use_dora=True)), "modules to save": dict(decayed, lora=dict(lora, modules_to_save=["lm_head", "norm"])),
    "ranks": dict(accumulated, lora=dict(lora, rank_pattern={"q_proj": 2}, alpha_pattern={"v_proj": 3})),
}


class InOrder(Trainer):
    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def words(i):
    return " ".join(random.choices("the quick brown fox jumps over lazy dogs while rain falls on quiet hills".split(), k=3 + i * 7 % 29))


def sample(record):
    """A record with the labels that train run gives it."""
    prompt = record.get("prompt", "")
    ids = tok(prompt + record.get("completion", record.get("text", ""))).input_ids + [tok.eos_token_id]
    known = len(tok(prompt).input_ids) if prompt else 0
    return dict(input_ids=ids, labels=[-100] * known + ids[known:])


def padded(batch):
    most = max(len(x["input_ids"]) for x in batch)
    rows = [(x["input_ids"], x["labels"], most - len(x["input_ids"])) for x in batch]
    return dict(input_ids=torch.tensor([i + [tok.eos_token_id] * n for i, _, n in rows]), labels=torch.tensor([l + [-100] * n for _, l, n in rows]),
                attention_mask=torch.tensor([[1] * len(i) + [0] * n for i, _, n in rows]))


def reference(case, name):
    model = AutoModelForCausalLM.from_pretrained(case.get("values", "m"), dtype=torch.float32)
    if "lora" in case:
        from peft import LoraConfig, PeftModel, get_peft_model
        start = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **case["lora"]))
        for path, p in start.named_parameters():
            if "lora_B" in path:
                torch.nn.init.normal_(p, 0, 0.02)
        start.save_pretrained(name + " start")
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(case.get("values", "m"), dtype=torch.float32), name + " start", is_trainable=True)
    args = dict(output_dir=name + " hf", per_device_train_batch_size=2, per_device_eval_batch_size=2, learning_rate=1e-3, logging_steps=1, save_strategy="no",
                report_to=[], use_cpu=True, optim="adamw_torch", num_train_epochs=1, disable_tqdm=True) | case.get("args", {})
    trainer = InOrder(model=model, args=TrainingArguments(**args), train_dataset=DATA[case.get("data", "texts")], data_collator=padded,
                      eval_dataset=DATA["held out"] if case.get("evaluate") else None)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    model.save_pretrained(name + " hf")
    return trainer.state.log_history, model


def ours(case, name):
    command = [train, "run", case.get("model", "m"), "--data", case.get("data", "texts") + ".jsonl", "--output", name, "--no-shuffle", "--batch", "2", "--log-steps", "1", "--save-steps", "-1",
               "--log-with", "jsonl", "--threads", "1", "--learning-rate", "1e-3", "--sequence", "256", "--data-cache", "none"]
    command += ["--eval-data", "held out.jsonl"] if case.get("evaluate") else []
    command += ["--lora", f"from={name} start"] if "lora" in case else []
    flags = case.get("flags", [])
    command += flags if "--epochs" in flags else ["--epochs", "1"] + flags
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"{name}: {ran.stderr[-600:]}")
    return [json.loads(line) for line in open(name + "/metrics.jsonl")]


def mean_over_labels(model):
    total, labels = 0.0, 0
    model.eval()
    for x in DATA["held out"]:
        with torch.no_grad():
            loss = model(**padded([x])).loss.item()
        total, labels = total + loss * (len(x["labels"]) - 1), labels + len(x["labels"]) - 1
    return total / labels


def differences(case, name):
    """The largest differences of a case, each with what it may be."""
    want, model = reference(case, name)
    got = ours(case, name)
    steps = [[e for e in log if "loss" in e] for log in (want, got)]
    out = {"steps": (abs(len(steps[0]) - len(steps[1])), 0)}
    for key, most in (("loss", 1e-5), ("grad_norm", 1e-4), ("learning_rate", 1e-9)):
        out[key] = max((abs(a[key] - b[key]) / max(abs(a[key]), 1e-12) for a, b in zip(*steps)), default=0), most
    if case.get("evaluate"):
        evals = [[e["eval_loss"] for e in log if "eval_loss" in e] for log in (want, got)]
        out["evaluations"] = abs(len(evals[0]) - len(evals[1])), 0
        out["eval_loss"] = abs(evals[1][-1] - mean_over_labels(model)), 1e-5
    file = "/adapter_model.safetensors" if "lora" in case else "/model.safetensors"
    a, b = load_file(name + " hf" + file), load_file(name + file)
    out["names"] = len(set(a) ^ set(b)), 0
    out["weights"] = max((a[k].float() - b[k].float()).abs().max().item() for k in set(a) & set(b)), 2e-4
    return out


def prepare():
    """Makes the model m and the data of all cases in the current folder."""
    torch.manual_seed(3)
    random.seed(1)
    tok.save_pretrained("m")
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tok), hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, mlp_bias=True,
                                 max_position_embeddings=256, eos_token_id=tok.eos_token_id, bos_token_id=tok.bos_token_id, pad_token_id=None, initializer_range=0.1)).save_pretrained("m")
    records = {"texts": [{"text": words(i)} for i in range(37)], "held out": [{"text": words(i)} for i in range(11)],
               "answers": [{"prompt": words(i) + " ", "completion": words(i + 3)} for i in range(21)]}
    DATA.update({name: [sample(r) for r in some] for name, some in records.items()})
    for name, some in records.items():
        with open(name + ".jsonl", "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in some)


def compare(cases):
    """Prints how each case differs, and returns how many do more than they may."""
    failed = 0
    for name, case in cases.items():
        found = differences(case, name)
        bad = [key for key, (value, most) in found.items() if not value <= most]
        failed += bool(bad)
        print(f"{'differs' if bad else 'same':8}{name}: " + ", ".join(f"{key} {value:.1e}" for key, (value, _) in found.items() if value), flush=True)
    return failed


train, DATA = os.path.abspath(sys.argv[1]), {}
if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        prepare()
        failed = compare({name: CASES[name] for name in sys.argv[2:] or CASES})
    sys.exit(failed > 0)
