"""Compares a server of a GGUF file with transformers, which computes in float32 from the dequantised weights: the tokens of
awkward texts, and the greedy answers to twenty prompts. usage: check_gguf.py FILE.gguf URL"""
import json
import os
import sys
import urllib.request

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = [
    "The capital of France is", "Once upon a time,", "def fibonacci(n):", "The three primary colours are", "Water boils at",
    "To make bread you need", "In 1969", "A haiku about rain:\n", "1, 2, 3, 5, 8,", "Dear Sir or Madam,", "The quick brown fox", "SELECT name FROM",
    "Le chat est", "Q: What is gravity?\nA:", "# Introduction\n", "My favourite book is", "The mitochondria is", "import numpy as np\n", "She opened the door and",
    "<|im_start|>user\nWhat is the tallest mountain?<|im_end|>\n<|im_start|>assistant\n",
]
TEXTS = ["", " ", "   leading", "trailing   ", "a\n\n\nb", "\t\ttabs", "don't I'll we've", "1234567890 3.14 1,000", "naïve café Ünïcödé", "你好，世界", "🙂👩‍👩‍👧🏽", "e\u0301",
         "\u200b zero width", "a<|im_end|>b", "https://x.y/z?a=b&c=%20", "\r\n mixed \r", "ПРИВЕТ мир", "x" * 100, "اَلْعَرَبِيَّةُ"]
TOKENS = 24
# No text with numbers that are no decimal digits: transformers ignores how the file says that texts are split, and differs there.
torch.set_num_threads(1)

path, url = sys.argv[1:]
folder, file = os.path.split(path)


def ask(where, body):
    request = urllib.request.Request(url + where, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
wrong = 0
for text in TEXTS + PROMPTS:
    got = ask("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
    want = tokenizer(text, add_special_tokens=False).input_ids
    if got != want:
        wrong += 1
        print(f"tokens of {text!r}: got {got}, want {want}")
for prompt in PROMPTS:
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    with torch.no_grad():
        out = model.generate(ids, max_new_tokens=TOKENS, do_sample=False, repetition_penalty=1.0)[0, ids.shape[1]:].tolist()
    choice = ask("/v1/completions", {"prompt": ids[0].tolist(), "max_tokens": TOKENS, "temperature": 0, "return_token_ids": True})["choices"][0]
    ends = {model.generation_config.eos_token_id} if isinstance(model.generation_config.eos_token_id, int) else set(model.generation_config.eos_token_id or [])
    want = [i for i in out if i not in ends]
    got = [i for i in choice["token_ids"] if i not in ends]
    if got[:len(want)] != want:
        wrong += 1
        print(f"answer to {prompt!r}: got {got}, want {want}")
print(f"{len(TEXTS) + len(PROMPTS)} texts and {len(PROMPTS)} answers compared, {wrong} differ")
sys.exit(wrong > 0)
