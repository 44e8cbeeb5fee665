"""Compares answers of the server field by field with the types of the official Python clients.

usage: check_answer_types.py, with OPENAI_BASE_URL, OPENAI_API_KEY and HEFT_MODEL set, as check-tool-loop.sh sets them.
Needs the packages openai, anthropic and ollama. The clients themselves accept missing and unknown fields; this script
reports a required field that is missing, a field that the types do not have, and a value of another type.
"""
import inspect
import json
import os
import re
import sys
import typing
import urllib.error
import urllib.request

import anthropic.types as claude
import ollama
import openai.types as oai
import openai.types.chat as chat
import openai.types.responses as responses
from pydantic import BaseModel, ByteSize

# Differences that are meant: a pattern of findings each.
MEANT = re.compile("|".join((
    r"models?\.(data\[\]\.)?(max_model_len|status|root|parent): not in Model",  # as vLLM's and llama-server's
    r"(files|batches)\.(first_id|last_id|has_more): not in Page",  # the API's pages have them, the client's type is ours
    r"completion.*finish_reason: got None",  # of an unfinished choice, as OpenAI's server sends
    r"completion.* echo.*(token|top)_logprobs\[\]: got None",  # nothing precedes the first token, as in OpenAI's
    r"reasoning(_content)?: not in (ChatCompletionMessage|ChoiceDelta)",  # vLLM's
    r"(frequency_penalty|presence_penalty|store): not in Response$",  # of the Open Responses specification
    r"logprobs\[\]\.(top_logprobs\[\]\.)?bytes: not in",  # the events' types lack what the output item's have
    r"ping\.type: got 'ping'",  # the client drops such events before it looks at their type
    r"function_call_arguments\.done\.name: not in",  # in OpenAI's reference, and in some versions of the client
    r"ollama tags.*\.name: not in Model|ollama chat.*(function\.index|tool_calls\[\]\.id): not in",  # as in ollama's own answers
)))


def literal(t, value):
    return any(value == a and type(value) is type(a) for a in typing.get_args(t))


def model(t, value, at):
    if not isinstance(value, dict):
        return [f"{at}: got {value!r:.60}, want {t.__name__}"]
    found, known = [], set()
    for name, field in t.model_fields.items():
        key = field.alias or name
        known.add(key)
        if key in value:
            # A default of None means that the field may be absent, not that it may be null.
            found += walk(field.annotation, value[key], f"{at}.{key}")
        elif field.is_required():
            found.append(f"{at}.{key}: missing in {t.__name__}")
    found += [f"{at}.{key}: not in {t.__name__}" for key in value if key not in known]
    return found


def union(options, value, at):
    """The findings of the option that fits best: of the same kind (type, role), then with the fewest findings."""
    def kind(t):
        field = getattr(t, "model_fields", {}).get("type")
        return field is not None and isinstance(value, dict) and bool(walk(field.annotation, value.get("type"), ""))
    options = [t for t in options if (t is type(None)) == (value is None)] or options
    tried = [(kind(plain(t)), walk(t, value, at)) for t in options]
    return min(tried, key=lambda x: (x[0], len(x[1])))[1]


def plain(t):
    while typing.get_origin(t) is typing.Annotated:
        t = typing.get_args(t)[0]
    return t


