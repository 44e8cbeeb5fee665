#!/usr/bin/env python3
"""Makes the chat-template fixtures that lie in this repository.

    python3 scripts/make-template-fixtures.py

needs transformers and jinja2. It renders

- testdata/golden/text/templates/files/*.jinja, templates written for these tests,
  over the conversations below, with transformers' apply_chat_template, into
  testdata/golden/text/templates/cases/*.json.gz;
- internal/chat/jinja/testdata/expressions.txt, one small template a line, with the
  same environment, into expressions.json.gz beside it.
"""

import datetime
import gzip
import io
import json
import pathlib

import jinja2
import transformers
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOW = datetime.datetime(2025, 3, 14, 15, 9, 26)


class FrozenTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = FrozenTime

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather <now> & later, in \"short\" words.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where? Zürich, 東京, …"},
                "days": {"type": ["integer", "null"], "default": 3},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "at": {"type": "array", "items": {"type": "object", "properties": {"lat": {"type": "number"}, "ok": {"type": "boolean"}}, "required": ["lat"]}},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}


def system(text="Be brief."):
    return {"role": "system", "content": text}


def user(text="What's up?"):
    return {"role": "user", "content": text}


def assistant(text="Not much.", **more):
    return {"role": "assistant", "content": text, **more}


def call(arguments, name="get_weather", id="abcdef123"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, id="abcdef123"):
    return {"role": "tool", "tool_call_id": id, "name": "get_weather", "content": content}


PARTS = [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": " what is it?"}]
GEN = {"add_generation_prompt": True}

CONVERSATIONS = [
    ("user", [user()], None, GEN),
    ("user_plain", [user()], None, {}),
    ("system_user", [system(), user()], None, GEN),
    ("system_only", [system()], None, GEN),
    ("turns", [system("  padded  "), user(" Hi \n"), assistant(" Hello \n"), user("Bye")], None, GEN),
    ("assistant_first", [assistant(), user()], None, GEN),
    ("two_users", [user("one"), user("two")], None, GEN),
    ("unicode", [user("Grüße, 世界! 😀 <b>\"q\"</b> it's\n\nline two\ttab\u2028sep")], None, GEN),
    ("empty_text", [user("")], None, GEN),
    ("null_content", [user(), {"role": "assistant", "content": None, "tool_calls": None}, user("Again?")], None, GEN),
    ("parts", [user(PARTS)], None, GEN),
    ("system_parts", [{"role": "system", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]}, user()], None, GEN),
    ("tools", [user("Weather?")], [WEATHER, CLOCK], GEN),
    ("tools_system", [system(), user("Weather?")], [WEATHER], GEN),
    ("tools_empty", [user()], [], GEN),
    ("call", [user("Weather?"), assistant(None, tool_calls=[call({"city": "Zürich", "days": 2, "x": [1.0, None, True]})]), result("sunny"), assistant("Sunny."), user("Thanks")], [WEATHER], GEN),
    ("call_text", [user("Weather?"), assistant("", tool_calls=[call('{"city": "Oslo"}')]), result("rain")], [WEATHER], GEN),
    ("calls", [user("Both?"), assistant("Let me see.", tool_calls=[call({"city": "A"}), call({}, "clock", "zyxwvu987")]), result("dry"), result({"time": "12:00", "content": 5}, "zyxwvu987")], [WEATHER, CLOCK], GEN),
    ("call_bad_id", [user("Weather?"), assistant(None, tool_calls=[call({"city": "A"}, id="short")]), result("dry", "short")], [WEATHER], GEN),
    ("result_object", [user("?"), assistant(None, tool_calls=[call({"city": "A"})]), result({"t": 21.5, "ok": True})], None, GEN),
    ("reasoning", [user("2+2?"), assistant("4", reasoning_content="Two and two."), user("3+3?"), assistant("6", reasoning="Three\nand three.")], None, {}),
    ("thinking_field", [user("2+2?"), assistant("4", thinking="Hm.")], None, {}),
    ("think_tags", [user("2+2?"), assistant("<think>\nHm.\n</think>\n\n4")], None, {}),
    ("no_thinking", [user()], None, {**GEN, "enable_thinking": False}),
    ("effort", [user()], None, {**GEN, "reasoning_effort": "high", "thinking": True}),
    ("documents", [user("Fjords?")], None, {**GEN, "documents": [{"title": "Fjords", "text": "Deep & <narrow>."}, {"title": "Moors", "text": "Wide."}]}),
    ("kwargs", [user()], [CLOCK], {**GEN, "date_string": "02 Feb 2024", "custom_tools": [WEATHER]}),
    ("odd_role", [user(), {"role": "critic", "content": "Boo."}], None, GEN),
    ("continue", [user("Count."), assistant("One, two, ")], None, {"continue_final_message": True}),
    ("continue_tight", [user("Count."), assistant("One, two,")], None, {"continue_final_message": True}),
    ("continue_reasoning", [user("2+2?"), assistant("", reasoning_content="Well, ")], None, {"continue_final_message": "reasoning_content"}),
    ("continue_parts", [assistant("x"), user([{"type": "text", "text": "Go "}])], None, {"continue_final_message": True}),
    ("continue_missing", [user("Count."), assistant(None)], None, {"continue_final_message": True}),
    ("continue_and_generate", [user("Count."), assistant("One")], None, {**GEN, "continue_final_message": True}),
    ("nothing", [], None, GEN),
]

