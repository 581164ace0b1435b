"""Draws templates for chat_cases.py from a seed: expressions, or white space and blocks. Not here: the fixed templates.
"""
import random

from chat_rows import ROWS

ATOMS = r"""
1
0
2
-1
1.0
0.5
2.5
true
false
none
nothing
''
'a'
'ab a'
' x\u3000'
'<b>'
'Äß'
'5'
[]
[1, 2]
['a', 'b']
(1, 2)
()
{}
{'a': 1, 'b': 2}
{1: 'x'}
{'items': 3}
range(3)
messages
messages[0]
messages[0].content
messages[-1].role
messages[1].content
tools
bos_token
[[1, 'b'], (2,)]
{'b': [1, {'c': none}]}
'é🙂'
namespace(a=1)
messages | map(attribute='role')
""".strip().split("\n")
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or"]
FILTERS = ("trim length tojson join lower upper first last list string int default d replace items safe capitalize map "
           "select reject selectattr rejectattr reverse count").split()
TESTS = ("defined undefined none string number integer float boolean mapping iterable sequence true false equalto eq "
         "in").split()
METHODS = ("strip lstrip rstrip upper lower capitalize startswith endswith replace split join get items keys "
           "values").split()
MEMBERS = "a b items role content update upper index get".split()
KEYWORDS = ("chars indent separators sort_keys ensure_ascii attribute default count maxsplit sep boolean").split()
SHOWN = ["{{ %s }}", "{{ %s }}", "{{ (%s) | tojson }}", "{%% for x in %s %%}{{ x }},{%% else %%}none{%% endfor %%}",
         "{%% set x = %s %%}{{ x ~ x }}", "{{ (%s) | string | trim }}", "{{ (%s) | list | join('|') }}"]
WHITE = ["a", " ", "  ", "\t", "\n", "\r\n", "\r", "\u3000", "\xa0", "\f", "\v", ""]


def random_layout(rng, depth=2):
    """White space, lines and blocks that trim it."""
    pieces = []
    for _ in range(rng.randrange(1, 6)):
        pieces.append("".join(rng.choice(WHITE) for _ in range(4)))
        left, right = rng.choice(["", "", "-", "+"]), rng.choice(["", "", "-", "+"])
        inner = random_layout(rng, depth - 1) if depth > 0 else "b"
        kind = rng.randrange(6)
        if kind == 0:
            pieces.append("{#%s c %s#}" % (left, right))
        elif kind == 1:
            pieces.append("{{%s 'x ' %s}}" % (left, "-" if right == "-" else ""))
        elif kind == 2:
            pieces.append("{%%%s set n = 1 %s%%}" % (left, right))
        elif kind == 3:
            pieces.append("{%%%s for i in 'yz' %s%%}%s{%%%s endfor %s%%}" % (left, right, inner, right, left))
        elif kind == 4:
            pieces.append("{%%%s set t %s%%}%s{%%%s endset %s%%}{{ t }}" % (left, right, inner, right, left))
        else:
            mark = rng.choice(["", "-"])
            pieces.append("{%%%s if n %s%%}%s{%%%s else %s%%}%s{%% endif %%}" % (left, right, inner, mark, left, inner))
    return "".join(pieces) + rng.choice(["", "\n", "\r\n", " \n\n"])


def random_template(seed):
    """A template of a few expressions, or of white space and blocks, with a row."""
    rng = random.Random(seed)
    if seed % 4 == 0:
        return random_layout(rng), ROWS[0]

    def arguments(depth):
        given = [expression(depth - 1) for _ in range(rng.choice([0, 0, 1, 1, 1, 2, 3]))]
        if rng.random() < 0.15:
            given.append(f"{rng.choice(KEYWORDS)}={expression(depth - 1)}")
        if rng.random() < 0.1:
            given.insert(0, repr(rng.choice(FILTERS + TESTS + ["role", "content"])))
        return ", ".join(given)

    def expression(depth):
        if depth <= 0 or rng.random() < 0.15:
            return rng.choice(ATOMS)
        kind = rng.randrange(9)
        inner = f"({expression(depth - 1)})"
        if kind == 0:
            return f"{inner} {rng.choice(OPERATORS)} ({expression(depth - 1)})"
        if kind in (1, 2):
            call = f"({arguments(depth)})" if rng.random() < 0.6 else ""
            return f"{inner} | {rng.choice(FILTERS)}{call}"
        if kind == 3:
            call = f"({arguments(depth)})" if rng.random() < 0.4 else ""
            return f"{inner} is {rng.choice(['', 'not '])}{rng.choice(TESTS)}{call}"
        if kind == 4:
            return f"{inner}.{rng.choice(METHODS)}({arguments(depth)})"
        if kind == 5:
            return f"{inner}[{expression(depth - 1)}]"
        if kind == 6:
            first, last = rng.choice(["", "1", "-1", "0"]), rng.choice(["", "2", "-1"])
            step = rng.choice(["", ":-1", ":2"])
            return f"{inner}[{first}:{last}{step}]"
        if kind == 7:
            return f"{inner}.{rng.choice(MEMBERS)}"
        return rng.choice([f"[{inner}, 1]", f"{{'k': {inner}}}", f"({inner}, 'a')", f"{inner} if {inner} else 'e'",
                           f"not {inner}"])

    shown = rng.choice(SHOWN)
    return "<" + shown % expression(rng.choice([1, 2, 2, 3])) + ">", ROWS[rng.randrange(len(ROWS))]
