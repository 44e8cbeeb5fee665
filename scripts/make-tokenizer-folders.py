"""Writes internal/tokenizer/testdata/folders.json.gz: model folders without tokenizer.json, and what
transformers' AutoTokenizer makes of texts with them.

The vocabularies are trained here, on text from this file, with the real libraries.

    pip install transformers sentencepiece protobuf tiktoken
    python scripts/make-tokenizer-folders.py
"""

import base64
import functools
import gzip
import io
import json
import os
import random
import sys
import tempfile
from unittest import mock

os.environ["HF_HUB_OFFLINE"] = "1"

import sentencepiece
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, Qwen3_5Tokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter, bytes_to_unicode

OUT = "internal/tokenizer/testdata/folders.json.gz"
WORDS = """the quick reader opens a file and asks for one page at a time before anything else is loaded don't I'll we've
it's memory, weights; (tokens) [bytes] {maps} "quotes" 1 22 333 4,096 2026-11-23 3.14 x86_64 f(x)=y*2 if err != nil
Grüße aus Köln straße ÆØÅ naïve café ça déjà vu señor Привет мир как дела Ελλάδα καλημέρα שלום עולם مرحبا بالعالم
नमस्ते दुनिया สวัสดี ชาวโลก 日本語のテキスト 中文字符 한국어 문장 🙂 👍🏽 👨‍👩‍👧 ① ½ ﬁ Å""".split()
NASTY = [
    "", " ", "  ", "   x", "x   ", "Hello world", " Hello  world ", "don't I'LL 's 'S", "a\nb\r\nc\t\td\n\n\n e", "\n", "\t", "tab\tnew\n\n",
    "1234567890 12 3.14", "é e\u0301 Å ﬁ ½ ①", "Grüße aus Köln", "日本語のテキスト中文字符", "한국어 각 \u1100\u1161\u11a8", "नमस्ते q\u0323\u0307",
    "🙂👍🏽👨‍👩‍👧", "\u1234\U0001F9FF\U000E0001", "\u00a0nbsp\u3000wide\u200bzero\ufeffbom", "▁ ▁▁x ▁", "x▁y", "<0x41><0x0A>",
    "<s>", "a <s> b</s>c", "<unk><unk>x", "<|endoftext|> <|endoftext|>x", "<mask> x<mask>y", "<|im_start|>user\nhi<|im_end|>\n", "<extra_1> <extra_2>",
    "    indented\n        code()", "the the the the", "THE QUICK reader", "\x00\x01\x7f", "a" * 70, "ab" * 40 + " " * 20 + "!", "!!!???...---___",
    "if err != nil { return err }", "مرحبا بالعالم שלום", "สวัสดี ชาวโลก", "A\u0308\u0301B", "İstanbul ß ſ K", "x\u0085y\u2028z", "user_def sym",
]


CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
KIMI = "|".join([
    r"[\p{Han}]+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
TEKKEN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+", r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
RULES = [("ﬁ", "fi"), ("½", "1/2"), ("①", "1"), ("\t", " "), ("\u3000", " "), ("e\u0301", "é"), ("E\u0301", "É"), ("日本", "にほん"), ("\ufeff", ""), ("S", "s")]


def corpus():
    random.seed(7)
    made = ["".join(random.choice(["ta", "ri", "nor", "el", "sch", "o", "qu", "ith", "ban", "ü"]) for _ in range(random.randint(1, 5))) for _ in range(400)]
    return [" ".join(random.choice(WORDS + made) for _ in range(12)) for _ in range(3000)]


def merges(folder):
    """A byte-level BPE as vocab.json and merges.txt."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"], show_progress=False)
    tok.train_from_iterator(corpus(), trainer)
    tok.model.save(folder)


def ranks(pattern):
    """The bytes of the tokens of a byte-level BPE, in the order in which they were learned."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    back = {c: b for b, c in bytes_to_unicode().items()}
    learned = [bytes(back[c] for c in token) for token, _ in sorted(tok.get_vocab().items(), key=lambda t: t[1])]
    return [bytes([b]) for b in range(256)] + [t for t in learned if len(t) > 1]


def tiktoken_file(file, pattern):
    """A vocabulary in tiktoken's format."""

    def make(folder):
        with open(os.path.join(folder, file), "w") as f:
            f.writelines(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(ranks(pattern)))

    return make


def converted_with(pattern):
    """AutoTokenizer with another split pattern than that of Llama 3, which is the only one that it knows for such files."""

    def load(folder):
        init = TikTokenConverter.__init__
        with mock.patch.object(TikTokenConverter, "__init__", functools.partialmethod(init, pattern=pattern)):
            return AutoTokenizer.from_pretrained(folder)

    return load


def tekken(**config):
    """A vocabulary in Mistral's format. The last of its tokens are beyond default_vocab_size."""

    def make(folder):
        special = config.pop("special_tokens", None)
        vocab = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": t.decode(errors="ignore") or None} for i, t in enumerate(ranks(TEKKEN))]
        data = {"config": {"pattern": TEKKEN, "num_vocab_tokens": 600, "version": "v3", **config}, "vocab": vocab}
        if special:
            data["special_tokens"] = [{"rank": i, "token_str": t, "is_control": True} for i, t in enumerate(special)]
        with open(folder + "/tekken.json", "w") as f:
            json.dump(data, f)

    return make


def pieces(kind, rule="identity", **options):
    """A SentencePiece model as tokenizer.model."""

    def make(folder):
        model, rules = io.BytesIO(), folder + "/rules.tsv"
        if rule == "custom":  # a few lines, because those of nfkc have 240 KB
            options["normalization_rule_tsv"] = rules
            with open(rules, "w") as f:
                f.writelines("\t".join(" ".join(f"{ord(c):X}" for c in side) for side in pair) + "\n" for pair in RULES)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus()), model_writer=model, model_type=kind, **{"vocab_size": 560, **options}, normalization_rule_name="identity" if rule == "custom" else rule,
            remove_extra_whitespaces=rule != "identity", minloglevel=2)
        with open(folder + "/tokenizer.model", "wb") as f:
            f.write(model.getvalue())
        if rule == "custom":
            os.remove(rules)

    return make


