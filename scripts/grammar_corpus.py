#!/usr/bin/env python3
"""Makes JSON schemas with valid and invalid documents, judged by Python's jsonschema.

    grammar_corpus.py [--count 3000] [--seed 1] > corpus.jsonl

Each line has "name", "schema", "valid" (compact, properties in the order of the schema: a grammar
must accept them), and "invalid" (a grammar must reject them). Needs jsonschema 4.26 with its format
checkers. scripts/grammarbench and scripts/grammar_llguidance.py read the corpus.
"""
import argparse
import json
import random
import string
import sys

import jsonschema

FORMATS = {
    "date": lambda r: "%04d-%02d-%02d" % (r.randint(1900, 2100), r.randint(1, 12), r.randint(1, 28)),
    "date-time": lambda r: "%04d-%02d-%02dT%02d:%02d:%02dZ" % (r.randint(1900, 2100), r.randint(1, 12), r.randint(1, 28), r.randint(0, 23), r.randint(0, 59), r.randint(0, 59)),
    "time": lambda r: "%02d:%02d:%02d+01:00" % (r.randint(0, 23), r.randint(0, 59), r.randint(0, 59)),
    "uuid": lambda r: "-".join("".join(r.choice("0123456789abcdef") for _ in range(n)) for n in (8, 4, 4, 4, 12)),
    "ipv4": lambda r: ".".join(str(r.randint(0, 255)) for _ in range(4)),
    "ipv6": lambda r: ":".join("%x" % r.randint(0, 65535) for _ in range(8)),
    "email": lambda r: word(r) + "@" + word(r) + ".org",
    "hostname": lambda r: word(r) + ".example",
    "uri": lambda r: "https://" + word(r) + ".org/" + word(r) + "?q=" + word(r),
}
PATTERNS = [
    ("^[A-Z]{2}-[0-9]{3}$", lambda r: "".join(r.choice(string.ascii_uppercase) for _ in range(2)) + "-%03d" % r.randint(0, 999)),
    ("^(cat|dog)s?$", lambda r: r.choice(["cat", "cats", "dog", "dogs"])),
    ("^[a-z][a-z0-9_]*$", lambda r: word(r) + "_" + str(r.randint(0, 99))),
    ("^\\d{4}\\s\\w+[.!?]?$", lambda r: "%04d %s!" % (r.randint(0, 9999), word(r))),
    ("b+", lambda r: "a" + "b" * r.randint(1, 3) + word(r)),
    ("^#[0-9a-fA-F]{6}$", lambda r: "#%06x" % r.randint(0, 0xFFFFFF)),
    ("^[^\\s@]+@[^\\s@]+$", lambda r: word(r) + "@" + word(r)),
    ("^v\\d+(\\.\\d+){0,2}$", lambda r: "v%d.%d" % (r.randint(0, 20), r.randint(0, 99))),
]
WORDS = "alpha beta gamma delta city name street price count total kind status owner title note size color user order item code".split()


def word(r):
    return r.choice(WORDS)


def text(r, least=0, most=24):
    n = r.randint(least, max(least, min(most, least + 20)))
    alphabet = string.ascii_letters + string.digits + "      .,-:;!?'\"\\/\n\täößé世界🙂"
    return "".join(r.choice(alphabet) for _ in range(n))


