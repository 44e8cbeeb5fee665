"""Writes internal/backend/backendtest/testdata/gguf-blocks.json.gz: random blocks of every type of ggml that Heft reads, with the float32
values that the gguf package dequantises them to, as base64. Run it from the root of the repository with a Python that has
gguf: scripts/make-gguf-fixtures.py"""
import base64
import gzip
import json
import pathlib
import numpy as np
import gguf
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T

# Where each type has float16 numbers: scales are kept finite and of usual sizes.
HALVES = {T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2],
          T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0], T.IQ2_XXS: [0], T.IQ2_XS: [0], T.IQ2_S: [0], T.IQ3_XXS: [0], T.IQ3_S: [0], T.MXFP4: [],
          T.IQ1_S: [0], T.IQ1_M: [], T.TQ1_0: [52], T.TQ2_0: [64], T.NVFP4: [], 41: [0], 42: [0]}
BLOCKS = 6
# Types that the package cannot dequantise yet, by number: name, elements and bytes of a block, and its codes' values by the scale.
NEWEST = {41: ("Q1_0", 128, 18, lambda b: np.unpackbits(b[:, 2:], axis=1, bitorder="little") * 2.0 - 1),
          42: ("Q2_0", 64, 18, lambda b: (b[:, 2:, None] >> np.array([0, 2, 4, 6], dtype=np.uint8) & 3).reshape(len(b), 64) - 1.0)}


def main():
    random = np.random.default_rng(16)
    out = {}
    for t, halves in HALVES.items():
        elements, size = NEWEST[t][1:3] if t in NEWEST else GGML_QUANT_SIZES[t]
        blocks = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
        for at in halves:
            scale = (random.standard_normal(BLOCKS) * 2.0 ** random.integers(-12, 2, BLOCKS)).astype(np.float16)
            scale[-1] = np.float16(3e-7)  # a subnormal number
            blocks[:, at:at + 2] = scale.view(np.uint8).reshape(BLOCKS, 2)
        if t == T.IQ1_M:  # the scale's bits are the high ones of four words
            scale = (random.standard_normal(BLOCKS) * 2.0 ** random.integers(-12, 2, BLOCKS)).astype(np.float16).view(np.uint16)
            for i in range(4):
                blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | (scale >> (4 * i) & 15).astype(np.uint8) << 4
        if t == T.MXFP4:
            blocks[:, 0] = [0, 1, 2, 127, 140, 200]
        if t == T.NVFP4:
            blocks[:3, :4] = [[0, 1, 7, 8], [0x7f, 0x7e, 0xff, 0x80], [0x38, 0xb8, 0x79, 0x0f]]
        if t in NEWEST:
            values = NEWEST[t][3](blocks).astype(np.float32) * blocks[:, :2].copy().view(np.float16).astype(np.float32)
        else:
            values = gguf.dequantize(blocks.reshape(1, -1), t)
        out[NEWEST[t][0] if t in NEWEST else t.name] = {"columns": elements, "blocks": base64.b64encode(blocks.tobytes()).decode(),
                       "values": base64.b64encode(values.astype("<f4").tobytes()).decode()}
    path = pathlib.Path("internal/backend/backendtest/testdata/gguf-blocks.json.gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress((json.dumps(out, indent=0) + "\n").encode(), mtime=0))

main()