def walk(t, value, at):
    t = getattr(t, "__value__", t)
    origin, args = typing.get_origin(t), typing.get_args(t)
    wrong = [f"{at}: got {value!r:.60}, want {t}"]
    if origin is typing.Annotated:
        return walk(args[0], value, at)
    if origin is typing.Literal:
        return [] if literal(t, value) else wrong
    if origin is typing.Union or type(t).__name__ == "UnionType":
        return union(args, value, at)
    if origin in (list, typing.Sequence, tuple) or getattr(origin, "__name__", "") == "Sequence":
        if not isinstance(value, list):
            return wrong
        return [f for v in value for f in walk(args[0], v, f"{at}[]")]
    if origin in (dict, typing.Mapping) or getattr(origin, "__name__", "") == "Mapping":
        return [] if isinstance(value, dict) else wrong
    if inspect.isclass(t) and issubclass(t, BaseModel):
        return model(t, value, at)
    if t in (typing.Any, object) or isinstance(t, typing.TypeVar):
        return []
    if t is type(None):
        return [] if value is None else wrong
    if t is float:
        return [] if isinstance(value, (int, float)) and not isinstance(value, bool) else wrong
    if t in (int, str, bool):
        return [] if type(value) is t else wrong
    if t is ByteSize:
        return [] if type(value) is int else wrong
    return [] if t in (dict, list) and isinstance(value, t) or "datetime" in str(t) else wrong


class Server:
    def __init__(self, base):
        self.base = base
        self.findings = []
        self.count = 0

    def raw(self, path, body=None, method=None, **headers):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]} | headers
        request = urllib.request.Request(self.base + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as r:
                return r.read().decode()
        except urllib.error.HTTPError as e:
            raise AssertionError(f"{path}: {e.code} {e.read()}") from None

    def check(self, what, t, value):
        self.count += 1
        self.findings += walk(t, value, what)
        return value

    def one(self, what, t, path, body=None, method=None, **headers):
        return self.check(what, t, json.loads(self.raw(path, body, method, **headers)))

    def stream(self, what, t, path, body, **headers):
        """Checks each event or line of a stream. t may be a function of the event."""
        lines = self.raw(path, body | {"stream": True}, **headers).splitlines()
        values = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith(("data: {", "{"))]
        assert values, f"{what}: no events in {lines}"
        for v in values:
            self.check(f"{what} {v.get('type', '')}".strip(), t, v)


HELLO = [{"role": "user", "content": "Say hello."}]
ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "Get the weather of a city.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]


def check_openai(s, name):
    s.one("models", oai_page(oai.Model), "/v1/models")
    s.one("model", oai.Model, f"/v1/models/{name}")
    logs = {"logprobs": True, "top_logprobs": 2}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    for what, more in {"": {}, " n=2": {"n": 2}, " logprobs": logs, " usage": {"stream_options": {"include_usage": True}}, " schema": {"response_format": form},
                       " tools": {"messages": ASK, "tools": TOOLS, "max_tokens": 100}}.items():
        body = {"model": name, "messages": HELLO, "max_tokens": 6} | more
        if "stream_options" not in more:
            s.one("chat" + what, chat.ChatCompletion, "/v1/chat/completions", body)
        s.stream("chat, stream" + what, chat.ChatCompletionChunk, "/v1/chat/completions", body)
    for what, more in {"": {}, " logprobs": {"logprobs": 2}, " echo": {"echo": True, "logprobs": 1}}.items():
        body = {"model": name, "prompt": "Once", "max_tokens": 4} | more
        s.one("completion" + what, oai.Completion, "/v1/completions", body)
        s.stream("completion, stream" + what, oai.Completion, "/v1/completions", body)
    s.one("embeddings", oai.CreateEmbeddingResponse, "/v1/embeddings", {"model": name, "input": ["a", "b"]})


def oai_page(t):
    """The page of a list, whose type the client builds itself."""
    class Page(BaseModel):
        object: typing.Literal["list"]
        data: typing.List[t]
    return Page


def check_responses(s, name):
    form = {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}}
    for what, more in {"": {}, " schema": form, " logprobs": {"include": ["message.output_text.logprobs"], "top_logprobs": 2}, " store": {"store": True},
                       " tools": {"input": ASK, "tools": [{"type": "function", "strict": False} | FUNCTION], "max_output_tokens": 100}}.items():
        body = {"model": name, "input": "Hi", "max_output_tokens": 16} | more
        s.one("response" + what, responses.Response, "/v1/responses", body)
        s.stream("response, stream" + what, responses.ResponseStreamEvent, "/v1/responses", body)
    kept = s.one("response", responses.Response, "/v1/responses", {"model": name, "input": "Hi", "max_output_tokens": 16, "store": True})["id"]
    s.one("response, kept", responses.Response, f"/v1/responses/{kept}")
    s.one("response items", responses.ResponseItemList, f"/v1/responses/{kept}/input_items")


