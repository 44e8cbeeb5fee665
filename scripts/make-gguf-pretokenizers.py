"""Writes internal/gguf/folder/testdata/pretokenizers.json.gz: awkward texts, and for each name of tokenizer.ggml.pre that Heft reads
checksums of the ids that the tokenizers library gives them. Run it from the root of the repository with a Python that has
tokenizers: scripts/make-gguf-pretokenizers.py"""
import gzip
import json
import os
import pathlib
import random
import subprocess
import tempfile
import zlib
from tokenizers import Tokenizer

PARTS = ["a", "B", "é", "É", "ß", "中", "国", "ひ", "カ", "한", "글", "1", "23", "4567", "12345678", " ", "  ", "\n", "\r\n", "\t", ".", "!", "?!", "'s", "'LL", "don't", "_", "/", "：", "。", "“",
         "ǅ", "ʰ", "\u0301", "\u0bcd", "क", "ि", "٣", "Ⅷ", "²", "🙂", "\u200d", "\u00a0", "\u3000", "µ", "ϴ", "\u212a", "\u2126", "ſ", "'ſ", "ա", "Ა", "\U00010400", "\ufdfd", "ab", "AB", "Ab",
         "<|x|>", "=>", "$", "\u2028", "\ufeff"]
TEXTS = ["", "Hello World's 123456 tests!\n\n  x", "1234567.89 and 12,345,678", "  leading", "trailing  \n", "中文English混排123", "I'Ll don'T 'S", "\n \n\n  \n"]

rng = random.Random(16)
texts = TEXTS + ["".join(rng.choice(PARTS) for _ in range(rng.randint(2, 30))) for _ in range(80)]
sums = {}
with tempfile.TemporaryDirectory() as folder:
    subprocess.run(["go", "test", "./internal/gguf/folder", "-run", "TestPreTokenizersSplitAsTokenizers", "-count=1"], check=True, env=dict(os.environ, HEFT_WRITE_TOKENIZERS=folder))
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        tokenizer = Tokenizer.from_file(str(path))
        # Go prints a list of ids as [1 2 3].
        sums[path.stem] = [zlib.crc32(("[" + " ".join(str(i) for i in tokenizer.encode(text, add_special_tokens=False).ids) + "]").encode()) for text in texts]
out = pathlib.Path("internal/gguf/folder/testdata/pretokenizers.json.gz")
out.parent.mkdir(exist_ok=True)
out.write_bytes(gzip.compress((json.dumps({"texts": texts, "sums": sums}, ensure_ascii=True, separators=(",", ":")) + "\n").encode(), mtime=0))
print(len(sums), "names,", len(texts), "texts")
