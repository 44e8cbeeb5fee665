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
          T.IQ1_S: [0], T.IQ1_M: [], T.TQ1_0: [52], T.TQ2_0: [64]}
BLOCKS = 6

def main():
    random = np.random.default_rng(16)
    out = {}
    for t, halves in HALVES.items():
        elements, size = GGML_QUANT_SIZES[t]
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
        values = gguf.dequantize(blocks.reshape(1, -1), t)
        out[t.name] = {"columns": elements, "blocks": base64.b64encode(blocks.tobytes()).decode(),
                       "values": base64.b64encode(values.astype("<f4").tobytes()).decode()}
    path = pathlib.Path("internal/backend/backendtest/testdata/gguf-blocks.json.gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress((json.dumps(out, indent=0) + "\n").encode(), mtime=0))

main()
