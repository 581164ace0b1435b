"""Writes tests/data/chat/gold.json: conversations, and what transformers makes of them by the templates beside it (and by one that it
refuses them with). Usage: chat_cases.py (jinja2 and transformers installed)"""
import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

place = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "chat"
tools = [{"type": "function", "function": {"name": "weather", "description": "Weather – now", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
call = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Łódź", "n": 3, "f": 1.5, "b": True}}}
rows = [
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello!"}]},
    {"messages": [{"role": "system", "content": "  Be short. "}, {"role": "user", "content": " Hi\n"}, {"role": "assistant", "content": "Yo 🙂"},
                  {"role": "user", "content": "bye"}, {"role": "assistant", "content": "x", "thought": "deep"}]},
    {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "weather?"},
                  {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "sunny"},
                  {"role": "tool", "content": "windy"}, {"role": "assistant", "content": "It's sunny."}], "tools": tools},
    {"messages": [{"role": "hidden", "content": "psst"}, {"role": "user", "content": ""}, {"role": "assistant", "content": "<|im_start|>nested<|im_end|>"}]},
]
special = {"bos_token": "<s>", "eos_token": "<|im_end|>"}
texts = {}
for template in sorted(place.glob("*.jinja")):
    texts[template.name] = [render_jinja_template([row["messages"]], tools=row.get("tools"), chat_template=template.read_text(), **special)[0][0] for row in rows]
(place / "gold.json").write_text(json.dumps({"rows": rows, "special": special, "texts": texts}, ensure_ascii=False, indent=1) + "\n")
