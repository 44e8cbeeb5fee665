"""Writes internal/tokenizer/testdata/pipelines.json.gz: random tokenizer.json files and
what the reference library makes of random texts with them.

They cover what the published tokenizers do not: every kind of part, all its options, and
parts in combinations that nobody would ship.

    pip install tokenizers
    python scripts/tokenizer_pipelines.py [SEED [FILES [TEXTS]]]
"""

import gzip
import json
import random
import sys

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

OUT = "internal/tokenizer/testdata/pipelines.json.gz"

PIECES = list("abcABC dD  eé\t\n.,!?-'12³½٣ßİſKΣς") + [
    "e\u0301", "a\u0316\u0300", "\u1100\u1161\u11a8", "각", "中", "国", "🙂", "👍🏽", "\u200d", "▁", "<x>", "<y>", "[Z]",
    "ab", "  ", "\r\n", "\u00a0", "\u3000", "ﬁ", "ｱ", "㌔", "Å", "ệ", "q\u0323\u0307", "don't", "I'LL", "\u0301",
    "\ufeff", "\x00", "\x7f", "<0x41>", "</w>", "##", "١٢٣", "Ω", "αβΓ", "ẞ", "Ⅷ", "\u0085", "\u2028", "\u00ad", "\ufffd", "𝔸",
    "क्षि", "ไทย", "ひカー", "ㄱ", "ǅ", "``", "_", "$", "\x1f", "\u20bf",
]
LLAMA3 = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
REGEXES = [
    LLAMA3, O200K, DEEPSEEK, r"\s+", r"\p{L}+|\p{N}", "[a-c]+", "(?i:a|b)", r"\s+(?!\S)|\s+", "a*", r"^\s|\.$",
    r"(?<=a)b|\bd", r"(?>a+)b|(ab|a)(c|bd)?", r"[[:punct:]]|\d", "a{2,}?|b{1,2}", "[一-龥぀-ゟ゠-ヿ]+", r"\s?\p{L}+",
    r"[a-d&&[^b]]|\x{e9}|\u00df", r"\w+|[^\w\s]+", r"(?:a|bc){1,3}+c|(?i)K|.\z", r"\P{L}\p{^N}|[^[:alpha:]\d]",
    r"\s++|\S", r"\h+|\H+", r"\R|.", r"[^\S\r\n]+|\S+", r"(?!a)\w|\W+", r"(?<!a)b|(?<=[ab])c", r"(?:(?:a|b)*?c)|.", r"\b\w|\B.", r"\A.|.\Z",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
SCHEMES = ["always", "first", "never"]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
pick, chance = random.choice, lambda p=0.5: random.random() < p


def text():
    return "".join(pick(PIECES) for _ in range(pick([0, 1, 2, 3, 5, 8, 13, 25])))


def pattern():
    return {"Regex": pick(REGEXES)} if chance(0.8) else {"String": pick([" ", "a", "ab", "▁"])}


def several(make, depth):
    return [make(depth + 1) for _ in range(random.randint(1, 3))]


def normalizer(depth=0):
    kind = pick("NFC NFD NFKC NFKD Lowercase Strip StripAccents Prepend Replace Nmt BertNormalizer ByteLevel".split()
                + ["Sequence"] * 2 * (depth < 2))
    part = {"type": kind}
    if kind == "Strip":
        part |= {"strip_left": chance(), "strip_right": chance()}
    elif kind == "Prepend":
        part["prepend"] = pick(["▁", "ab", "é"])
    elif kind == "Replace":
        part |= {"pattern": pattern(), "content": pick(["", "▁", "x", "ab"])}
    elif kind == "BertNormalizer":
        part |= {"clean_text": chance(), "handle_chinese_chars": chance(), "strip_accents": pick([None, True, False]), "lowercase": chance()}
    elif kind == "Sequence":
        part["normalizers"] = several(normalizer, depth)
    return part


def pre_tokenizer(depth=0):
    kind = pick(("Split Split Digits Punctuation ByteLevel Metaspace Whitespace WhitespaceSplit BertPreTokenizer "
                 "CharDelimiterSplit FixedLength UnicodeScripts UnicodeScripts").split() + ["Sequence"] * 2 * (depth < 2))
    part = {"type": kind}
    if kind == "Split":
        part |= {"pattern": pattern(), "behavior": pick(BEHAVIORS), "invert": chance(0.3)}
    elif kind == "Digits":
        part["individual_digits"] = chance()
    elif kind == "Punctuation":
        part["behavior"] = pick(BEHAVIORS)
    elif kind == "ByteLevel":
        part |= {"add_prefix_space": chance(), "trim_offsets": chance(), "use_regex": chance()}
    elif kind == "Metaspace":
        part |= {"replacement": "▁", "prepend_scheme": pick(SCHEMES), "split": chance()}
    elif kind == "CharDelimiterSplit":
        part["delimiter"] = "a"
    elif kind == "FixedLength":
        part["length"] = random.randint(1, 5)
    elif kind == "Sequence":
        part["pretokenizers"] = several(pre_tokenizer, depth)
    return part


def decoder(depth=0):
    kind = pick("ByteLevel ByteFallback Fuse Strip Replace Metaspace BPEDecoder WordPiece CTC".split() + ["Sequence"] * 2 * (depth < 2))
    if kind == "ByteLevel":
        return BYTE_LEVEL
    part = {"type": kind}
    if kind == "Strip":
        part |= {"content": pick([" ", "a"]), "start": random.randint(0, 2), "stop": 0}
    elif kind == "Replace":
        part |= {"pattern": pick([{"String": "▁"}, {"String": "a"}, {"Regex": "[a-c]"}]), "content": pick([" ", "zz", ""])}
    elif kind == "Metaspace":
        part |= {"replacement": "▁", "prepend_scheme": pick(SCHEMES), "split": True}
    elif kind == "BPEDecoder":
        part["suffix"] = pick(["</w>", "a"])
    elif kind == "WordPiece":
        part |= {"prefix": "##", "cleanup": chance()}
    elif kind == "CTC":
        part |= {"pad_token": pick(["<x>", "a"]), "word_delimiter_token": pick(["b", "|", " "]), "cleanup": chance()}
    elif kind == "Sequence":
        part["decoders"] = several(decoder, depth)
    return part


def post_processor(depth=0):
    kind = pick("ByteLevel TemplateProcessing BertProcessing RobertaProcessing".split() + ["Sequence"] * (depth < 1))
    part = {"type": kind}
    if kind in ("ByteLevel", "RobertaProcessing"):
        part |= {"add_prefix_space": chance(), "trim_offsets": chance(0.7)}
    if kind == "ByteLevel":
        part["use_regex"] = True
    elif kind in ("BertProcessing", "RobertaProcessing"):
        part |= {"sep": ["<x>", 1], "cls": ["<y>", 2]}
    elif kind == "TemplateProcessing":
        part = {"type": kind, "special_tokens": {"B": {"id": "B", "ids": [1, 2], "tokens": ["<x>", "<y>"]}}}
        special, a, b = ({name: {"id": i, "type_id": random.randint(0, 2)}} for name, i in
                         (("SpecialToken", "B"), ("Sequence", "A"), ("Sequence", "B")))
        part |= {"single": random.sample([special, a], 2), "pair": random.sample([special, a, b], 3)}
    elif kind == "Sequence":
        part = {"type": kind, "processors": [BYTE_LEVEL | {"add_prefix_space": chance()}, post_processor(1)]}
    return part


def bytes_chars():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return [chr(b) for b in keep] + [chr(256 + i) for i in range(len(rest))]


def model():
    chars = [c for c in dict.fromkeys("".join(PIECES) + "ĠĊĉÃ©xzwÂ") if chance(0.8)]
    kind = pick("BPE BPE BPE Unigram WordPiece WordLevel".split())
    hexes = [f"<0x{b:02X}>" for b in range(256)]
    if kind == "Unigram":
        pairs = [a + b for a in random.sample(chars, 12) for b in random.sample(chars, 6)]
        tokens = dict.fromkeys(["<unk>"] + chars + pairs + hexes * chance())
        vocab = [[t, round(random.uniform(-12, -1), 3)] for t in tokens]
        return {"type": kind, "unk_id": 0, "vocab": vocab, "byte_fallback": chance()}
    if kind != "BPE":
        more = ["##" + c for c in chars] + ["ab", "##bc", "##12"] if kind == "WordPiece" else ["ab", "abc", "  "]
        spec = {"type": kind, "unk_token": "[UNK]", "vocab": numbered(["[UNK]"] + chars + more)}
        if kind == "WordPiece":
            spec |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": pick([100, 6])}
        return spec
    return bpe(chars, hexes)


def numbered(tokens):
    return {t: i for i, t in enumerate(dict.fromkeys(tokens))}


def bpe(chars, hexes):
    prefix, suffix = pick([None, None, None, "##"]), pick([None, None, None, "</w>"])
    if chance(0.4):
        prefix = suffix = None
        chars = bytes_chars()[: 256 - chance(0.2)]
    units = [p + c + s for p in {"", prefix or ""} for c in chars for s in {"", suffix or ""}]
    tokens = dict.fromkeys(["<unk>"] + sorted(units) + (hexes if chance(0.4) else hexes[128:220] * chance(0.3)))
    known, merges = sorted(units), []
    for _ in range(pick([5, 40, 120])):
        a, b = pick(known if chance() else known[-30:]), pick(known)
        if suffix and a.endswith(suffix) or prefix and not b.startswith(prefix) or [a, b] in merges:
            continue
        merges.append([a, b])
        whole = a + b[len(prefix or ""):]
        if whole not in tokens:
            tokens[whole] = None
            known.append(whole)
    if chance(0.3) and not any(" " in a + b for a, b in merges):
        merges = [f"{a} {b}" for a, b in merges]
    return {
        "type": "BPE", "dropout": None, "unk_token": pick([None, "<unk>"]), "continuing_subword_prefix": prefix,
        "end_of_word_suffix": suffix, "fuse_unk": chance(), "byte_fallback": chance(), "ignore_merges": chance(0.3),
        "vocab": numbered(tokens), "merges": merges,
    }


def added_token(content):
    flags = {name: chance(0.3) for name in ("single_word", "lstrip", "rstrip", "normalized")}
    return {"id": 0, "content": content, "special": chance()} | flags


def ambiguous(tok, tokens):
    """Whether normalization makes two added tokens equal. The library then takes either, and not always the same."""
    names = [tok.normalizer.normalize_str(t["content"]) if t["normalized"] and tok.normalizer else t["content"] for t in tokens]
    return len(set(names)) < len(names)


def encode(run):
    try:
        e = run()
    except BaseException as err:  # the library panics on some of these
        return {"error": str(err)[:80]}
    return {"ids": e.ids, "tokens": e.tokens, "offsets": e.offsets, "type_ids": e.type_ids}


def case(tok):
    a, b = text(), text()
    ids = [random.randrange(tok.get_vocab_size() + 3) for _ in range(random.randint(0, 12))]
    c = {
        "text": a, "text2": b, "decode_ids": ids,
        "plain": encode(lambda: tok.encode(a, add_special_tokens=False)),
        "special": encode(lambda: tok.encode(a)), "pair": encode(lambda: tok.encode(a, b)),
    }
    tok.encode_special_tokens = True
    c["split"] = encode(lambda: tok.encode(a, add_special_tokens=False))
    tok.encode_special_tokens = False
    try:
        c["decode"], c["decode_skip"] = (tok.decode(ids, skip_special_tokens=skip) for skip in (False, True))
        stream = DecodeStream(skip_special_tokens=True)
        c["stream"] = [stream.step(tok, i) for i in ids]
    except BaseException as err:
        c["stream_error" if "decode" in c else "decode_error"] = str(err)[:80]
    return c


def main():
    seed, files, texts = [int(a) for a in sys.argv[1:]] + [7, 60, 8][len(sys.argv) - 1:]
    random.seed(seed)
    out = []
    while len(out) < files:
        contents = random.sample(["<x>", "<y>", "[Z]", "ab", "  ", "a", "é", "AB", "İ"], random.randint(0, 5))
        spec = {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [added_token(c) for c in contents],
            "normalizer": normalizer() if chance(0.6) else None, "pre_tokenizer": pre_tokenizer() if chance(0.75) else None,
            "post_processor": post_processor() if chance() else None, "decoder": decoder() if chance(0.8) else None,
            "model": model(),
        }
        tok = Tokenizer.from_str(json.dumps(spec))
        if ambiguous(tok, spec["added_tokens"]):
            continue
        out.append({"json": spec, "vocab_size": tok.get_vocab_size(), "cases": [case(tok) for _ in range(texts)]})
    with gzip.GzipFile(OUT, "wb", mtime=0) as f:
        f.write(json.dumps(out).encode())


if __name__ == "__main__":
    sys.exit(main())
