#!/usr/bin/env python3
"""Makes tiny models with the libraries that quantise them, to compare Heft with them.

    python check-quantised.py REPO OUT bitsandbytes|gptqmodel
    HEFT_GOLDEN=OUT go test ./internal/nn ./meta ./train/model -run Golden

bitsandbytes quantises and saves with transformers' save_pretrained. GPTQModel's TorchLinear and AwqTorchLinear pack, and
dequantise with scales widened to float32. golden.json.gz has float32 results of transformers with the values that the
library dequantises. Rows of bitsandbytes models are multiples of 64, because its loops for the CPU take other rows as if
each began with a block of its own.
"""
import gzip
import importlib.util
import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file

REPO, OUT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) / "infer" / "models"
spec = importlib.util.spec_from_file_location("plain", REPO / "scripts" / "make-model-fixtures.py")
plain = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plain)
FIELDS = dict(plain.COMMON, hidden_size=64, intermediate_size=128, head_dim=16, tie_word_embeddings=False)


def golden(folder, model, kind):
    for seed in range(1, 50):
        ids = torch.randint(3, plain.VOCAB, (19,), generator=torch.Generator().manual_seed(seed)).tolist()
        cases = [plain.prompt(model, ids[:n]) for n in plain.LENGTHS]
        if min(margin for _, margin in cases) > plain.MARGIN:
            break
    text = dict(name=folder.name, model_type=kind, seed=seed, tolerance=dict(logits_atol=2e-4, logits_rtol=2e-4),
                num_parameters=sum(p.numel() for p in model.parameters()), prompts=[case for case, _ in cases])
    with gzip.GzipFile(folder / "golden.json.gz", "wb", mtime=0) as f:
        f.write((json.dumps(text) + "\n").encode())
    print(folder.name, "seed", seed, flush=True)


def bitsandbytes():
    import bitsandbytes as bnb
    from transformers import AutoModelForCausalLM
    from transformers import BitsAndBytesConfig as Config

    kinds = dict(llama=("llama", FIELDS), qwen2=("qwen2", dict(FIELDS, tie_word_embeddings=True)),
                 gemma3=("gemma3_text", dict({k: v for k, v in FIELDS.items() if k != "rope_theta"}, sliding_window=8)),
                 mixtral=("mixtral", dict(FIELDS, num_local_experts=3, num_experts_per_tok=2, intermediate_size=64)))
    four = lambda kind, nested: Config(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=nested)
    settings = dict(nf4=four("nf4", False), nf4d=four("nf4", True), fp4=four("fp4", False), fp4d=four("fp4", True), int8=Config(load_in_8bit=True))
    for family, (kind, fields) in kinds.items():
        for name, quantisation in settings.items():
            for dtype in [torch.bfloat16, torch.float16, torch.float32] if family == "llama" else [torch.bfloat16]:
                folder, source = OUT / f"{family}-bnb-{name}-{str(dtype)[6:]}", OUT.parent / "source"
                plain.build(kind, dtype, fields, 3)[1].to(dtype).save_pretrained(source)
                AutoModelForCausalLM.from_pretrained(source, quantization_config=quantisation, dtype=dtype).save_pretrained(folder)
                model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
                rows = {n: (m.weight.data.clone(), (m.weight.SCB if m.weight.SCB is not None else m.state.SCB).clone())
                        for n, m in model.named_modules() if isinstance(m, bnb.nn.Linear8bitLt)}
                model = model.dequantize().float().eval()
                model.config._attn_implementation = "eager"
                for n, (codes, scales) in rows.items():  # dequantize rounds these to the model's dtype
                    model.get_submodule(n).weight.data = bnb.functional.int8_vectorwise_dequant(codes, scales.float()).float()
                golden(folder, model, kind)