class Maker:
    """Makes a schema and a function that makes valid values of it."""

    def __init__(self, r):
        self.r, self.defs, self.named = r, {}, 0

    def any(self, depth):
        r = self.r
        leaf = [self.string, self.string, self.integer, self.number, self.boolean, self.enum, self.const, self.format, self.pattern, self.nullable]
        deep = [self.object, self.object, self.object, self.array, self.array, self.tuple, self.anyof, self.oneof, self.allof, self.map, self.ref, self.conditional]
        return r.choice(leaf + deep if depth > 0 else leaf)(depth)

    def string(self, _):
        r, s = self.r, {"type": "string"}
        least, most = 0, 24
        if r.random() < 0.3:
            least = s["minLength"] = r.randint(0, 8)
        if r.random() < 0.4:
            most = s["maxLength"] = r.randint(max(least, 1), 200)
        if r.random() < 0.2:
            s["description"] = text(r)
        return s, lambda: text(r, least, most)

    def integer(self, _):
        r, s = self.r, {"type": "integer"}
        low, high = -10**6, 10**6
        if r.random() < 0.5:
            low = r.randint(-1000, 1000)
            s[r.choice(["minimum", "minimum", "exclusiveMinimum"])] = low
            low += "exclusiveMinimum" in s
        if r.random() < 0.5:
            high = low + r.randint(5, 5000)
            s["maximum"] = high
        if r.random() < 0.15:
            m = s["multipleOf"] = r.choice([2, 5, 10, 25])
            if high - low < m:
                del s["multipleOf"]
            else:
                return s, lambda: (-(-low // m) + r.randint(0, max(0, (high - (-(-low // m) * m)) // m))) * m
        return s, lambda: r.randint(low, min(high, low + 10**4))

    def number(self, _):
        r, s = self.r, {"type": "number"}
        low, high = -1e6, 1e6
        if r.random() < 0.4:
            low = s["minimum"] = r.choice([0, 0.5, -10, 1.25])
        if r.random() < 0.4:
            high = s["maximum"] = low + r.choice([1, 10, 99.5, 1000]) if low > -1e6 else 100
        return s, lambda: round(r.uniform(low, min(high, low + 1e4)), 2) if high - low > 0.1 else low

    def boolean(self, _):
        return {"type": "boolean"}, lambda: self.r.random() < 0.5

    def enum(self, _):
        r = self.r
        values = r.choice([
            ["red", "green", "blue"], ["a", "ab", "abc"], [1, 2, 3], [None, "x", 5, True], ["sm", "md", "lg", "xl"],
            [word(r) + str(i) for i in range(r.randint(1, 60))],
        ])
        s = {"enum": values}
        if all(isinstance(v, str) for v in values) and r.random() < 0.5:
            s["type"] = "string"
        return s, lambda: r.choice(values)

    def const(self, _):
        value = self.r.choice(["fixed", 7, True, None, {"a": [1, None]}, "q\"uote"])
        return {"const": value}, lambda: value

    def format(self, _):
        name = self.r.choice(list(FORMATS))
        return {"type": "string", "format": name}, lambda: FORMATS[name](self.r)

    def pattern(self, _):
        pattern, make = self.r.choice(PATTERNS)
        return {"type": "string", "pattern": pattern}, lambda: make(self.r)

    def nullable(self, depth):
        s, make = self.r.choice([self.string, self.integer, self.boolean])(depth)
        return {**s, "type": [s["type"], "null"]}, lambda: self.r.choice([None, make()])

    def object(self, depth):
        r = self.r
        names = r.sample(WORDS, r.randint(1, 6))
        props = {n: self.any(depth - 1) for n in names}
        required = [n for n in names if r.random() < 0.6]
        s = {"type": "object", "properties": {n: p[0] for n, p in props.items()}, "required": required}
        extra = r.random()
        if extra < 0.6:
            s["additionalProperties"] = False
        elif extra < 0.7:
            s["additionalProperties"] = {"type": "integer"}
        if r.random() < 0.08 and s.get("additionalProperties") is False:
            s["minProperties"] = max(1, len(required))
        if r.random() < 0.08:
            s["maxProperties"] = len(names) + 1

        def make():
            o = {n: p[1]() for n, p in props.items() if n in required or r.random() < 0.5}
            if not o and s.get("minProperties"):
                n = names[0]
                o[n] = props[n][1]()
            if s.get("additionalProperties") is not False and r.random() < 0.3 and len(o) < s.get("maxProperties", 99):
                o["extra_" + word(r)] = r.randint(0, 9)
            return o
        return s, make

    def map(self, depth):
        item, make = self.any(min(depth - 1, 1))
        if self.r.random() < 0.4:
            s = {"type": "object", "patternProperties": {"^x_": item}, "additionalProperties": False}
            return s, lambda: {"x_" + word(self.r): make() for _ in range(self.r.randint(0, 3))}
        return {"type": "object", "additionalProperties": item}, lambda: {word(self.r) + "!": make() for _ in range(self.r.randint(0, 3))}

    def array(self, depth):
        r = self.r
        item, make = self.any(depth - 1)
        s, low, high = {"type": "array", "items": item}, 0, 4
        if r.random() < 0.5:
            low = s["minItems"] = r.randint(0, 3)
        if r.random() < 0.5:
            high = s["maxItems"] = low + r.randint(0, 8)
        return s, lambda: [make() for _ in range(r.randint(low, max(low, min(high, low + 4))))]

    def tuple(self, depth):
        items = [self.any(min(depth - 1, 1)) for _ in range(self.r.randint(1, 3))]
        s = {"type": "array", "prefixItems": [i[0] for i in items], "items": False, "minItems": len(items)}
        return s, lambda: [i[1]() for i in items]

    def anyof(self, depth):
        parts = [self.any(depth - 1) for _ in range(self.r.randint(2, 4))]
        return {"anyOf": [p[0] for p in parts]}, lambda: self.r.choice(parts)[1]()

    def oneof(self, depth):
        parts = []
        for kind in ["circle", "square", "line"][: self.r.randint(2, 3)]:
            s, make = self.object(depth - 1)
            s = {**s, "properties": {"kind": {"const": kind}, **{k: v for k, v in s["properties"].items() if k != "kind"}}}
            s["required"] = ["kind"] + [n for n in s["required"] if n != "kind"]
            if "maxProperties" in s:
                s["maxProperties"] += 1
            parts.append((s, kind, make))

        def value():
            _, kind, make = self.r.choice(parts)
            return {"kind": kind, **{k: v for k, v in make().items() if k != "kind"}}
        return {"oneOf": [p[0] for p in parts]}, value

    def allof(self, depth):
        names = self.r.sample(WORDS, 4)
        a, b = self.any(min(depth - 1, 1)), self.any(min(depth - 1, 1))
        s = {"allOf": [
            {"type": "object", "properties": {names[0]: a[0]}, "required": [names[0]]},
            {"type": "object", "properties": {names[1]: b[0]}, "required": [names[1]]},
        ]}
        return s, lambda: {names[0]: a[1](), names[1]: b[1]()}

    def conditional(self, depth):
        s = {"type": "object", "properties": {"mode": {"enum": ["on", "off"]}, "level": {"type": "integer"}}, "required": ["mode"],
             "if": {"properties": {"mode": {"const": "on"}}}, "then": {"required": ["level"]}, "additionalProperties": False}
        return s, lambda: self.r.choice([{"mode": "on", "level": self.r.randint(0, 99)}, {"mode": "off"}])

    def ref(self, depth):
        self.named += 1
        name = "d%d" % self.named
        if self.r.random() < 0.3:
            self.defs[name] = {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/" + name}}},
                               "required": ["v", "kids"], "additionalProperties": False}

            def tree(left=2):
                return {"v": self.r.randint(-9, 9), "kids": [tree(left - 1) for _ in range(self.r.randint(0, left))] if left else []}
            return {"$ref": "#/$defs/" + name}, tree
        s, make = self.object(depth - 1)
        self.defs[name] = s
        return {"$ref": "#/$defs/" + name}, make


def mutate(r, value):
    """Returns a value near value, which is mostly invalid."""
    if isinstance(value, dict) and value and r.random() < 0.7:
        out, key = dict(value), r.choice(list(value))
        kind = r.random()
        if kind < 0.3:
            del out[key]
        elif kind < 0.5:
            out["zz_" + word(r)] = r.choice([1, "x", None, [], {}])
        else:
            out[key] = mutate(r, out[key])
        return out
    if isinstance(value, list) and value and r.random() < 0.7:
        out, i = list(value), r.randrange(len(value))
        kind = r.random()
        if kind < 0.3:
            del out[i]
        elif kind < 0.5:
            out += [out[i]] * r.choice([1, 9])
        else:
            out[i] = mutate(r, out[i])
        return out
    if isinstance(value, str) and r.random() < 0.6:
        return r.choice([value + "x", value[:-1], value * 20, "", value.upper(), " " + value])
    if isinstance(value, (int, float)) and not isinstance(value, bool) and r.random() < 0.6:
        return r.choice([value + 10**7, -value - 10**7, value + 0.5, value + 1, value - 1, str(value)])
    return r.choice([None, True, 0, -1, 3.5, "", "x", [], {}, [value], {"a": value}])


def broken(r, text):
    """Returns a text near a document that is not JSON, or not this document."""
    i = r.randrange(len(text)) if text else 0
    return r.choice([text[:-1], text + "x", text + ",", "'" + text + "'", text[:i] + "\x01" + text[i:], text.replace("\"", "'"), "```json\n" + text + "\n```"])


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def is_json(text):
    try:
        json.loads(text, parse_constant=lambda _: 1 / 0)
        return True
    except Exception:
        return False


def case(number, r):
    m = Maker(r)
    schema, make = (m.object if r.random() < 0.7 else m.any)(r.randint(1, 4))
    if m.defs:
        schema = {"$defs": m.defs, **schema}
    judge = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    valid, invalid = [], []
    for _ in range(6):
        value = make()
        if judge.is_valid(value):
            valid.append(dump(value))
        for _ in range(6):
            near = mutate(r, value)
            if not judge.is_valid(near):
                invalid.append(dump(near))
    for t in list(valid):
        b = broken(r, t)
        if not is_json(b):
            invalid.append(b)
    return {"name": "s%05d" % number, "schema": schema, "valid": sorted(set(valid)), "invalid": sorted(set(invalid))}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--count", type=int, default=3000)
    p.add_argument("--seed", type=int, default=1)
    o = p.parse_args()
    for i in range(o.count):
        c = case(i, random.Random(o.seed * 1_000_003 + i))
        if c["valid"]:
            print(json.dumps(c))
    print("done", file=sys.stderr)


if __name__ == "__main__":
    main()
