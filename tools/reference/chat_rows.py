"""The conversations of chat_cases.py. Not here: the templates that render them (chat_templates.py)."""

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather – now", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
CALL = {"type": "function", "function": {
    "name": "weather", "arguments": {"city": "Łódź", "n": 3, "f": 1.5, "b": True, "z": None}}}
SPECIAL = {"bos_token": "<s>", "eos_token": "<|im_end|>"}
# All of Python's white space, and three characters that look like white space and are not.
SPACES = ("\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
          "\u2028\u2029\u202f\u205f\u3000")
ALMOST = "\u180e\u200b\ufeff"


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def tool(content):
    return {"role": "tool", "content": content}


def system(content):
    return {"role": "system", "content": content}


ROWS = [
    {"messages": [user("Hi"), assistant("<think>\nhm\n</think>\n\nHello!")]},
    {"messages": [system("  Be short. "), user(" Hi\n"), assistant("Yo 🙂"), user("bye"),
                  assistant("x", thought="deep")]},
    {"messages": [system("s"), user("weather?"), assistant("", tool_calls=[CALL]), tool("sunny"), tool("windy"),
                  assistant("It's sunny.")], "tools": TOOLS},
    {"messages": [{"role": "hidden", "content": "psst"}, user(""), assistant("<|im_start|>nested<|im_end|>")]},
    # 4: white space of Chinese, Japanese and typeset text
    {"messages": [user("\u3000你好\u3000世界\u3000"), assistant("\xa0a\u2003b\u2003\n"),
                  user(SPACES + "x" + SPACES + "y" + SPACES), user(ALMOST + "z" + ALMOST)]},
    # 5: nulls, beside and within
    {"messages": [user("q", name=None, tool_calls=None),
                  assistant(None, tool_calls=[{**CALL, "id": None, "inner": {"deep": None}}]),
                  tool([{"type": "text", "text": None}, None]), assistant(None)],
     "tools": [{"type": "function", "function": {"name": "f", "description": None}}]},
    # 6 to 10: an assistant's reasoning, under its three names
    {"messages": [user("q"), {"role": "assistant", "reasoning_content": "r", "content": "a"}]},
    {"messages": [user("q"), {"role": "assistant", "thinking": "t", "content": "a"}]},
    {"messages": [user("q"), assistant("a", reasoning="g")]},
    {"messages": [user("q", reasoning=""), assistant("a", reasoning="g", thinking="t", reasoning_content="r")]},
    {"messages": [user("q", thinking=None),
                  assistant("a", reasoning_content=None, thinking=None, reasoning={"steps": [1, 2]})]},
    # 11: keys that are names of methods, keys in an order, numbers of every kind
    {"messages": [user({"b": 1, "a": {"y": 2.0, "x": -0.0}, "items": "I", "keys": 7, "get": "G", "update": "U",
                        "__x__": 1, "_y": "under"}),
                  tool([1, 1.0, True, "1", 1e16, 1e15, 1e-5, 0.0001, 123456789012345678901234567890,
                        9223372036854775807, 9223372036854775808, -9223372036854775808, 1e300, 0.1, 100.0])]},
    # 12: other letters and quotes
    {"messages": [user("Straße ŒUVRE ĲS ŉ ǆ İstanbul ΟΔΥΣΣΕΥΣ ΣΑΣ Σ ﬁn çÉ 'q' \"d\" <b>&amp;</b> "
                       "\x7f\x00\x1f \u2028 🙂"),
                  assistant("éÀ-ñ;Ж")]},
]
