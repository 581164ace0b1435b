"""Where functions begin and end in C++ and in Python, to the line: what dependence.py measures. Not here: how long they
may be.

C++ is not parsed. Literals, comments and directives are blanked; then a brace outside of all functions opens one if
what stands before it, since the last statement, has a parenthesis, and a namespace, a type or an initializer if not.
"""

import ast
import re

NO_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""", re.DOTALL)
DIGITS_APART = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)


def blanked(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def of_cpp(text):
    """(first line, last line) of each function, a lambda being part of the one that it stands in."""
    text = DIRECTIVE.sub(blanked, NO_CODE.sub(blanked, DIGITS_APART.sub("_", text)))
    open_braces = []  # for each: where the function begins that it opens; None: it opens none
    inside = parentheses = head = 0
    for match in re.finditer(r"[{}();]", text):
        place, sign = match.start(), match.group(0)
        if sign in "()":
            parentheses += 1 if sign == "(" else -1
        elif sign == ";" and not inside and not parentheses:
            head = place + 1
        elif sign == "{":
            opens = not inside and not parentheses and "(" in text[head:place]
            open_braces.append(head if opens else None)
            inside += opens
            if not inside and not parentheses:
                head = place + 1
        elif sign == "}" and open_braces:
            begin = open_braces.pop()
            if begin is not None:
                inside -= 1
                if text[place + 1:].lstrip().startswith((",", "{")):
                    head = begin  # a member's initializer: the function goes on
                    continue
                first = begin + len(text[begin:place]) - len(text[begin:place].lstrip())
                yield text.count("\n", 0, first) + 1, text.count("\n", 0, place) + 1
            if not inside and not parentheses:
                head = place + 1


def of_python(text):
    """(first line, last line) of each function, also of those within others; decorators are not counted."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno
