#!/usr/bin/env python3
"""Trains with TRL and with `train run` under random options: the logs of each step must agree.

Each case draws a method, its data and options of the loss, the optimizer, the schedule, the batches and
the adapter. A value may differ by 1e-5 of its size or of 1, and by 1e-4 after the first step, because steps
amplify rounding. The script prints the flags of each case that differs and exits with 1.
Needs the Python of scripts/trl-python.sh. usage: check-trl-random.py TRAIN_PROGRAM [SEED] [CASES]
"""
import importlib.util
import json
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
METHODS = ("sft", "dpo", "orpo", "kto", "reward", "grpo")
WORDS = "red green blue seven the sun river snow birds old stones nothing song rain walks over quiet".split()


def module(kind):
    spec = importlib.util.spec_from_file_location(kind, HERE / f"make-{kind}-fixtures.py")
    m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m)
    return m


import torch  # noqa: E402

preference, sft, reward, grpo = module("preference"), module("sft"), module("reward"), module("grpo")
import trl  # noqa: E402
from trl.experimental import orpo  # noqa: E402

OVERRIDES = {}


def overridden(owner, name):
    """Makes the class name of owner take OVERRIDES over its arguments."""
    made = getattr(owner, name)
    setattr(owner, name, lambda **arguments: made(**(arguments | OVERRIDES)))


for name in ("SFTConfig", "DPOConfig", "KTOConfig", "RewardConfig", "GRPOConfig"):
    overridden(trl, name)
overridden(orpo, "ORPOConfig")


def text(r, least, most):
    return " ".join(r.choice(WORDS) for _ in range(r.randint(least, most)))


def turn(role, content):
    return dict(role=role, content=content)


def records(r, method, n):
    """Returns n records of a random form, and the form's name."""
    forms = {"sft": ("text", "answers"), "dpo": ("text", "implicit", "chat", "chat_implicit"), "orpo": ("text", "implicit"),
             "kto": ("label", "chat"), "reward": ("implicit", "text", "chat", "margins"), "grpo": ("text", "chat", "named")}
    form = r.choice(forms[method])
    rows = []
    for i in range(n):
        p, c, w = f"Number {i}: {text(r, 1, 8)}?", " " + text(r, 1, 12) + ".", " " + text(r, 1, 12) + "!"
        if method == "sft":
            rows.append(dict(text=p + c) if form == "text" else dict(prompt=p, completion=c))
        elif method == "grpo":
            each = [round(r.uniform(-1, 2), 2) for _ in range(4)]
            row = dict(prompt=[turn("user", p)] if form == "chat" else p, completions=[" " + text(r, 1, 9) for _ in range(4)], rewards=each)
            if form == "named":
                row["rewards"] = dict(first=each, second=[r.choice([None, 0.5, 1.0]) for _ in range(4)])
            rows.append(row)
        elif form == "label":
            rows.append(dict(prompt=p, completion=c, label=r.random() < 0.6 if i > 1 else i == 0))
        elif form == "chat":
            rows.append(dict(prompt=[turn("user", p)], chosen=[turn("assistant", c)], rejected=[turn("assistant", w)]))
        elif form == "chat_implicit":
            rows.append(dict(chosen=[turn("user", p), turn("assistant", c)], rejected=[turn("user", p), turn("assistant", w)]))
        elif form == "implicit":
            rows.append(dict(chosen=p + c, rejected=p + w))
        else:
            rows.append(dict(prompt=p, chosen=c, rejected=w) | (dict(margin=r.choice([0, 0.5, 1.25])) if form == "margins" else {}))
    return rows, form


def both(options, flags, name, value, flag=None):
    """Sets an option of TRL and the flag of train run."""
    options[name] = value
    flags += ["--" + (flag or name).replace("_", "-"), str(value)]