def folder_of(name, vocabulary, config, files, load=None):
    """Makes a folder and asks transformers about it, by load where AutoTokenizer does not read the files."""
    with tempfile.TemporaryDirectory() as folder:
        vocabulary(folder)
        for file, content in {"config.json": config, **files}.items():
            with open(os.path.join(folder, file), "w") as f:
                f.write(json.dumps(content, ensure_ascii=False))
        tok = (load or AutoTokenizer.from_pretrained)(folder)
        contents = {}
        for file in sorted(os.listdir(folder)):
            with open(os.path.join(folder, file), "rb") as f:
                contents[file] = base64.b64encode(f.read()).decode()
        return {
            "name": name, "class": type(tok).__name__, "files": contents, "vocab_size": len(tok),
            "special": sorted(i for i in tok.added_tokens_decoder if not tok._tokenizer.decode([i])),
            "cases": [case(tok, text) for text in NASTY + corpus()[:3]],
        }


def case(tok, text):
    back = tok._tokenizer
    plain, special = back.encode(text, add_special_tokens=False), back.encode(text)
    assert special.ids == tok(text)["input_ids"] and plain.ids == tok(text, add_special_tokens=False)["input_ids"]
    back.encode_special_tokens = True
    split = back.encode(text, add_special_tokens=False)
    back.encode_special_tokens = False
    return {
        "text": text, "ids_split_special": split.ids, "ids": plain.ids, "ids_special": special.ids, "tokens": plain.tokens, "offsets": plain.offsets,
        "decode": back.decode(special.ids, skip_special_tokens=False), "decode_skip": back.decode(special.ids),
    }


def added(content, **more):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True, **more}


