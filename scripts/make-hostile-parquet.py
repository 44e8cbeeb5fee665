#!/usr/bin/env python3
"""Writes small Parquet files whose numbers claim gigabytes: lists of metadata, pages, runs, counts and compressed blocks.

usage: make-hostile-parquet.py [OUT]      (train/data/testdata/parquet/hostile)
"""
import pathlib
import struct
import sys

INT32, INT64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12  # types of Thrift's compact protocol
BYTES, LONG = 6, 2  # types of Parquet
MOST = 2**31 - 1
OUT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "train/data/testdata/parquet/hostile")


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def integer(n):
    return varint(n << 1)


def struct_of(*fields):
    """A struct of (number, type, value)."""
    out, last = b"", 0
    for number, kind, value in fields:
        out += bytes([(number - last) << 4 | kind]) + value
        last = number
    return out + b"\0"


def list_of(kind, items, claimed=None):
    n = len(items) if claimed is None else claimed
    return (bytes([n << 4 | kind]) if n < 15 else bytes([0xf0 | kind]) + varint(n)) + b"".join(items)


def text(value):
    return varint(len(value)) + value.encode()


def footer(*fields):
    meta = struct_of((1, INT32, integer(1)), *fields)
    return meta + struct.pack("<I", len(meta)) + b"PAR1"


def page(body, values=1, encoding=0, uncompressed=None, compressed=None, dictionary=False):
    sizes = [(2, INT32, integer(uncompressed or len(body))), (3, INT32, integer(compressed or len(body)))]
    head = [(1, INT32, integer(values)), (2, INT32, integer(encoding))]
    if dictionary:
        return struct_of((1, INT32, integer(2)), *sizes, (7, STRUCT, struct_of(*head))) + body
    return struct_of((1, INT32, integer(0)), *sizes, (5, STRUCT, struct_of(*head, (3, INT32, integer(3)), (4, INT32, integer(3))))) + body


def file(name, *pages, codec=0, values=1, kind=BYTES):
    """A file with a column named text, an optional one. The first of two pages is its dictionary."""
    body = b"".join(pages)
    begin = 4 + (len(pages[0]) if len(pages) > 1 else 0)
    column = [(1, INT32, integer(kind)), (2, LIST, list_of(INT32, [integer(0)])), (3, LIST, list_of(BINARY, [text("text")])), (4, INT32, integer(codec)),
              (5, INT64, integer(values)), (6, INT64, integer(len(body))), (7, INT64, integer(len(body))), (9, INT64, integer(begin))]
    if len(pages) > 1:
        column.append((11, INT64, integer(4)))
    chunk = struct_of((2, INT64, integer(begin)), (3, STRUCT, struct_of(*column)))
    group = struct_of((1, LIST, list_of(STRUCT, [chunk])), (2, INT64, integer(len(body))), (3, INT64, integer(values)))
    root = struct_of((4, BINARY, text("schema")), (5, INT32, integer(1)))
    leaf = struct_of((1, INT32, integer(kind)), (3, INT32, integer(1)), (4, BINARY, text("text")), *([(6, INT32, integer(0))] if kind == BYTES else []))
    write(name, body + footer((2, LIST, list_of(STRUCT, [root, leaf])), (3, INT64, integer(values)), (4, LIST, list_of(STRUCT, [group]))))


def write(name, data):
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.parquet").write_bytes(b"PAR1" + data)


def run(n):
    return varint(n << 1) + b"\1"


def levels(runs):
    return struct.pack("<I", len(runs)) + runs


def zstd_bomb(blocks):
    """Blocks of 128 KiB, each of one repeated byte."""
    return b"\x28\xb5\x2f\xfd\0\x58" + b"".join(struct.pack("<I", (i == blocks - 1) | 1 << 1 | (128 << 10) << 3)[:3] + b"\0" for i in range(blocks))


hi, one = struct.pack("<I", 2) + b"hi", levels(run(1))
write("footer-list", footer((2, LIST, list_of(STRUCT, [], MOST))))
file("page-size", page(one + hi, uncompressed=MOST, compressed=MOST))
file("uncompressed-size", page(one + hi, uncompressed=MOST), codec=2)
file("level-runs", page(levels(run(MOST) * 8) + hi))
file("index-run", page(hi, dictionary=True), page(one + b"\1" + varint(MOST << 1) + b"\0", encoding=8))
file("delta-integers", page(one + varint(128) + varint(4) + varint(MOST) + integer(1), encoding=5), kind=LONG)
file("delta-block", page(one + varint(2**32 - 128) + varint((2**32 - 128) // 32) + varint(100) + integer(0) * 2, values=100, encoding=5), values=100, kind=LONG)
file("dictionary-count", page(hi, MOST, dictionary=True), page(one + b"\1" + varint(2) + b"\0", encoding=8))
many, lengths = levels(run(MOST)), varint(128) + varint(4) + varint(MOST) + integer(0)
file("delta-bytes", page(many + lengths * 2, MOST, encoding=7), values=MOST)
file("delta-lengths", page(many + lengths, MOST, encoding=6), values=MOST)
file("snappy-size", page(varint(2**32 - 1) + b"\0a", uncompressed=100), codec=1)
file("zstd-bomb", page(zstd_bomb(4096), uncompressed=100), codec=6)
