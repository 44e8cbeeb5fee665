"""Writes dispatch/testdata/gguf/converted: tiny models that llama.cpp's own converter has converted, with the tokens and logits
that transformers computes from the same weights. Run it from the root of the repository with a Python that has torch, transformers
and safetensors: scripts/make-gguf-converted.py LLAMA_CPP [OUTPUT] [MODEL...]

LLAMA_CPP is a folder with convert_hf_to_gguf.py, conversion/ and gguf-py/: vendor/llama.cpp of the source package of llama-cpp-python
0.3.36. The models have no tokenizer, so the converter's parts for that and for chat templates are left out. Weights have few values, so that files are small
when compressed; compute is in float64."""
import contextlib
import bz2
import io
import json
import logging
import pathlib
import sys
import tempfile

LLAMA_CPP = pathlib.Path(sys.argv[1])
OUT = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "dispatch/testdata/gguf/converted")
sys.path[:0] = [str(LLAMA_CPP), str(LLAMA_CPP / "gguf-py"), str(pathlib.Path(__file__).parent)]

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMultimodalLM

import convert_hf_to_gguf
import gguf
from conversion import ModelBase, get_model_class
from gguf_converted_configs import MODELS

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
LENGTHS, TOKENS, MARGIN = (1, 7, 25), 12, 2e-3


def coarse(shape, scale, rng):
    """Random values that are few: multiples of a power of 2."""
    step = 2.0 ** round(np.log2(scale / 1.5))
    return torch.from_numpy(np.round(rng.standard_normal(shape) * scale / step) * step)


@torch.no_grad()
def build(config, seed, change=None):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    made = AutoConfig.for_model(**config)
    made._attn_implementation = "eager"
    auto = AutoModelForMultimodalLM if "text_config" in config else AutoModelForCausalLM
    model = auto.from_config(made, attn_implementation="eager", experts_implementation="eager", dtype=torch.float32).eval()
    saved = model.state_dict()
    for name, p in list(model.named_parameters()) + [(n, b) for n, b in model.named_buffers() if n in saved and b.is_floating_point()]:
        if name.endswith(("act_fn.beta", "act_fn.eps", "_decay", "slope_rate")):
            continue
        if p.dim() > 1 and p.shape[-1] > 1:
            p.copy_(coarse(p.shape, 1.6 / p.shape[-1] ** 0.5, rng))
        elif "layer_scalar" in name:
            p.copy_(1 + coarse(p.shape, 0.1, rng))
        else:
            p.copy_(torch.round(p * 64) / 64 + coarse(p.shape, 0.2, rng))
        if change:
            change(name, p)
    for name, b in model.named_buffers():
        if name.endswith("tid2eid"):  # other experts for each token
            b.copy_(torch.from_numpy(rng.permuted(np.tile(np.arange(config["n_routed_experts"]), (b.shape[0], 1)), axis=1)[:, :b.shape[1]]))
    return model


def convert(folder, file, flags, raw):
    """Runs the converter, without the tokenizer. If raw, it sees the config as it is written, not as transformers completes it."""
    with open(folder / "config.json") as f:
        architecture = json.load(f)["architectures"][0]
    get_model_class(architecture)
    classes = [ModelBase]
    for cls in classes:
        classes += cls.__subclasses__()
        if "set_vocab" in cls.__dict__:
            cls.set_vocab = lambda self: self._set_vocab_none()
        if "_get_suppress_tokens" in cls.__dict__:  # asks the tokenizer
            cls._get_suppress_tokens = lambda self: None
    gguf.GGUFWriter.add_chat_template = lambda *_: None  # of files that have none, and the converter has one
    load = ModelBase.load_hparams
    if raw:
        ModelBase.load_hparams = staticmethod(lambda folder, *_, **__: json.loads((folder / "config.json").read_text()))
    argv, sys.argv = sys.argv, ["convert_hf_to_gguf.py", str(folder), "--outtype", "f32", "--outfile", str(file), *flags]
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            convert_hf_to_gguf.main()
    finally:
        sys.argv, ModelBase.load_hparams = argv, load
        logging.disable(logging.NOTSET)


