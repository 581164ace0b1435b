"""Draws templates for chat_cases.py from a seed: expressions, white space and blocks, or macros.
Not here: the fixed templates.
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
           "select reject selectattr rejectattr reverse count sort dictsort unique title").split()
TESTS = ("defined undefined none string number integer float boolean mapping iterable sequence true false equalto eq "
         "in").split()
METHODS = ("strip lstrip rstrip upper lower capitalize startswith endswith replace split join get items keys "
           "values title").split()
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


def random_macros(rng):
    """Macros that call each other, set variables, read outer ones and have default values, with blocks around them."""
    names = ["m0", "m1", "m2"]

    def value(depth):
        kind = rng.randrange(9) if depth > 0 else rng.randrange(4)
        if kind == 0:
            return rng.choice(["x", "y", "a", "b", "s.n", "nothing", "loop.index"])
        if kind <= 3:
            return rng.choice(["1", "'t '", "[x, 'é']", "none", "messages[0].role", "{'k': a}", "varargs", "kwargs"])
        if kind == 4:
            return f"{value(depth - 1)} ~ {value(depth - 1)}"
        if kind == 5:
            return f"({value(depth - 1)} if {value(depth - 1)} else {value(depth - 1)})"
        if kind == 6:
            return f"({value(depth - 1)} | {rng.choice(['string | trim', 'default(0)', 'string', 'tojson', 'nosuch'])})"
        given = [value(depth - 1) for _ in range(rng.randrange(3))]
        given += [f"{name}={value(depth - 1)}" for name in rng.sample(["a", "b", "c"], rng.choice([0, 0, 1, 2]))]
        if rng.random() < 0.1:
            given.append("**{'b': 3}" if given and "=" in given[-1] else "*[1, 2]")
        return f"{rng.choice(names + ['caller'])}({', '.join(given)})"

    def body(depth):
        dash = rng.choice(["", "-"])
        pieces = [rng.choice(["<", " ", "\n", "é", "b "]) for _ in range(rng.randrange(1, 3))]
        for _ in range(rng.randrange(1, 4)):
            kind = rng.randrange(8) if depth > 0 else rng.randrange(3)
            if kind <= 1:
                pieces.append("{{%s %s %s}}" % (dash, value(2), dash))
            elif kind == 2:
                pieces.append("{%% set %s = %s %%}" % (rng.choice(["x", "y", "a", "s.n"]), value(1)))
            elif kind == 3:
                pieces.append("{%% if %s %s%%}%s" % (value(1), dash, body(depth - 1)))
                pieces.append("{%% else %%}%s{%% endif %%}" % body(0))
            elif kind == 4:
                pieces.append("{%%%s for a in [1, 'z'] %%}%s{%% endfor %%}" % (dash, body(depth - 1)))
            elif kind == 5:
                pieces.append("{%% call(b) %s(1) %s%%}%s{%% endcall %%}" % (rng.choice(names), dash, body(depth - 1)))
            elif kind == 6:
                pieces.append("{%%%s generation %%}%s{%% endgeneration %s%%}" % (dash, body(depth - 1), dash))
            else:
                pieces.append("{%% set y %s%%}%s{%% endset %%}" % (dash, body(depth - 1)))
        return "".join(pieces)

    def macro(name):
        parameters = rng.choice(["", "a", "a, b", "a, b=x", "a=1, b=a", "b='B', c=2"])
        return "{%% macro %s(%s) %s%%}%s{%% endmacro %%}" % (name, parameters, rng.choice(["", "-"]), body(2))

    made = "{% set s = namespace(n=0) %}{% set x = 'X' %}" + "".join(macro(name) for name in names)
    return made + body(2) + "{{ x }}{{ s.n }}"


def random_template(seed):
    """A template of a few expressions, of white space and blocks, or of macros, with a row."""
    rng = random.Random(seed)
    if seed % 4 == 0:
        return random_layout(rng), ROWS[0]
    if seed % 4 == 1:
        return random_macros(rng), ROWS[0]

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
