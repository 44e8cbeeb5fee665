#!/usr/bin/env python3
"""Makes testdata/golden/infer/generate/cases.json.gz with transformers' generate.

    python scripts/make-generate-fixtures.py testdata/golden/infer

Greedy, in float32, on the small llama of testdata/golden/infer/models. Penalties of
presence and frequency follow OpenAI's formula, stop strings the definition of the
engine's golden test; the rest is what transformers returns. A case is kept only if no
choice in it is nearly a tie.
"""
import gzip
import json
import pathlib
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList

import packed

MODEL, MARGIN = "models/small-llama-bf16", 1e-3
PROMPTS = ([5, 17, 80], [9, 9, 41, 3, 66, 20, 11, 58], [90] * 2 + [31, 7, 44] * 4)
PIECES = ["a", "b", "ab", "c", " ", "x", "é", "\n", "abc", "bc", "y.", "."]


class OpenAI(LogitsProcessor):
    """Presence and frequency penalties over generated ids."""

    def __init__(self, start, presence, frequency):
        self.start, self.presence, self.frequency = start, presence, frequency

    def __call__(self, ids, scores):
        counts = torch.bincount(ids[0, self.start:], minlength=scores.shape[-1]).to(scores)
        return scores - counts * self.frequency - (counts > 0) * self.presence


class Margin(LogitsProcessor):
    """Notes how near the second best comes to the best."""

    least = float("inf")

    def __call__(self, ids, scores):
        top = scores.topk(2).values[0]
        self.least = min(self.least, float(top[0] - top[1]))
        return scores


def generate(model, prompt, options):
    options = dict(options)
    presence, frequency = options.pop("presence_penalty", 0), options.pop("frequency_penalty", 0)
    wanted = options.pop("logprobs", None)
    options.pop("stop", None)
    if "sequence_bias" in options:
        options["sequence_bias"] = [[[i], v] for i, v in options["sequence_bias"]]
    eos = options.pop("eos_token_id", None)
    model.generation_config.eos_token_id = eos
    margin = Margin()
    out = model.generate(
        torch.tensor([prompt]), do_sample=False, use_cache=True, return_dict_in_generate=True, output_logits=True,
        logits_processor=LogitsProcessorList([OpenAI(len(prompt), presence, frequency), margin]), **options)
    ids = out.sequences[0, len(prompt):].tolist()
    ends = [] if eos is None else [eos] if isinstance(eos, int) else eos
    case = dict(expected_ids=ids, finish_reason="stop" if ids[-1] in ends else "length", min_margin=margin.least)
    if wanted:
        case["logprobs"] = []
        for logits, chosen in zip(out.logits, ids):
            logp = logits[0].double().log_softmax(-1)
            top = logp.topk(wanted)
            case["logprobs"].append(dict(chosen=float(logp[chosen]), top=[[int(i), float(v)] for v, i in zip(*top)]))
    return case


def stopped(ids, table, stops):
    """What stop strings make of ids."""
    text = ""
    for n, i in enumerate(ids, 1):
        text += table[i]
        found = [(text.find(s), s) for s in stops if s in text]
        if found:
            at, stop = min(found, key=lambda f: f[0])
            return dict(expected_ids=ids[:n], expected_text=text[:at], matched=stop, finish_reason="stop")
    return dict(expected_ids=ids, expected_text=text, matched=None, finish_reason="length")


def variants(ids):
    """Options worth trying, given what the prompt alone leads to."""
    yield "max_new_tokens", dict(max_new_tokens=1)
    yield "max_length", dict(max_length=24)
    yield "eos", dict(max_new_tokens=16, eos_token_id=ids[4])
    yield "eos_list", dict(max_new_tokens=16, eos_token_id=[ids[7], 0])
    yield "min_new_tokens", dict(max_new_tokens=16, eos_token_id=[ids[1], ids[5]], min_new_tokens=4)
    yield "repetition", dict(max_new_tokens=16, repetition_penalty=1.4)
    yield "ngram", dict(max_new_tokens=16, no_repeat_ngram_size=2)
    yield "suppress", dict(max_new_tokens=12, suppress_tokens=sorted(set(ids[:3])))
    yield "bias", dict(max_new_tokens=12, sequence_bias=[[ids[0], -6.0], [33, 2.5]])
    yield "openai", dict(max_new_tokens=16, presence_penalty=0.7, frequency_penalty=0.4)
    yield "bad_words", dict(max_new_tokens=12, bad_words_ids=[[ids[0]], ids[1:3]])
    yield "logprobs", dict(max_new_tokens=5, logprobs=3)


def main(root):
    with packed.unpacked(root / MODEL) as plain:
        model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32)
    model.generation_config = transformers.GenerationConfig(pad_token_id=0)
    vocab = model.config.vocab_size
    table = [PIECES[i * 7 % len(PIECES)] + (PIECES[i % 5] if i % 3 == 0 else "") for i in range(vocab)]
    cases = []

    def add(name, prompt, options, case):
        if case.pop("min_margin", 1) >= MARGIN:
            cases.append(dict(name=f"{name}-{len(cases)}", input_ids=prompt, options=options, **case))

    for prompt in PROMPTS:
        plain = generate(model, prompt, dict(max_new_tokens=16))
        add("plain", prompt, dict(max_new_tokens=16), dict(plain))
        for name, options in variants(plain["expected_ids"]):
            add(name, prompt, options, generate(model, prompt, options))
        text = "".join(table[i] for i in plain["expected_ids"])
        for stops in ([text[3:6]], [text[8:11], text[6:8]], ["never"]):
            add("stop", prompt, dict(max_new_tokens=16, stop=stops), stopped(plain["expected_ids"], table, stops))
    out = root / "generate" / "cases.json.gz"
    out.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
    head = dict(schema="generate/1", versions=dict(torch=torch.__version__, transformers=transformers.__version__),
                model=MODEL, token_table=table)
    out.write_bytes(gzip.compress((json.dumps(head, ensure_ascii=False)[:-1] + ', "cases": [\n' + lines + "\n]}\n").encode(), mtime=0))
    print(len(cases), "cases")


main(pathlib.Path(sys.argv[1]))
