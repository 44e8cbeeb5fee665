"""Writes internal/tokenizer/unicode.txt: the sets of characters that the reference
library's parts go by.

Each of its parts carries the Unicode tables of another year (the regular expressions
those of Unicode 16, punctuation those of Unicode 9), and Go those of its own. The sets
are read off the library's behaviour, one character after the other.

    pip install tokenizers
    python scripts/tokenizer_unicode.py > internal/tokenizer/unicode.txt
"""

import sys

from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
SCRIPTS = "Han Hiragana Katakana Hangul Latin Greek Cyrillic Arabic Hebrew Thai Devanagari".split()
TEXT = "".join(map(chr, CODE_POINTS))


def matches(pattern):
    """The characters that match a pattern for one character."""
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return [CODE_POINTS[start] for _, (start, _) in split.pre_tokenize_str(TEXT)]


def splits(part):
    """The characters that a pre-tokenizer parts from the letters around them."""
    return [c for c in CODE_POINTS if len(part.pre_tokenize_str("a" + chr(c) + "a")) > 1]


def ranges(code_points):
    out = []
    for c in code_points:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return " ".join(f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in out)


def removed(normalizer):
    return [c for c in CODE_POINTS if normalizer.normalize_str(chr(c)) == ""]


def lowercase():
    """Pairs of a character and its lower case, runs of equal distance together."""
    norm, runs = normalizers.Lowercase(), []
    for c in CODE_POINTS:
        low = norm.normalize_str(chr(c))
        if low == chr(c) or len(low) > 1:
            continue
        shift = ord(low) - c
        if runs and runs[-1][2] == shift and c - runs[-1][1] in (1, 2) and runs[-1][3] in (0, c - runs[-1][1]):
            runs[-1][1], runs[-1][3] = c, c - runs[-1][1]
        else:
            runs.append([c, c, shift, 0])
    return " ".join(f"{a:X}-{b:X}/{step or 1}{shift:+d}" for a, b, shift, step in runs)


def scripts():
    """Runs of characters with the number of their script, which UnicodeScripts parts from others. Those without are left out."""
    part, first, runs = pre_tokenizers.UnicodeScripts(), [], []
    known = [c for c in CODE_POINTS if part.pre_tokenize_str(chr(c))]
    for piece, _ in part.pre_tokenize_str("".join(map(chr, known))):
        same = (i for i, c in enumerate(first) if len(part.pre_tokenize_str(c + piece[0])) == 1)
        number = next(same, len(first))
        if number == len(first):
            first.append(piece[0])
        for c in map(ord, piece):
            if runs and runs[-1][1] == c - 1 and runs[-1][2] == number:
                runs[-1][1] = c
            else:
                runs.append([c, c, number])
    return " ".join(f"{a:X}-{b:X}/{number}" for a, b, number in runs)


def changed(normalizer):
    return [c for c in CODE_POINTS if normalizer.normalize_str(chr(c)) != chr(c)]


def main():
    print("# Written by scripts/tokenizer_unicode.py.")
    print("# Sets of the regular expressions: general categories, what brackets add to them, scripts.")
    sets = {name: set(matches("\\p{" + name + "}")) for name in CATEGORIES + SCRIPTS}
    for name in CATEGORIES + SCRIPTS:
        print(f"{name}: {ranges(sorted(sets[name]))}")
    for name, bracket, without in (
        ("other-alpha", "alpha", "Lu Ll Lt Lm Lo Nl"), ("other-upper", "upper", "Lu"), ("other-lower", "lower", "Ll"),
    ):
        known = set().union(*(sets[c] for c in without.split()))
        print(f"{name}: {ranges(c for c in matches(f'[[:{bracket}:]]') if c not in known)}")
    print("# Sets of the other parts.")
    print("token-punct:", ranges(splits(pre_tokenizers.Punctuation())))
    print("token-number:", ranges(splits(pre_tokenizers.Digits())))
    print("token-mark:", ranges(removed(normalizers.StripAccents())))
    bert = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    print("token-nonspacing:", ranges(removed(normalizers.BertNormalizer(**bert | {"strip_accents": True}))))
    print("token-control:", ranges(removed(normalizers.BertNormalizer(**bert | {"clean_text": True}))))
    print("token-decomposed:", ranges(changed(normalizers.NFKD())))
    print("token-scripts:", scripts())
    print("token-lowercase:", lowercase())


if __name__ == "__main__":
    sys.exit(main())