BPE = pieces("bpe", byte_fallback=True, split_digits=True, character_coverage=0.98, user_defined_symbols=["<mask>", "    ", "user_def"])
UNIGRAM = pieces("unigram", "custom", byte_fallback=True, character_coverage=0.98, user_defined_symbols=["<mask>"])
QWEN_ADDED = {str(600 + i): added(t) for i, t in enumerate(["<|im_start|>", "<|im_end|>"])} | {"602": added("<extra_1>", special=False)}
QWEN_NORMALIZED = {"600": added("<|im_end|>", normalized=True, special=False), "601": added("É", normalized=True), "602": added("Å", normalized=True, special=False)}
FOLDERS = [
    ("gpt2", merges, {"model_type": "gpt2"}, {}),
    ("gpt2-prefix-space", merges, {"model_type": "gpt2"}, {"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True, "add_bos_token": True, "unk_token": added("<|endoftext|>", __type="AddedToken")}}),
    ("starcoder2", merges, {"model_type": "starcoder2"}, {"special_tokens_map.json": {"bos_token": "<|endoftext|>", "additional_special_tokens": ["<extra_1>", "<extra_2>"], "mask_token": {"content": "<mask>", "lstrip": True, "normalized": False, "rstrip": False, "single_word": False}}}),
    ("phi", merges, {"model_type": "phi"}, {"added_tokens.json": {"    ": 601, "<|im_end|>": 600, "  ": 602}, "tokenizer_config.json": {"add_prefix_space": False, "bos_token": "<|endoftext|>"}}),
    ("qwen2", merges, {"model_type": "qwen2"}, {}),
    ("qwen3", merges, {"model_type": "qwen3"}, {"tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": QWEN_ADDED, "additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False}}),
    ("qwen2-vl", merges, {"model_type": "qwen2_vl"}, {"tokenizer_config.json": {"tokenizer_class": "Qwen2TokenizerFast", "eos_token": added("<|im_end|>", __type="AddedToken"), "image_token": "<extra_1>", "extra_special_tokens": {"audio_token": "<extra_2>"}, "add_eos_token": True}}),
    ("qwen2-normalized", merges, {"model_type": "qwen2"}, {"tokenizer_config.json": {"added_tokens_decoder": QWEN_NORMALIZED, "eos_token": "<|im_end|>", "pad_token": "Å"}}),
    ("qwen3-5", merges, {"model_type": "qwen3_5_text"}, {}, lambda d: Qwen3_5Tokenizer(vocab=d + "/vocab.json", merges=d + "/merges.txt")),
    ("llama", BPE, {"model_type": "llama"}, {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer"}}),
    ("llama-legacy", BPE, {"model_type": "llama"}, {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_bos_token": True, "bos_token": "<s>", "added_tokens_decoder": {"1": added("<s>"), "559": added("<|im_end|>"), "560": added("<extra_1>", special=False, rstrip=True)}, "additional_special_tokens": ["<|im_start|>"]}}),
    ("llama-no-prefix", BPE, {"model_type": "llama"}, {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizerFast", "add_prefix_space": False, "add_eos_token": True}, "special_tokens_map.json": {"pad_token": "<pad>", "unk_token": added("<unk>", normalized=True)}, "added_tokens.json": {"<|im_start|>": 561, "<|im_end|>": 560}}),
    ("llama-no-bytes", pieces("bpe", "custom", character_coverage=0.98), {"model_type": "llama"}, {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer"}}),
    ("llama-of-unigram", UNIGRAM, {"model_type": "llama"}, {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer"}}),
    ("gemma", BPE, {"model_type": "gemma2"}, {"tokenizer_config.json": {"add_bos_token": True, "bos_token": "<s>", "tokenizer_class": "GemmaTokenizer"}}),
    ("gemma3-defaults", BPE, {"model_type": "gemma3_text"}, {}),
    ("mistral", BPE, {"model_type": "mistral"}, {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": {"3": added("<s_of_inst>"), "4": added("    ", special=False, normalized=True)}}}),
    ("kimi", tiktoken_file("tiktoken.model", KIMI), {"model_type": "kimi_k25"}, {"tokenizer_config.json": {"tokenizer_class": "TikTokenTokenizer", "bos_token": "<s>", "eos_token": "<|im_end|>", "unk_token": "<unk>", "additional_special_tokens": ["<|im_end|>", "<s>"], "added_tokens_decoder": {"600": added("<s>"), "604": added("<|im_end|>"), "606": added("<unk>")}}}, converted_with(KIMI)),
    ("kimi-bare", tiktoken_file("tiktoken.model", KIMI), {"model_type": "kimi_linear"}, {"tokenizer_config.json": {"extra_special_tokens": ["<mask>", "<|im_start|>"]}}, converted_with(KIMI)),
    ("llama3", tiktoken_file("tokenizer.model", CL100K), {"model_type": "llama"}, {"tokenizer_config.json": {"add_bos_token": True, "bos_token": "<s>", "added_tokens_decoder": {"600": added("<s>"), "601": added("<|im_start|>", special=False)}}}),
    ("tekken", tekken(default_vocab_size=605, default_num_special_tokens=14, special_tokens=["<unk>", "<s>", "</s>", "[INST]", "<mask>"]), {"model_type": "mistral"}, {"tokenizer_config.json": {"bos_token": "<s>", "add_bos_token": True}}),
    ("tekken-bare", tekken(special_tokens=["<unk>", "<s>", "</s>"]), {"model_type": "ministral3"}, {}),
    ("bpe", BPE, {"model_type": "llama"}, {}),
    ("bpe-no-bytes", pieces("bpe", "custom", character_coverage=0.98, user_defined_symbols=["<mask>", "the"]), {"model_type": "internlm2"}, {"tokenizer_config.json": {"add_bos_token": True}}),
    ("unigram", UNIGRAM, {"model_type": "llama"}, {}),
    ("unigram-no-bytes", pieces("unigram", "custom", vocab_size=380, character_coverage=0.98, control_symbols=["<|im_start|>"], bos_id=-1, unk_id=2, eos_id=0, pad_id=1), {"model_type": "nemotron"}, {"tokenizer_config.json": {"add_eos_token": True}}),
]


def main():
    only = sys.argv[1:]
    out = [folder_of(*f) for f in FOLDERS if not only or f[0] in only]
    with gzip.GzipFile(OUT, "wb", mtime=0) as f:
        f.write(json.dumps(out).encode())


if __name__ == "__main__":
    sys.exit(main())
