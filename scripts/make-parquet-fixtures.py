#!/usr/bin/env python3
"""Writes train/data/testdata/parquet: small Parquet files by pyarrow, as data sets have them, and beside each the
same records in JSON lines. Needs pyarrow. usage: make-parquet-fixtures.py
"""
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train", "data", "testdata", "parquet")


def without_nulls(v):
    if isinstance(v, dict):
        return {k: without_nulls(x) for k, x in v.items() if x is not None}
    if isinstance(v, list):
        return [without_nulls(x) for x in v]
    return v


def write(name, rows, schema=None, kept=None, **options):
    table = pa.Table.from_pylist(rows, schema=schema)
    pq.write_table(table, os.path.join(OUT, name + ".parquet"), **options)
    with open(os.path.join(OUT, name + ".jsonl"), "w") as f:
        for row in rows:
            f.write(json.dumps(without_nulls({k: v for k, v in row.items() if kept is None or k in kept}), ensure_ascii=False, separators=(",", ":")) + "\n")


os.makedirs(OUT, exist_ok=True)
message = pa.struct([("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(pa.struct([("name", pa.string()), ("arguments", pa.map_(pa.string(), pa.int64()))])))])


def chat(i):
    rows = [dict(role="user", content=f"question {i} ü"), dict(role="assistant", content=f"answer {i}")]
    if i % 3 == 1:
        rows[1] = dict(role="assistant", content="", tool_calls=[dict(name="f", arguments={"x": i, "y": -1}), dict(name="g", arguments={})])
    if i % 4 == 2:
        rows += [dict(role="user", content="more\n\"quoted\""), dict(role="assistant", content="end")]
    return dict(messages=rows, id=i, score=i / 8, image=bytes([255, 0, i]) if i % 2 else None)


schema = pa.schema([("messages", pa.list_(message)), ("id", pa.int32()), ("score", pa.float32()), ("image", pa.binary())])
write("chat", [chat(i) for i in range(23)], schema, kept=("messages",), row_group_size=7, compression="zstd", data_page_size=200)
write("text", [dict(text=f"text number {i} " + "word " * (i % 5)) for i in range(40)], row_group_size=16, compression="snappy", data_page_size=64)
write("prompts", [dict(prompt=f"prompt {i % 3}", completion=None if i == 99 else f"completion {i}", year=2000 + i) for i in range(30)],
      kept=("prompt", "completion"), compression="gzip", data_page_version="2.0", use_dictionary=["prompt"])
write("alpaca", [dict(instruction=f"do {i}", input="" if i % 2 else f"with {i}", output=f"done {i}") for i in range(9)], kept=("instruction", "input", "output"),
      compression="none", use_dictionary=False, column_encoding={"instruction": "DELTA_BYTE_ARRAY", "input": "DELTA_LENGTH_BYTE_ARRAY", "output": "PLAIN"})
write("pairs", [dict(prompt=f"p {i}", chosen=f"good {i}", rejected=f"bad {i}", margin=i / 4, source="x") for i in range(5)],
      kept=("prompt", "chosen", "rejected", "margin"), compression="snappy")
write("groups", [dict(prompt=f"p {i}", completions=["a", "b", "c"][: i + 1], rewards=[0.5, None, -1.0][: i + 1], answer=i) for i in range(3)], compression="zstd")
write("shared", [dict(conversations=[{"from": "human", "value": f"q {i}"}, {"from": "gpt", "value": f"a {i}"}], system="be brief" if i else None) for i in range(4)])
pq.write_table(pa.table({"text": pa.array([1, 2, 3])}), os.path.join(OUT, "numbers.parquet"), row_group_size=2)
pq.write_table(pa.table({"text": pa.array([b"fine", b"\xff\xfe"])}), os.path.join(OUT, "bytes.parquet"))
pq.write_table(pa.table({"other": pa.array(["a"])}), os.path.join(OUT, "other.parquet"))
