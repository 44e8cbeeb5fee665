"""Checks custom tools and verbosity with OpenAI's Python client.

usage: check_custom_tools.py, with OPENAI_BASE_URL, OPENAI_API_KEY and HEFT_MODEL set, as check-tool-loop.sh sets them.
"""

import os
import re

import openai

LARK = 'start: "SELECT " column (", " column)* " FROM " /[a-z]{1,9}/ ";"\ncolumn: /[a-z_]{1,9}/\n'
SQL = re.compile(r"SELECT [a-z_]{1,9}(, [a-z_]{1,9})* FROM [a-z]{1,9};")
MODEL = os.environ["HEFT_MODEL"]
client = openai.OpenAI()
CALM = {"chat_template_kwargs": {"enable_thinking": False}}  # the model reasons without end about what it has not seen
checks = 0


def expect(what, ok, seen):
    global checks
    checks += 1
    assert ok, f"{what}: {seen}"


def refused(what, call, param, words):
    try:
        seen = call()
    except openai.BadRequestError as e:
        expect(what, e.param == param and words in e.message, (e.param, e.message))
        return
    expect(what, False, seen)


def responses():
    tool = {"type": "custom", "name": "sql", "description": "Runs a query.", "format": {"type": "grammar", "syntax": "lark", "definition": LARK}}
    ask = {"model": MODEL, "input": "List all names.", "tools": [tool], "tool_choice": {"type": "custom", "name": "sql"}, "parallel_tool_calls": False,
           "max_output_tokens": 300, "temperature": 1, "seed": 3, "text": {"verbosity": "low"}}
    ask["extra_body"] = CALM | {"seed": ask.pop("seed")}
    r = client.responses.create(**ask)
    call = r.output[-1]
    expect("a call", call.type == "custom_tool_call" and call.name == "sql" and SQL.fullmatch(call.input), r)
    expect("the tool", r.tools[0].type == "custom" and r.tools[0].format.syntax == "lark" and r.text.verbosity == "low", r)
    deltas, done, items = "", [], []
    with client.responses.stream(**ask) as stream:
        for e in stream:
            if e.type == "response.custom_tool_call_input.delta":
                deltas += e.delta
            elif e.type == "response.custom_tool_call_input.done":
                done.append(e.input)
            elif e.type == "response.output_item.done":
                items.append(e.item)
        final = stream.get_final_response().output[-1]
    expect("a stream", done == [deltas] == [final.input] == [items[-1].input] and final.type == "custom_tool_call" and SQL.fullmatch(deltas), (deltas, done, final))
    result = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "Ada"}
    later = {"model": MODEL, "tools": [tool], "max_output_tokens": 20, "extra_body": CALM}
    expect("its result", client.responses.create(previous_response_id=r.id, input=[result], **later).status in ("completed", "incomplete"), r)
    items = [{"role": "user", "content": "List all names."}] + [o.model_dump(exclude_none=True) for o in r.output] + [result]
    second = client.responses.create(input=items, **later)
    listed = [i.type for i in client.responses.input_items.list(second.id, order="asc")]
    expect("items", listed[-2:] == ["custom_tool_call", "custom_tool_call_output"], listed)
    free = client.responses.create(model=MODEL, input="Hi", tools=[{"type": "custom", "name": "note"}], tool_choice="required", max_output_tokens=300,
                                   temperature=1, parallel_tool_calls=False, extra_body=CALM | {"seed": 1})
    expect("any text", free.output[-1].type == "custom_tool_call" and free.output[-1].name == "note", free)
    tool = dict(tool, format={"type": "grammar", "syntax": "lark", "definition": 'start: "(" start ")" | "x"'})
    nested = client.responses.create(**ask | {"tools": [tool]}).output[-1].input
    depth = nested.count("(")
    expect("a nested grammar", nested == "(" * depth + "x" + ")" * depth, nested)
    tool = dict(tool, format={"type": "grammar", "syntax": "lark", "definition": "start: A\n%declare A"})
    refused("an external terminal", lambda: client.responses.create(model=MODEL, input="Hi", tools=[tool]), "tools[0].format.definition", "line 2: %declare")


def chats():
    custom = {"name": "sql", "description": "Runs a query.", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": SQL.pattern}}}
    ask = {"model": MODEL, "tools": [{"type": "custom", "custom": custom}], "max_completion_tokens": 300, "temperature": 1, "seed": 3, "verbosity": "high", "extra_body": CALM}
    messages = [{"role": "user", "content": "List all names."}]
    forced = {"tool_choice": {"type": "custom", "custom": {"name": "sql"}}, "parallel_tool_calls": False}
    r = client.chat.completions.create(messages=messages, **ask, **forced)
    call = r.choices[0].message.tool_calls[0]
    expect("a call", call.type == "custom" and call.custom.name == "sql" and SQL.fullmatch(call.custom.input), r)
    deltas = ""
    for chunk in client.chat.completions.create(messages=messages, stream=True, **ask, **forced):
        for piece in chunk.choices[0].delta.tool_calls or []:
            deltas += piece.model_extra["custom"]["input"]
    expect("a stream", deltas == call.custom.input, (deltas, call))
    messages += [r.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "Ada"}]
    expect("its result", client.chat.completions.create(messages=messages, **ask).choices[0].message.role == "assistant", messages)
    del custom["format"]["grammar"]["definition"]
    refused("no definition", lambda: client.chat.completions.create(messages=messages[:1], **ask), "tools[0].custom.format.grammar.definition", "Missing")


responses()
chats()
print(f"custom tools: {checks} checks with openai {openai.__version__}")