def loss_options(r, method, form):
    """Returns options of TRL that only the method has, and their flags."""
    o, flags = {}, []
    if method == "sft" and r.random() < 0.4:
        both(o, flags, "label_smoothing_factor", r.choice([0.05, 0.2]), "label_smoothing")
    if method == "sft" and form == "answers" and r.random() < 0.4:
        o["completion_only_loss"] = False
        flags += ["--learn-prompt"]
    if method == "dpo":
        kind = r.choice(["sigmoid", "hinge", "ipo", "robust"])
        o["loss_type"] = [kind]
        flags += ["--loss-type", kind]
        if kind == "robust":  # TRL ignores it with sigmoid
            both(o, flags, "label_smoothing", r.choice([0.1, 0.3]))
    if method == "kto":
        both(o, flags, "desirable_weight", round(r.uniform(0.3, 2), 2))
        both(o, flags, "undesirable_weight", round(r.uniform(0.3, 2), 2))
    if method == "reward" and r.random() < 0.5:
        both(o, flags, "center_rewards_coefficient", round(r.uniform(0.01, 0.5), 2))
    if method == "grpo":
        both(o, flags, "loss_type", r.choice(["dapo", "grpo", "bnpo", "dr_grpo"]))
        both(o, flags, "scale_rewards", r.choice(["group", "batch", "none"]))
        both(o, flags, "temperature", r.choice([0.6, 1.0, 1.3]))
        both(o, flags, "num_iterations", r.choice([1, 2]))
        both(o, flags, "epsilon", r.choice([0.05, 0.2]))
        if form == "named":
            o["reward_weights"] = [1.0, 0.25]
            flags += ["--reward-weights", "first=1,second=0.25"]
    if method in ("dpo", "orpo", "kto", "grpo"):
        both(o, flags, "beta", r.choice([0.05, 0.3, 1.0]))
    return o, flags


def loop_options(r, steps):
    """Returns options of the optimizer, the schedule and the batches, and their flags."""
    o, flags = {}, []
    schedule = r.choice(["linear", "cosine", "constant", "constant_with_warmup", "cosine_with_restarts", "polynomial", "inverse_sqrt", "cosine_with_min_lr"])
    both(o, flags, "lr_scheduler_type", schedule, "lr_scheduler")
    if schedule == "cosine_with_min_lr":
        o["lr_scheduler_kwargs"] = {"min_lr_rate": 0.1}
        flags += ["--lr-scheduler-kwargs", '{"min_lr_rate": 0.1}']
    if schedule != "constant":
        both(o, flags, "warmup_steps", r.choice([0, 2, steps + 1, 0.3]))
    both(o, flags, "max_grad_norm", r.choice([0.0, 0.1, 1.0, 10.0]))
    both(o, flags, "weight_decay", r.choice([0.0, 0.1]))
    optimizer = r.choice(["adamw_torch", "adamw_torch", "sgd", "adagrad", "rmsprop", "adafactor"])
    o["optim"] = optimizer
    flags += ["--optimizer", optimizer.removesuffix("_torch")]
    if optimizer == "adamw_torch":
        both(o, flags, "adam_beta1", r.choice([0.9, 0.8]), "adam_beta1")
        both(o, flags, "adam_beta2", r.choice([0.999, 0.95]), "adam_beta2")
        both(o, flags, "adam_epsilon", r.choice([1e-8, 1e-4]))
    return o, flags


