"""Writes GGUF files of a folder again, in layouts that llama.cpp's format allows and its converter does not write: other alignments,
tensors in any order, splits at any place with parts without tensors.

    python scripts/gguf_layouts.py FOLDER OUT SEED

The answers of each file stay as they are, so OUT has a copy of its JSON for each part. HEFT_GGUF_MODELS=OUT go test
./dispatch/internal/test/gguf -run TestGGUFModels checks them. It needs the gguf package."""
import bz2
import pathlib
import random
import shutil
import sys
import tempfile

import gguf

folder, out, seed = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
WRITTEN = {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture", "general.alignment"}
OPTIONAL = {"general.name", "general.type", "general.file_type", "general.quantization_version", "general.size_label", "tokenizer.ggml.padding_token_id"}


def copy_keys(reader, writer, R):
    for key, field in reader.fields.items():
        if key in WRITTEN or key in OPTIONAL and R.random() < 0.5:
            continue
        kind, sub = field.types[0], field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), kind, sub)


def rewrite(file, R):
    reader = gguf.GGUFReader(file)
    tensors = list(reader.tensors)
    if R.random() < 0.8:
        R.shuffle(tensors)
    count = R.choice([1, 1, 2, 3, 5])
    cuts = sorted(R.choice([0, R.randrange(len(tensors) + 1)]) for _ in range(count - 1))
    architecture = reader.fields["general.architecture"].contents()
    for part, (begin, end) in enumerate(zip([0] + cuts, cuts + [len(tensors)])):
        name = f"{file.stem}-{part + 1:05}-of-{count:05}" if count > 1 else file.stem
        writer = gguf.GGUFWriter(out / f"{name}.gguf", architecture)
        writer.add_custom_alignment(R.choice([8, 16, 32, 64, 256, 4096]))
        if part == 0:
            copy_keys(reader, writer, R)
        if count > 1:
            writer.add_uint16("split.no", part)
            writer.add_uint16("split.count", count)
            writer.add_int32("split.tensors.count", len(tensors))
        for t in tensors[begin:end]:
            writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        shutil.copy(folder / f"{file.stem}.json", out / f"{name}.json")
    return count


out.mkdir(parents=True, exist_ok=True)
with tempfile.TemporaryDirectory() as unpacked:
    for i, packed in enumerate(sorted(folder.glob("*.gguf.bz2"))):
        file = pathlib.Path(unpacked) / packed.name.removesuffix(".bz2")
        file.write_bytes(bz2.decompress(packed.read_bytes()))
        print(file.stem, rewrite(file, random.Random(seed * 1000 + i)), "parts")
