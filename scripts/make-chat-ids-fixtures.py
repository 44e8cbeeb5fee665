#!/usr/bin/env python3
"""Makes testdata/golden/text/templates/chat_ids.json.gz: conversations with the prompts
and the ids that transformers makes of them, over the templates and the tokenizers that lie
beside it.

    python3 scripts/make-chat-ids-fixtures.py

needs transformers and jinja2.
"""

import datetime
import gzip
import json
import pathlib

from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

TEXT = pathlib.Path(__file__).resolve().parent.parent / "testdata/golden/text"
NOW = datetime.datetime(2025, 3, 14, 15, 9, 26)


class FrozenTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = FrozenTime

PAIRS = [
    ("tiny-llama3like", "heads-with-tools"),
    ("tiny-bytebpe-512", "frames-thinking"),
    ("tiny-spm-legacy", "strict-turns"),
    ("tiny-nfc-addedtokens", "macros-schema"),
]
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Grüße, 世界! What is 2+2?"}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}
CONVERSATIONS = [
    ("user", [USER], None, {"add_generation_prompt": True}),
    ("user_plain", [USER], None, {}),
    ("system_user", [SYSTEM, USER], None, {"add_generation_prompt": True}),
    ("turns", [USER, {"role": "assistant", "content": "Four. "}, {"role": "user", "content": "Why?\n"}], None, {"add_generation_prompt": True}),
    ("continued", [USER, {"role": "assistant", "content": "It is "}], None, {"continue_final_message": True}),
    ("tools", [USER], [CLOCK], {"add_generation_prompt": True}),
]


def load(name):
    folder = TEXT / "tokenizers" / name
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("tokenizer_class", None)
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **config)


cases = []
for name, template in PAIRS:
    tokenizer, source = load(name), (TEXT / "templates/files" / (template + ".jinja")).read_text()
    for conversation, messages, tools, kwargs in CONVERSATIONS:
        try:
            prompt = tokenizer.apply_chat_template(messages, tools=tools, chat_template=source, tokenize=False, **kwargs)
        except Exception as error:  # what templates refuse is a matter of their own fixtures
            print(name, template, conversation, "is refused:", error)
            continue
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        cases.append(dict(tokenizer=name, template_file=template + ".jinja", conversation=conversation, messages=messages,
                          tools=tools, kwargs=kwargs, prompt=prompt, ids=ids))

lines = ",\n".join(json.dumps(c) for c in cases)
data = '{"now": "%s", "cases": [\n%s\n]}\n' % (NOW.isoformat(), lines)
(TEXT / "templates/chat_ids.json.gz").write_bytes(gzip.compress(data.encode(), mtime=0))
print(len(cases), "cases")