SPECIAL = {
    "heads-with-tools": {"bos_token": "<|begin|>", "eos_token": "<|end|>"},
    "frames-thinking": {"eos_token": "<|close|>"},
    "strict-turns": {"bos_token": "<s>", "eos_token": "</s>"},
    "macros-schema": {},
    "retrieval-notes": {"eos_token": "</s>", "pad_token": "<pad>"},
}


def kind(error):
    for name, types in (
        ("syntax", jinja2.TemplateSyntaxError),
        ("security", jinja2.exceptions.SecurityError),
        ("undefined", jinja2.UndefinedError),
        ("runtime", jinja2.exceptions.TemplateRuntimeError),
    ):
        if isinstance(error, types):
            return name
    if type(error) is jinja2.TemplateError:
        return "raise_exception"
    if isinstance(error, ValueError) and ("continue_final_message" in str(error) or "empty conversation" in str(error)):
        return "validation"
    return "python"


def failure(error):
    return {"kind": kind(error), "type": type(error).__name__, "message": str(error)[:300]}


def render_chat(source, special, messages, tools, kwargs):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **special)
    # A server hands the template objects, not None, so the conversation is copied.
    messages = json.loads(json.dumps(messages))
    return tokenizer.apply_chat_template(messages, tools=tools, chat_template=source, tokenize=False, **kwargs)


def write_lines(path, head, cases):
    """One case a line, ASCII; gzipped without a time, so that a second run changes nothing."""
    out = io.StringIO()
    out.write("{" + "".join(json.dumps(k) + ": " + json.dumps(v) + ",\n" for k, v in head.items()) + '"cases": [\n')
    out.write(",\n".join(json.dumps(c) for c in cases) + "\n]}\n")
    data = out.getvalue().encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    path.write_bytes(data)
    print(path.relative_to(ROOT), len(cases), "cases,", sum("error" in c for c in cases), "of them errors")


def make_chats():
    folder = ROOT / "testdata/golden/text/templates"
    (folder / "cases").mkdir(exist_ok=True)
    for file in sorted((folder / "files").glob("*.jinja")):
        source, special, cases = file.read_text(), SPECIAL[file.stem], []
        for name, messages, tools, kwargs in CONVERSATIONS:
            case = {"conversation": name, "messages": messages, "tools": tools, "kwargs": kwargs}
            try:
                case["expected"] = render_chat(source, special, messages, tools, kwargs)
            except Exception as error:
                case["error"] = failure(error)
            cases.append(case)
        head = {"template_file": file.name, "special_tokens": special, "now": NOW.isoformat(), "transformers": transformers.__version__}
        write_lines(folder / "cases" / (file.stem + ".json.gz"), head, cases)


def make_expressions():
    folder = ROOT / "internal/chat/jinja/testdata"
    variables = json.loads((folder / "variables.json").read_text())
    cases = []
    for line in (folder / "expressions.txt").read_text().splitlines():
        template = line.replace("⏎", "\n")
        if not template:
            continue
        case = {"template": template}
        try:
            case["expected"] = chat_template_utils._compile_jinja_template(template).render(**json.loads(json.dumps(variables)))
        except Exception as error:
            case["error"] = failure(error)
        cases.append(case)
    write_lines(folder / "expressions.json.gz", {"now": NOW.isoformat(), "jinja2": jinja2.__version__}, cases)


make_chats()
make_expressions()
