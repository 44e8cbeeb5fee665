#!/usr/bin/env python3
"""Makes the tiny checkpoints of published formats of testdata/golden/infer/models with the libraries that write them.

    python scripts/make-published-fixtures.py testdata/golden/infer/models [NAME ...]

It needs torch, transformers, compressed-tensors and bitsandbytes. The libraries quantise random weights, and golden.json
is what float32 arithmetic of transformers makes of the weights that they dequantise. Scales that are stored in 16 bits
are widened before that: the libraries would round the products to 16 bits as well.
"""
import importlib.util
import pathlib
import sys

import bitsandbytes.functional as bnb
import torch
from compressed_tensors.compressors import FloatQuantizationCompressor, IntQuantizationCompressor, MXFP4PackedCompressor, MXFP8QuantizationCompressor, NVFP4PackedCompressor, PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

spec = importlib.util.spec_from_file_location("quantised", pathlib.Path(__file__).with_name("make-quantised-fixtures.py"))
quantised = importlib.util.module_from_spec(spec)
spec.loader.exec_module(quantised)

IGNORED = ["lm_head", "re:.*layers\\.1\\.mlp\\.down_proj"]
ROUNDED = dict(dynamic=True, num_bits=8, strategy="token", symmetric=True)


def extremes(weight, strategy, group):
    """The largest and least values of what shares a scale."""
    blocks = weight.reshape(1, -1) if strategy == "tensor" else weight if strategy == "channel" else weight.unflatten(1, (-1, group))
    shape = (1,) if strategy == "tensor" else (-1, 1) if strategy == "channel" else (weight.shape[0], -1)
    return blocks.amin(-1).clamp(max=0).reshape(shape), blocks.amax(-1).clamp(min=0).reshape(shape)


def compressed(compressor, arguments, dtype=torch.float32, extra=lambda shape: {}):
    """A format of compressed-tensors."""
    args = QuantizationArgs(**arguments)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, input_activations=QuantizationArgs(**ROUNDED, type=args.type))

    def method(name, shape, size):
        weight = torch.randn(shape) * size
        low, high = extremes(weight, args.strategy, args.group_size)
        state = dict(weight=weight)
        if args.symmetric:
            top = 448 if args.type == "float" else 2 ** (args.num_bits - 1) - 1
            state["weight_scale"] = (torch.maximum(-low, high) / top).to(dtype)
        else:
            state["weight_scale"] = ((high - low) / (2 ** args.num_bits - 1)).to(dtype)
            state["weight_zero_point"] = (-2 ** (args.num_bits - 1) - low / state["weight_scale"].float()).round().to(torch.int8)
        wide = {k: v.float() if v.dtype == dtype else v for k, v in state.items()}
        stored = compressor.compress(wide, scheme)
        values = compressor.decompress(stored, scheme)["weight"].float()
        base = name.removesuffix("weight")
        stored["weight_scale"] = state["weight_scale"]
        return values, {base + k: v.contiguous() for k, v in {**stored, **extra(shape)}.items()}
    return method


def compressed_config(format, weights, **more):
    rounded = dict(ROUNDED, type=weights["type"]) if weights["num_bits"] == 8 else None
    group = dict(targets=["Linear"], weights=weights, input_activations=rounded, output_activations=None)
    return dict(quant_method="compressed-tensors", format=format, quantization_status="compressed",
                config_groups=dict(group_0=group), ignore=IGNORED, kv_cache_scheme=None, **more)


def int8(name, shape, size):
    """LLM.int8(): a scale for each row."""
    codes, scales, _ = bnb.int8_vectorwise_quant((torch.randn(shape) * size).half())
    base = name.removesuffix("weight")
    return bnb.int8_vectorwise_dequant(codes, scales).float(), {name: codes, base + "SCB": scales.float(), base + "weight_format": torch.tensor(0, dtype=torch.uint8)}


