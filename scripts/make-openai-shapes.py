#!/usr/bin/env python3
"""Makes testdata/golden/text/openai/shapes_*.json.gz: the fields that the official OpenAI
client's types of answers have, which of them are required and which may be null.

    python3 scripts/make-openai-shapes.py

needs the package openai.
"""

import gzip
import json
import pathlib
import types
import typing

import openai
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.shared import ErrorObject
from pydantic import BaseModel

OUT = pathlib.Path(__file__).resolve().parent.parent / "testdata/golden/text/openai"
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}


def name(cls):
    return cls.__module__.rsplit(".", 1)[-1] + "." + cls.__name__


def shape(t, todo):
    """The type t as the fixtures write it, and whether it may be null."""
    origin, args = typing.get_origin(t), typing.get_args(t)
    if origin is typing.Annotated:
        return shape(args[0], todo)
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in args if a is not type(None)]
        inner = [shape(a, todo)[0] for a in rest]
        return inner[0] if len(inner) == 1 else {"anyOf": inner}, len(rest) < len(args)
    if origin is typing.Literal:
        return {"enum": list(args)}, False
    if origin is list:
        return {"array": shape(args[0], todo)[0]}, False
    if origin is dict:
        return {"map": shape(args[1], todo)[0]}, False
    if isinstance(t, type) and issubclass(t, BaseModel):
        todo.append(t)
        return {"ref": name(t)}, False
    return PLAIN.get(t, "any"), False


def shapes(roots):
    todo, objects = list(roots), {}
    while todo:
        cls = todo.pop(0)
        if name(cls) in objects:
            continue
        fields = objects[name(cls)] = {}
        for key, field in cls.model_fields.items():
            kind, nullable = shape(field.annotation, todo)
            fields[field.alias or key] = {"type": kind, "required": field.is_required(), "nullable": nullable}
    return {"client": "openai " + openai.__version__, "roots": [name(r) for r in roots], "objects": objects}


OUT.mkdir(parents=True, exist_ok=True)
for file, roots in {"chat": [ChatCompletion, ChatCompletionChunk], "completions": [Completion], "models": [Model], "error": [ErrorObject]}.items():
    data = json.dumps(shapes(roots), indent=1).encode()
    (OUT / f"shapes_{file}.json.gz").write_bytes(gzip.compress(data, mtime=0))
    print(file, len(data), "bytes")
