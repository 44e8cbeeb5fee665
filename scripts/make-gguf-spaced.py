"""Writes internal/gguf/folder/testdata/spaced.json.gz: a small tokenizer of Gemma's form, as llama.cpp's converter writes it into GGUF
files, and the ids that the tokenizers library gives to texts. Run it from the root of the repository with a Python that has
tokenizers: scripts/make-gguf-spaced.py"""
import gzip
import json
import pathlib
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = ["", " ", "   leading", "trailing   ", "Hello World's 123456 tests!\n\n  x", "a\n\n\nb\n \n", "\t\ttabs\r\n", "naïve café Ünïcödé", "你好，世界", "🙂👩‍👩‍👧🏽", "e\u0301\u200b",
         "<start>user\nhi<end>\n", "the  cat   sat on the mat, the  cat sat", "▁▁literal▁", "x" * 40, "def f(x):\n    return x + 1\n"]
corpus = pathlib.Path("ARCHITECTURE.md").read_text().splitlines(keepends=True) + ["\n\n\n", "    ", "the  cat   sat\n\n"] * 20

control, visible = ["<pad>", "<eos>", "<bos>", "<unk>", "<start>"], ["<end>"]
tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
tok.normalizer = normalizers.Replace(" ", "▁")
tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
bytes_ = [f"<0x{b:02X}>" for b in range(256)]
trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=control + bytes_, limit_alphabet=80, show_progress=False)
tok.train_from_iterator([line[:80] for line in corpus], trainer)
model = json.loads(tok.to_str())
model["added_tokens"] = [t for t in model["added_tokens"] if t["content"] in control]
tok = Tokenizer.from_str(json.dumps(model))
tok.add_tokens([AddedToken(t, normalized=False, special=False) for t in visible])
tok.post_processor = processors.TemplateProcessing(single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[("<bos>", tok.token_to_id("<bos>"))])
file = json.loads(tok.to_str())
size = tok.get_vocab_size()
tokens = [tok.id_to_token(i) for i in range(size)]
types = [3 if t in control[:3] + control[4:] else 2 if t == "<unk>" else 4 if t in visible else 6 if t in bytes_ else 1 for t in tokens]
out = dict(tokens=tokens, types=types, merges=[" ".join(m) for m in file["model"]["merges"]], bos=tok.token_to_id("<bos>"), eos=tok.token_to_id("<eos>"),
           cases=[dict(text=t, ids=tok.encode(t).ids, decoded=tok.decode(tok.encode(t, add_special_tokens=False).ids)) for t in TEXTS])
path = pathlib.Path("internal/gguf/folder/testdata/spaced.json.gz")
path.write_bytes(gzip.compress((json.dumps(out, ensure_ascii=True, separators=(",", ":")) + "\n").encode(), mtime=0))
print(size, "tokens,", len(out["merges"]), "merges,", path.stat().st_size, "bytes")