def fourbits(kind, nested, dtype):
    """nf4 or fp4, with scales in one or two levels. The library's loops in C take a scale for each row's own blocks, which is
    not how it quantises; its formula in torch is right."""
    from bitsandbytes.backends.default.ops import _dequantize_4bit_compute

    def method(name, shape, size):
        codes, state = bnb.quantize_4bit((torch.randn(shape) * size).to(dtype), quant_type=kind, compress_statistics=nested)
        scales = state.absmax
        if nested:
            scales = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset
        values = _dequantize_4bit_compute(codes.reshape(-1), scales.float(), state.code, state.blocksize, shape, dtype).float()
        return values, {name: codes, **{name + "." + k: v for k, v in state.as_dict(packed=True).items()}}
    return method


def fourbits_config(kind, nested, dtype):
    return dict(quant_method="bitsandbytes", load_in_8bit=False, load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=nested,
                bnb_4bit_compute_dtype=dtype, bnb_4bit_quant_storage="uint8", llm_int8_skip_modules=["lm_head", "model.layers.1.mlp.down_proj"])


def gptq8(name, shape, size):
    """Integers of 8 bits in groups of 16 in no order. No library packs these without a GPU: this is GPTQ's rule."""
    outputs, inputs = shape
    index = (torch.arange(inputs) // 16)[torch.randperm(inputs)]
    codes, zeros = torch.randint(0, 256, (inputs, outputs)), torch.randint(120, 137, (inputs // 16, outputs))
    scales = (torch.rand(inputs // 16, outputs) * size / 64 + size / 128).half()
    words = lambda t: t.to(torch.uint8).contiguous().view(torch.int32)
    base = name.removesuffix("weight")
    return ((codes - zeros[index]) * scales.float()[index]).T, {
        base + "qweight": words(codes.unflatten(0, (-1, 4)).transpose(1, 2)).squeeze(-1).contiguous(),
        base + "qzeros": words(zeros - 1), base + "scales": scales, base + "g_idx": index.int()}


def auto_round():
    """GPTQ without an index, as AutoRound writes it."""
    def ordered(name, shape, size):
        base = name.removesuffix("weight")
        codes, zeros, scales, values = quantised.nibbles(shape, size, 16, torch.arange(shape[1]) // 16)
        return values, {base + "qweight": quantised.words(codes.T.contiguous()).T.contiguous(), base + "qzeros": quantised.words(zeros - 1), base + "scales": scales}
    return ordered


def nvfp4(modelopt):
    """NVFP4 of compressed-tensors, whose global scale divides, or as modelopt stores it, where it multiplies."""
    def method(name, shape, size):
        weight = torch.randn(shape) * size
        scale_2 = weight.abs().max() / (448 * 6)
        state = dict(weight=weight, weight_global_scale=(1 / scale_2).reshape(1))
        state["weight_scale"] = (weight.unflatten(1, (-1, 16)).abs().amax(-1) / 6 / scale_2).to(torch.float8_e4m3fn).float()
        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**NVFP4))
        stored = NVFP4PackedCompressor.compress(state, scheme)
        base = name.removesuffix("weight")
        # The library rounds dequantised values to bfloat16, so it gives the codes alone.
        codes = NVFP4PackedCompressor.decompress({**stored, "weight_scale": torch.ones_like(state["weight_scale"]),
                                                  "weight_global_scale": torch.ones(1)}, scheme)["weight"].float()
        by = state["weight_scale"] * scale_2 if modelopt else state["weight_scale"] / state["weight_global_scale"]
        values = codes * by.repeat_interleave(16, 1)
        if not modelopt:
            return values, {base + k: v.contiguous() for k, v in stored.items()}
        return values, {name: stored["weight_packed"], base + "weight_scale": stored["weight_scale"],
                        base + "weight_scale_2": scale_2, base + "input_scale": torch.rand(())}
    return method


def fp8_powers(name, shape, size):
    """FP8 in blocks whose scales are powers of two, as DeepSeek publishes it: the rule of transformers' quantiser."""
    weight, block = torch.randn(shape) * size, 16
    rows, columns = -(-shape[0] // block), -(-shape[1] // block)
    spread = lambda t: t.repeat_interleave(block, 0).repeat_interleave(block, 1)[:shape[0], :shape[1]]
    scales = torch.stack([torch.stack([weight[r * block:][:block, c * block:][:, :block].abs().max() for c in range(columns)]) for r in range(rows)]) / 448
    scales = (2 ** scales.log2().ceil()).to(torch.float8_e8m0fnu)
    codes = (weight / spread(scales.float())).to(torch.float8_e4m3fn)
    return codes.float() * spread(scales.float()), {name: codes, name + "_scale_inv": scales}


def mx(compressor, args):
    """MXFP8 and MXFP4 of compressed-tensors."""
    from compressed_tensors.compressors import mxfp4, mxfp8  # noqa: F401

    def method(name, shape, size):
        weight = torch.randn(shape) * size
        top = 448 if args["num_bits"] == 8 else 6
        scale = 2 ** (weight.unflatten(1, (-1, 32)).abs().amax(-1) / top).log2().ceil()
        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args, scale_dtype=torch.uint8))
        stored = compressor.compress(dict(weight=weight, weight_scale=scale), scheme)
        values = compressor.decompress(dict(stored), scheme)["weight"].float()
        base = name.removesuffix("weight")
        return values, {base + k: v.contiguous() for k, v in stored.items()}
    return method


WIDE = dict(quantised.LLAMA, hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
MXFP8 = dict(num_bits=8, type="float", strategy="group", group_size=32, symmetric=True)
MXFP4 = dict(num_bits=4, type="float", strategy="group", group_size=32, symmetric=True)
FP8_TENSOR = dict(num_bits=8, type="float", strategy="tensor", symmetric=True)
FP8_CHANNEL = dict(num_bits=8, type="float", strategy="channel", symmetric=True)
INT8_CHANNEL = dict(num_bits=8, type="int", strategy="channel", symmetric=True)
INT8_ASYMMETRIC = dict(num_bits=8, type="int", strategy="channel", symmetric=False)
INT4_GROUP = dict(num_bits=4, type="int", strategy="group", group_size=16, symmetric=True)
INT4_ASYMMETRIC = dict(num_bits=4, type="int", strategy="group", group_size=8, symmetric=False)
INT4_CHANNEL = dict(num_bits=4, type="int", strategy="channel", symmetric=True)
INT8_GROUP = dict(num_bits=8, type="int", strategy="group", group_size=8, symmetric=False)
NVFP4 = dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)
static = lambda shape: dict(input_scale=torch.rand(1) + 0.1)

BF16, F16 = torch.bfloat16, torch.float16
MODELS = {
    "small-llama-ct-fp8-channel": ("llama", BF16, quantised.LLAMA, compressed(FloatQuantizationCompressor, FP8_CHANNEL, BF16),
                                   quantised.linears, compressed_config("float-quantized", FP8_CHANNEL)),
    "small-llama-ct-fp8-tensor": ("llama", BF16, quantised.LLAMA, compressed(FloatQuantizationCompressor, FP8_TENSOR, extra=static),
                                  quantised.linears, compressed_config("float-quantized", FP8_TENSOR)),
    "small-llama-autofp8": ("llama", BF16, quantised.LLAMA, compressed(FloatQuantizationCompressor, FP8_TENSOR, extra=static), quantised.linears,
                            dict(quant_method="fp8", activation_scheme="static", ignored_layers=["lm_head", "model.layers.1.mlp.down_proj"])),
    "small-llama-modelopt-fp8": ("llama", BF16, quantised.LLAMA, compressed(FloatQuantizationCompressor, FP8_TENSOR, extra=static), quantised.linears,
                                 dict(quant_method="modelopt", quant_algo="FP8", ignore=["lm_head", "*layers.1.mlp.down_proj*"])),
    "small-llama-ct-int8": ("llama", BF16, quantised.LLAMA, compressed(IntQuantizationCompressor, INT8_CHANNEL, BF16),
                            quantised.linears, compressed_config("int-quantized", INT8_CHANNEL)),
    "small-llama-ct-int8-zeros": ("llama", BF16, quantised.LLAMA, compressed(IntQuantizationCompressor, INT8_ASYMMETRIC),
                                  quantised.linears, compressed_config("int-quantized", INT8_ASYMMETRIC)),
    "small-llama-ct-w4a16": ("llama", BF16, quantised.LLAMA, compressed(PackedQuantizationCompressor, INT4_GROUP, BF16),
                             quantised.linears, compressed_config("pack-quantized", INT4_GROUP)),
    "small-llama-ct-w4a16-zeros": ("llama", BF16, quantised.LLAMA, compressed(PackedQuantizationCompressor, INT4_ASYMMETRIC),
                                   quantised.linears, compressed_config("pack-quantized", INT4_ASYMMETRIC)),
    "small-llama-ct-w4a16-channel": ("llama", BF16, quantised.LLAMA, compressed(PackedQuantizationCompressor, INT4_CHANNEL),
                                     quantised.linears, compressed_config("pack-quantized", INT4_CHANNEL)),
    "small-llama-ct-w8a16-zeros": ("llama", BF16, quantised.LLAMA, compressed(PackedQuantizationCompressor, INT8_GROUP),
                                   quantised.linears, compressed_config("pack-quantized", INT8_GROUP)),
    "small-llama-ct-nvfp4": ("llama", BF16, quantised.LLAMA, nvfp4(False), quantised.linears, compressed_config("nvfp4-pack-quantized", NVFP4)),
    "small-llama-modelopt-nvfp4": ("llama", BF16, quantised.LLAMA, nvfp4(True), quantised.linears,
                                   dict(quant_method="modelopt", quant_algo="NVFP4", ignore=["lm_head", "*layers.1.mlp.down_proj*"])),
    "small-llama-fp8-e8m0": ("llama", BF16, quantised.LLAMA, fp8_powers, quantised.linears,
                             dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=[16, 16], scale_fmt="ue8m0",
                                  modules_to_not_convert=["lm_head", "model.layers.1.mlp.down_proj"])),
    "small-llama-ct-mxfp8": ("llama", BF16, WIDE, mx(MXFP8QuantizationCompressor, MXFP8), quantised.linears, compressed_config("mxfp8-quantized", MXFP8)),
    "small-llama-ct-mxfp4": ("llama", BF16, WIDE, mx(MXFP4PackedCompressor, MXFP4), quantised.linears, compressed_config("mxfp4-pack-quantized", MXFP4)),
    "small-llama-gptq8": ("llama", F16, quantised.TIED, gptq8, quantised.linears, dict(quant_method="gptq", bits=8, group_size=16, sym=False, desc_act=True)),
    "small-llama-autoround": ("llama", F16, quantised.TIED, auto_round(), quantised.linears,
                              dict(quant_method="auto-round", packing_format="auto_round:auto_gptq", data_type="int", bits=4, group_size=16, sym=False)),
    "small-llama-bnb-nf4": ("llama", BF16, quantised.TIED, fourbits("nf4", True, BF16), quantised.linears, fourbits_config("nf4", True, "bfloat16")),
    "small-llama-bnb-nf4-plain": ("llama", F16, quantised.TIED, fourbits("nf4", False, F16), quantised.linears, fourbits_config("nf4", False, "float16")),
    "small-llama-bnb-fp4": ("llama", BF16, quantised.TIED, fourbits("fp4", True, torch.float32), quantised.linears, fourbits_config("fp4", True, "float32")),
    "small-llama-bnb-int8": ("llama", F16, quantised.TIED, int8, quantised.linears,
                             dict(quant_method="bitsandbytes", load_in_8bit=True, load_in_4bit=False, llm_int8_threshold=6.0,
                                  llm_int8_skip_modules=["lm_head", "model.layers.1.mlp.down_proj"])),
}


def main():
    for name, arguments in MODELS.items():
        if name in sys.argv[2:] or not sys.argv[2:]:
            quantised.make(pathlib.Path(sys.argv[1]), name, *arguments)


if __name__ == "__main__":
    main()
