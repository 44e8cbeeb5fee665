#!/usr/bin/env python3
"""Measures llguidance on a corpus of grammar_corpus.py, in one thread.

    grammar_llguidance.py TOKENIZER.json CORPUS.jsonl

scripts/grammarbench measures Heft on the same corpus. Needs llguidance 1.9.1 and tokenizers 0.23.3.
"""
import json
import sys
import time

import llguidance
import llguidance.numpy
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer


def main():
    tokenizer_path, corpus = sys.argv[1:3]
    hf = Tokenizer.from_file(tokenizer_path)
    eos = hf.token_to_id("<|eot_id|>") or hf.token_to_id("</s>")
    tok = LLTokenizer(open(tokenizer_path).read(), eos_token=eos)
    mask = llguidance.numpy.allocate_token_bitmask(1, tok.vocab_size)
    first, masks = [], []
    compiled = failed = accepted_invalid = rejected_valid = invalid = valid = 0
    reasons = {}
    for line in open(corpus):
        case = json.loads(line)
        begin = time.thread_time()
        m = LLMatcher(tok, LLMatcher.grammar_from_json_schema(json.dumps(case["schema"])))
        if m.is_error():
            failed += 1
            why = m.get_error().split("\n")[0][:60]
            reasons[why] = reasons.get(why, 0) + 1
            continue
        llguidance.numpy.fill_next_token_bitmask(m, mask, 0)
        first.append(time.thread_time() - begin)
        compiled += 1
        for doc in case["valid"]:
            valid += 1
            m.reset()
            ok = True
            for t in hf.encode(doc, add_special_tokens=False).ids:
                begin = time.thread_time()
                llguidance.numpy.fill_next_token_bitmask(m, mask, 0)
                masks.append(time.thread_time() - begin)
                if not mask[0, t >> 5] >> (t & 31) & 1 or not m.consume_token(t):
                    ok = False
                    break
            rejected_valid += not (ok and m.is_accepting())
        for doc in case["invalid"]:
            invalid += 1
            m.reset()
            if all(m.try_consume_tokens([t]) == 1 for t in hf.encode(doc, add_special_tokens=False).ids) and m.is_accepting():
                accepted_invalid += 1
    first.sort()
    masks.sort()
    us = lambda v: "%.1f" % (1e6 * v)
    print("llguidance", "schemas compiled", compiled, "failed", failed)
    print("valid", valid, "rejected", rejected_valid, "invalid", invalid, "accepted", accepted_invalid)
    print("first mask us: mean", us(sum(first) / len(first)), "p50", us(first[len(first) // 2]), "p99", us(first[len(first) * 99 // 100]), "max", us(first[-1]))
    print("mask us: count", len(masks), "mean", us(sum(masks) / len(masks)), "p50", us(masks[len(masks) // 2]), "p99", us(masks[len(masks) * 99 // 100]), "max", us(masks[-1]))
    for why, n in sorted(reasons.items(), key=lambda x: -x[1])[:10]:
        print("  ", n, why)


if __name__ == "__main__":
    main()