def draw(r, folder):
    """Returns a random case, whose data is in folder."""
    method, steps, seed = r.choice(METHODS), r.randint(3, 6), r.randrange(1, 1 << 30)
    batch, length, accumulated, n = r.randint(2, 3), r.choice([24, 40, 64]), r.choice([1, 1, 2, 3]), r.randint(9, 14)
    if method == "grpo":
        batch, length, accumulated, n = 2, 128, 1, 8  # TRL cuts completions only
    if accumulated > 1:  # TRL weights a smaller last batch as the others, train run its records
        n, length = batch * accumulated * 2, 128  # no record is skipped
    rows, form = records(r, method, n)
    special, flags = loss_options(r, method, form)
    o, more = loop_options(r, steps)
    both(o, more, "gradient_accumulation_steps", accumulated)
    both(o, more, "learning_rate", r.choice([1e-4, 3e-3]))
    o |= dict(max_steps=steps, seed=seed)
    if method != "grpo":
        o |= dict(per_device_train_batch_size=batch, max_length=length)
    flags += more + ["--max-steps", str(steps), "--seed", str(seed), "--batch", str(batch), "--sequence", str(length)]
    case = dict(name="case", method=method, data=form, trl=special, flags=flags, steps=steps)
    if method != "sft" and r.random() < 0.4:
        case["lora"] = True
        flags += ["--lora", preference.LORA]
        if method == "reward":
            case["lora"] = dict(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"])
    for name in (form, "eval"):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return case, o, rows, seed


def by_trl(case, options, rows, seed, folder):
    OVERRIDES.clear()
    OVERRIDES.update(options)
    for m in (preference, sft, reward, grpo):
        m.SEED, m.STEPS = seed, case["steps"]
    method = case["method"]
    if method == "grpo":
        return grpo.run(case, rows)
    if method == "sft":
        return sft.run(folder, case)
    if method == "reward":
        reward.MODEL = folder
        return reward.run(case, folder)
    return preference.run(folder, case)


def by_train(program, case, folder):
    out = folder / "out"
    command = [program, "run", "--model", str(folder), "--data", str(folder / f"{case['data']}.jsonl"), "--output", str(out), "--method", case["method"],
               "--log-steps", "1", "--threads", "1", "--no-shuffle", "--data-cache", "none"] + case["flags"]
    if case["method"] == "grpo":
        command += ["--max-completion-length", str(grpo.LONGEST), "--num-generations", "4"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip()
    states = sorted(out.glob("checkpoint-*/trainer_state.json"), key=lambda p: int(p.parent.name.split("-")[1]))
    return [e for e in json.loads(states[-1].read_text())["log_history"] if "loss" in e]


def comparable(case, options, name):
    """Reports whether a metric is defined as TRL's."""
    by_answer = case["method"] == "kto" and options["gradient_accumulation_steps"] > 1  # TRL averages over batches
    return not (by_answer and name.startswith(("rewards/", "logps/")))


def differences(case, options, got, want):
    if isinstance(got, str):
        return [got]
    if len(got) != len(want):
        return [f"got {len(got)} steps, want {len(want)}"]
    found = []
    for i, step in enumerate(want):
        for name, value in step.items():
            within = (1e-5 if i == 0 else 1e-4) * max(1, abs(value))
            if name == "kl":
                within = max(within, abs(step.get("logps/chosen", 0)) * 2**-20)
            if not comparable(case, options, name):
                continue
            if name not in got[i] or not (abs(got[i][name] - value) <= within or got[i][name] == value):
                found.append(f"step {i + 1}: {name}: got {got[i].get(name)}, want {value}")
    return found


def main():
    program, first, cases = sys.argv[1], int((sys.argv + [1] * 2)[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 30
    torch.set_num_threads(1)
    failed = 0
    for number in range(cases):
        r = random.Random(first * 1000 + number)
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work)
            for file in preference.HERE.parent.joinpath("testdata/golden/train/preference").iterdir():
                if file.suffix != ".jsonl":
                    (folder / file.name).write_bytes(file.read_bytes())
            case, options, rows, seed = draw(r, folder)
            try:
                want = by_trl(case, options, rows, seed, folder)
            except Exception as e:  # TRL rejects some combinations
                print(f"{number} {case['method']}: TRL: {type(e).__name__}: {e}"[:300], flush=True)
                continue
            if any(step["loss"] == 0 or step["loss"] != step["loss"] for step in want if case["method"] == "orpo"):
                print(f"{number} orpo: TRL: not a number, which it logs as a loss of 0", flush=True)
                continue
            found = differences(case, options, by_train(program, case, folder), want)
        failed += bool(found)
        print(f"{number} {case['method']} {case['data']}: {'differs' if found else 'agrees'}", flush=True)
        if found:
            print(" ".join(case["flags"]), *found[:8], sep="\n  ", flush=True)
    print(f"{failed} of {cases} cases differ")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