class Choices:
    """Watches how close the choices of sparse attention's indexers are to ties."""

    def __enter__(self):
        self.margin, self.topk = 1e9, torch.Tensor.topk

        def watched(scores, k, *args, **kwargs):
            if scores.dim() in (1, 3) and scores.shape[-1] > k:
                best = self.topk(scores, k + 1).values
                gap = (best[..., k - 1] - best[..., k])[best[..., k] > -1e30]
                self.margin = min([self.margin, *gap.flatten().tolist()])
            return self.topk(scores, k, *args, **kwargs)

        torch.Tensor.topk = watched
        return self

    def __exit__(self, *_):
        torch.Tensor.topk = self.topk


@torch.no_grad()
def answers(model, seed, vocab):
    """The tokens and the logits of prompts, or None if a choice is nearly a tie or float32 is too short for the model."""
    cases = []
    ids = np.random.default_rng(seed).integers(3, vocab, max(LENGTHS)).tolist()
    short = model(input_ids=torch.tensor([ids])).logits
    if not (model.double()(input_ids=torch.tensor([ids])).logits - short).abs().max() < 3e-5:
        return None
    for length in LENGTHS:
        prompt, out, first = list(ids[:length]), [], None
        for _ in range(TOKENS):
            with Choices() as choices:
                logits = model(input_ids=torch.tensor([prompt + out]), use_cache=False).logits[0, -1]
            best = logits.topk(2).values
            if best[0] - best[1] < MARGIN or choices.margin < 1e-5:
                return None
            first = logits if first is None else first
            out.append(int(logits.argmax()))
        cases.append({"ids": prompt, "greedy": out, "logits": [round(float(x), 5) for x in first]})
    return cases


@torch.no_grad()
def adapter(folder, model, targets, ids):
    """Writes random low-rank pairs in PEFT's files, and what the model with them computes for ids."""
    rng, rank, tensors = np.random.default_rng(7), 2, {}
    for name, p in model.named_parameters():
        path = name.removesuffix(".weight")
        if p.dim() != 2 or path.split(".")[-1] not in targets:
            continue
        a, b = coarse((rank, p.shape[1]), 0.2, rng), coarse((p.shape[0], rank), 0.2, rng)
        p.add_((b @ a).to(p.dtype) * 2)
        for letter, m in (("A", a), ("B", b)):
            tensors[f"base_model.model.{path}.lora_{letter}.weight"] = m.float().contiguous()
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = dict(peft_type="LORA", task_type="CAUSAL_LM", r=rank, lora_alpha=2 * rank, target_modules=targets, bias="none")
    (folder / "adapter_config.json").write_text(json.dumps(config) + "\n")
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
    (folder / "golden.json").write_text(json.dumps({"ids": ids, "logits": [round(float(x), 5) for x in logits]}) + "\n")


def write(name):
    config, options = MODELS[name]
    for seed in range(1, 40):
        model = build(config, seed, options.get("weights"))
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary) / "model"
            model.save_pretrained(folder)
            if "published" in options:
                options["published"](folder)
            with open(folder / "config.json") as f:
                saved = json.load(f)
            saved.update(options.get("config", {}))
            for field in options.get("without", ()):
                saved.pop(field, None)
            with open(folder / "config.json", "w") as f:
                json.dump(saved, f)
            file = pathlib.Path(temporary) / "model.gguf"
            cases = answers(model, seed, config.get("text_config", config)["vocab_size"])
            if cases is None:
                continue
            convert(folder, file, options.get("flags", []), options.get("raw", False))
            data = bz2.compress(file.read_bytes())
        (OUT / f"{name}.gguf.bz2").write_bytes(data)
        (OUT / f"{name}.json").write_text(json.dumps(cases) + "\n")
        if "adapter" in options:
            adapter(OUT / f"{name}.adapter", model, options["adapter"], cases[-1]["ids"])
        print(name, "seed", seed, len(data), "bytes", flush=True)
        return
    sys.exit(f"{name}: all seeds have ties")


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for model in sys.argv[3:] or MODELS:
        write(model)
