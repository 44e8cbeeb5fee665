#!/usr/bin/env python3
"""Compares `train run` under --lora on quantised weights with PEFT on the values that they stand for.

    check-qlora.py TRAIN [CASE...]

TRAIN is the binary. Stored formats are FP8, GPTQ, AWQ, MXFP4, bitsandbytes and GGUF, made by make-quantised-fixtures.py or by
the libraries that write them; --quantize converts to nf4, q8_0 and q4_0. Losses, norms of gradients and rates of all steps and
the adapters at the end must agree, as in check-trainer.py. Needs torch, transformers, peft, bitsandbytes and gguf.
Takes two minutes. Exits with 1 where something differs.
"""
import importlib.util
import json
import os
import pathlib
import sys
import tempfile

import bitsandbytes as bnb
import gguf
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, GptOssConfig, LlamaConfig, Qwen2Config


def script(name):
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), pathlib.Path(__file__).with_name(name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


trainer, fixtures = script("check-trainer"), script("make-quantised-fixtures")
tok = trainer.tok
SIZES = dict(vocab_size=len(tok), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
             eos_token_id=tok.eos_token_id, bos_token_id=tok.bos_token_id, pad_token_id=None, initializer_range=0.1, tie_word_embeddings=False)
LORA = dict(trainer.lora, target_modules=["q_proj", "v_proj", "o_proj"])


def random(config):
    torch.manual_seed(5)
    return AutoModelForCausalLM.from_config(config).float()


def save(folder, model):
    model.save_pretrained(folder)
    tok.save_pretrained(folder)


def is_linear(name):
    return name.endswith("_proj.weight")


def stored(name):
    """A format of make-quantised-fixtures.py."""
    _, dtype, _, method, chosen, quantisation = fixtures.MODELS[name]
    config = LlamaConfig(**SIZES) if "llama" in name else GptOssConfig(**dict(SIZES, intermediate_size=32), head_dim=16, num_local_experts=3, num_experts_per_tok=2, sliding_window=6)
    model = random(config).to(dtype).float()
    tensors = fixtures.quantise(model, dtype, method, chosen)
    save(name + " values", model)
    os.mkdir(name)
    tok.save_pretrained(name)
    save_file(tensors, name + "/model.safetensors", metadata={"format": "pt"})
    with open(name + "/config.json", "w") as f:
        json.dump(dict(config.to_diff_dict(), quantization_config=quantisation, architectures=[type(model).__name__], dtype=str(dtype)[6:]), f, default=str)


def bitsandbytes(name, **options):
    config = LlamaConfig(**SIZES)
    save(name + " values", random(config).bfloat16())
    quantised = AutoModelForCausalLM.from_pretrained(name + " values", quantization_config=BitsAndBytesConfig(**options), dtype=torch.bfloat16)
    quantised.save_pretrained(name)
    tok.save_pretrained(name)
    model = random(config).bfloat16().float()
    for n, m in AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16).named_modules():
        if isinstance(m, bnb.nn.Linear8bitLt):
            scales = m.weight.SCB if m.weight.SCB is not None else m.state.SCB
            model.get_submodule(n).weight.data = bnb.functional.int8_vectorwise_dequant(m.weight.data, scales.float()).float()
        elif isinstance(m, bnb.nn.Linear4bit):
            model.get_submodule(n).weight.data = bnb.functional.dequantize_4bit(m.weight.data, m.weight.quant_state).float()
    save(name + " values", model)


def rounded(w, kind):
    """A matrix in a GGUF type: its bytes and their values."""
    kind = gguf.GGMLQuantizationType[kind.upper()]
    data = gguf.quants.quantize(w.float().numpy(), kind)
    return data, torch.from_numpy(gguf.quants.dequantize(data, kind).copy()), kind