def parameters(weight, bits, group, symmetric, ordered):
    outputs, inputs = weight.shape
    index = torch.arange(inputs) // group
    if not ordered:
        index = index[torch.randperm(inputs)]
    scales, zeros = torch.zeros(outputs, inputs // group), torch.zeros(outputs, inputs // group)
    for k in range(inputs // group):
        low, high = weight[:, index == k].amin(1).clamp(max=0), weight[:, index == k].amax(1).clamp(min=0)
        if symmetric:
            high = torch.maximum(-low, high)
            low = -high
        scales[:, k] = (high - low) / (2 ** bits - 1)
        zeros[:, k] = 2 ** (bits - 1) if symmetric else torch.round(-low / scales[:, k])
    return scales.half().float(), zeros, index.int()


def gptq(bits, symmetric, ordered, v2):
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear

    def pack(linear):
        scales, zeros, index = parameters(linear.weight.data, bits, 32, symmetric, ordered)
        q = TorchLinear(bits=bits, group_size=32, sym=symmetric, desc_act=not ordered, in_features=linear.in_features,
                        out_features=linear.out_features, bias=False, pack_dtype=torch.int32, register_buffers=True)
        q.pack_original(linear, scales, zeros, index)
        half = q.scales
        q.register_buffer("scales", half.float())
        values = super(TorchLinear, q).dequantize_weight().float().T
        ones = 0x11111111 if bits == 4 else 0x01010101  # what version 1 of the format subtracts from zeros
        return values, dict(qweight=q.qweight, qzeros=q.qzeros if v2 else q.qzeros - ones, scales=half, g_idx=q.g_idx)
    return pack, dict(quant_method="gptq", bits=bits, group_size=32, sym=symmetric, desc_act=not ordered, checkpoint_format="gptq_v2" if v2 else "gptq")


def awq(zero_point):
    from gptqmodel.nn_modules.qlinear.torch_awq import AwqTorchLinear
    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm

    def pack(linear):
        scales, zeros, _ = parameters(linear.weight.data, 4, 32, not zero_point, True)
        q = AwqTorchLinear(bits=4, group_size=32, sym=not zero_point, desc_act=False, in_features=linear.in_features,
                           out_features=linear.out_features, bias=False, register_buffers=True)
        q.pack(linear, scales, zeros)
        values = dequantize_gemm(qweight=q.qweight, qzeros=q.qzeros, scales=q.scales.float(), bits=4, group_size=32)
        return values.float().T, dict(qweight=q.qweight, qzeros=q.qzeros, scales=q.scales)
    return pack, dict(quant_method="awq", bits=4, group_size=32, zero_point=zero_point, version="gemm")


def packed(name, pack, quantisation):
    folder, tensors = OUT / name, {}
    folder.mkdir(parents=True)
    config, model = plain.build("llama", torch.float16, FIELDS, 5)
    for n, p in list(model.named_parameters()):
        if n.endswith("_proj.weight") and "layers.1.mlp.down" not in n:
            values, stored = pack(model.get_submodule(n.removesuffix(".weight")))
            p.data.copy_(values)
            tensors.update({n.removesuffix("weight") + k: v.contiguous() for k, v in stored.items()})
        else:
            tensors[n] = p.half().contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    text = dict(config.to_diff_dict(), quantization_config=quantisation, architectures=[type(model).__name__], dtype="float16")
    (folder / "config.json").write_text(json.dumps(text, default=str))
    (folder / "generation_config.json").write_text('{"bos_token_id": 1, "eos_token_id": 2}')
    golden(folder, model, "llama")


def gptqmodel():
    for bits in 4, 8:
        for symmetric in True, False:
            for ordered in True, False:
                for v2 in False, True:
                    packed(f"gptq-{bits}-{'sym' if symmetric else 'asym'}-{'plain' if ordered else 'act'}-v{1 + v2}", *gptq(bits, symmetric, ordered, v2))
    for zero_point in True, False:
        packed(f"awq-{'zeros' if zero_point else 'sym'}", *awq(zero_point))


shutil.rmtree(OUT, ignore_errors=True)
OUT.mkdir(parents=True)
{"bitsandbytes": bitsandbytes, "gptqmodel": gptqmodel}[sys.argv[3]]()