def check_files(s, name):
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": name, "messages": HELLO, "max_tokens": 2}}
    parts = {'name="purpose"': b"batch", 'name="file"; filename="a.jsonl"': json.dumps(line).encode()}
    body = b"".join(b"--x\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n" % (k.encode(), v) for k, v in parts.items()) + b"--x--\r\n"
    file = s.one("file", oai.FileObject, "/v1/files", body, **{"Content-Type": "multipart/form-data; boundary=x"})
    s.one("files", oai_page(oai.FileObject), "/v1/files")
    s.one("file, retrieved", oai.FileObject, f"/v1/files/{file['id']}")
    batch = s.one("batch", oai.Batch, "/v1/batches", {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"})
    while batch["status"] not in ("completed", "failed"):
        batch = s.one("batch, retrieved", oai.Batch, f"/v1/batches/{batch['id']}")
    for line in s.raw(f"/v1/files/{batch['output_file_id']}/content").splitlines():
        s.check("batch line", chat.ChatCompletion, json.loads(line)["response"]["body"])
    s.one("batches", oai_page(oai.Batch), "/v1/batches")
    s.one("file, deleted", oai.FileDeleted, f"/v1/files/{file['id']}", method="DELETE")


def check_anthropic(s, name):
    version = {"anthropic-version": "2023-06-01"}
    body = {"model": name, "max_tokens": 6, "messages": HELLO}
    tool = {"name": FUNCTION["name"], "description": FUNCTION["description"], "input_schema": PARAMETERS}
    for what, more in {"": {}, " tools": {"messages": ASK, "tools": [tool], "max_tokens": 100}}.items():
        s.one("message" + what, claude.Message, "/v1/messages", body | more, **version)
        s.stream("message, stream" + what, claude.RawMessageStreamEvent, "/v1/messages", body | more, **version)
    s.one("count_tokens", claude.MessageTokensCount, "/v1/messages/count_tokens", {"model": name, "messages": HELLO}, **version)
    s.one("claude model", claude.ModelInfo, f"/v1/models/{name}", **version)


def check_ollama(s, name):
    body = {"model": name, "messages": HELLO, "options": {"num_predict": 4}}
    for what, more in {"": {}, " tools": {"messages": ASK, "tools": TOOLS, "options": {"num_predict": 100}}}.items():
        s.one("ollama chat" + what, ollama.ChatResponse, "/api/chat", body | more | {"stream": False})
        s.stream("ollama chat, stream" + what, ollama.ChatResponse, "/api/chat", body | more)
    body = {"model": name, "prompt": "Hi", "options": {"num_predict": 4}}
    s.one("ollama generate", ollama.GenerateResponse, "/api/generate", body | {"stream": False})
    s.stream("ollama generate, stream", ollama.GenerateResponse, "/api/generate", body)
    s.one("ollama tags", ollama.ListResponse, "/api/tags")
    s.one("ollama ps", ollama.ProcessResponse, "/api/ps")
    s.one("ollama show", ollama.ShowResponse, "/api/show", {"model": name})


def main():
    s, name = Server(os.environ["OPENAI_BASE_URL"].removesuffix("/v1")), os.environ["HEFT_MODEL"]
    for check in check_openai, check_responses, check_files, check_anthropic, check_ollama:
        check(s, name)
    findings = sorted({f for f in s.findings if not MEANT.search(f)})
    print("\n".join([*findings, f"types: {s.count} answers and events, {len(findings)} differ from the clients' types"]))
    sys.exit(1 if findings or s.count < 100 else 0)


if __name__ == "__main__":
    main()