def halves(x):
    """Sums over the last 16 lanes, added in halves."""
    while x.shape[-1] > 1:
        x = x[..., :x.shape[-1] // 2] + x[..., x.shape[-1] // 2:]
    return x


def codes4(x, by):
    return torch.round(x * by).clamp(-8, 7)


def sums4(x, by):
    q = codes4(x, by)
    products, squares = x * q, q * q
    return [halves(v[..., :16] + v[..., 16:]) for v in (products, squares)]


def inverse(d):
    return torch.where(d == 0, 0, 1 / d)


def blocks4(x):
    """q4_0 of serve --quantize: the scale with the least squared error among nine, refined once."""
    largest = x.abs().amax(-1, keepdim=True)
    m = torch.where((x == -largest).any(-1, keepdim=True), -largest, largest)
    best, d = torch.zeros_like(m), torch.zeros_like(m)
    for i in range(9):
        xq, qq = sums4(x, torch.full_like(m, -6.75 - i / 4) / m)
        better = xq * xq / qq > best
        best, d = torch.where(better, xq * xq / qq, best), torch.where(better, xq / qq, d)
    xq, qq = sums4(x, inverse(d.half().float()))
    d = torch.where(qq > 0, xq / qq, d).half().float()
    return codes4(x, inverse(d)) * d


def blocks8(x):
    """q8_0 of serve --quantize: codes are rounded for the scale as it is stored."""
    d = (x.abs().amax(-1, keepdim=True) / 127).half().float()
    return torch.round(x * inverse(d)).clamp(-127, 127) * d


def converted(name, kind):
    """A plain model, and the values that --quantize gives its linear maps."""
    model = random(LlamaConfig(**SIZES)).bfloat16()
    save(name, model)
    for n, p in model.named_parameters():
        if kind == "nf4" and is_linear(n):
            p.data = bnb.functional.dequantize_4bit(*bnb.functional.quantize_4bit(p.data, blocksize=64, quant_type="nf4"))
    model.float()
    for n, p in model.named_parameters():
        if kind != "nf4" and (is_linear(n) or n == "lm_head.weight"):
            p.data = {"q8_0": blocks8, "q4_0": blocks4}[kind](p.data.view(-1, 32)).view(p.shape)
    save(name + " values", model)


def in_gguf(name, kind):
    """A Qwen2 in a file with its tokenizer."""
    model = random(Qwen2Config(**SIZES))
    w = gguf.GGUFWriter(name, "qwen2")
    w.add_block_count(2)
    w.add_context_length(256)
    w.add_embedding_length(64)
    w.add_feed_forward_length(128)
    w.add_head_count(4)
    w.add_head_count_kv(2)
    w.add_layer_norm_rms_eps(model.config.rms_norm_eps)
    w.add_rope_freq_base(10000.0)
    text = json.loads(tok.backend_tokenizer.to_str())
    vocabulary = sorted(tok.get_vocab(), key=tok.get_vocab().get)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(vocabulary)
    w.add_token_types([gguf.TokenType.CONTROL if t in tok.all_special_tokens else gguf.TokenType.NORMAL for t in vocabulary])
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in text["model"]["merges"]])
    w.add_bos_token_id(tok.bos_token_id)
    w.add_eos_token_id(tok.eos_token_id)
    w.add_add_bos_token(False)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, 2)
    for n, p in model.named_parameters():
        to = names.get_name(n, try_suffixes=(".weight", ".bias"))
        if p.dim() == 2:
            data, p.data, of = rounded(p.data, kind)
            w.add_tensor(to, data, raw_dtype=of)
        else:
            w.add_tensor(to, p.data.numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    save(name + " values", model)


MAKERS = {name: (stored, {}) for name in fixtures.MODELS}
MAKERS |= {f"bnb-{name}": (bitsandbytes, options) for name, options in {
    "nf4": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4"), "fp4": dict(load_in_4bit=True, bnb_4bit_quant_type="fp4"),
    "nf4-double": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True), "int8": dict(load_in_8bit=True)}.items()}
MAKERS |= {f"{kind}.gguf": (in_gguf, dict(kind=kind)) for kind in ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1")}
MAKERS |= {f"quantize-{kind}": (converted, dict(kind=kind)) for kind in ("nf4", "q8_0", "q4_0")}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        trainer.prepare()
        cases = {}
        for name in sys.argv[2:] or MAKERS:
            maker, options = MAKERS[name]
            maker(name, **options)
            flags = ["--quantize", name.removeprefix("quantize-")] if maker is converted else []
            cases[name + ", lora"] = dict(model=name, values=name + " values", lora=LORA, flags=flags)
            cases[name + ", dora"] = dict(cases[name + ", lora"], lora=dict(LORA, use_dora=True))
        failed = trainer.compare(cases)
    sys.exit(failed > 0)
