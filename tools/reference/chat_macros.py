"""More fixed templates of chat_cases.py: macros, printed values, sorting. Not here: the others (chat_templates.py)."""

MACRO_CASES = [(template, 2) for template in r"""
{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m(1) }}{{ m('x') + '!' }}{{ m(m(2)) ~ 3 }}
{% macro m(a, b='B', c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(b=1, a=2) }}
{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}{{ m(nothing) }}
{% macro m(a=b, b=1) %}{{ a }}{{ b }}{% endmacro %}{% set b = 5 %}{{ m() }}
{% macro m(a=x) %}{{ a }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}
{% macro m() %}{{ x }}{% endmacro %}{% for x in [1, 2] %}{{ m() }}{% endfor %}{% set x = 3 %}{{ m() }}
{% macro m() %}{% set x = 1 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}|
{% set s = namespace(n=0) %}{% macro m() %}{% set s.n = s.n + 1 %}{{ s.n }}{% endmacro %}{{ m() }}{{ m() }}{{ s.n }}
{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}
{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(1) }}
{% macro a(n) %}a{{ b(n - 1) if n }}{% endmacro %}{% macro b(n) %}b{{ a(n) }}{% endmacro %}{{ a(3) }}
{{ later() }}{% macro later() %}x{% endmacro %}
{% for i in [1, 2] %}{% macro m() %}{{ i }}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, a='b') }}{{ m() }}
{% macro m(a) %}{{ varargs | join(',') }}{{ kwargs.x }}{% endmacro %}{{ m(1, 2, 3, x=4) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(1, *[2]) }}{{ m(**{'b': 2, 'a': 1}) }}{{ m(*'xy') }}
{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*1) }}
{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(**[1]) }}
{% macro m(a) %}({{ caller(a) }}){% endmacro %}{% call(x) m(5) %}x={{ x }}{% endcall %}
{% macro m() %}({{ caller() }}{{ caller() }}){% endmacro %}{% set y = 1 %}{% call m() %}y={{ y }}{% endcall %}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
{% macro m() %}{{ caller(*varargs) }}{% endmacro %}{% call(a, b='-') m(1) %}{{ a }}{{ b }}{% endcall %}
{% macro o() %}<{{ caller() }}>{% endmacro %}{% call o() %}{% call o() %}i{% endcall %}{% endcall %}
{% call raise_exception('x') %}y{% endcall %}
{% call nothing %}y{% endcall %}
{% set f = namespace %}{% macro m(a) %}{{ a }}{% endmacro %}{% set g = m %}{{ g(1) }}{{ m is callable }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m }}
{% macro m(a) %}{{ a }}{% endmacro %}{% if m %}yes{% endif %}{{ m == m }}
{% macro m(a) -%}  {{ a }}  {%- endmacro -%}  x{{ m(1) }}
{% macro m(a, ) %}{{ a }}{% endmacro %}{{ m(1, ) }}
{% macro m(a=1, b) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m() %}{% for i in [1, 2] %}{{ i }}{% break %}{% endfor %}{% endmacro %}{{ m() }}
{% for i in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{% macro m(x) %}{% set x = x + 1 %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m(x) }}{{ x }}
{% macro m(x) %}{{ x | tojson }}{% endmacro %}{{ m(messages[0]) | length }}{{ m(tools) | upper }}
{% macro t(s) %}{{ t(s.x) + '[]' if s.x is defined else s.y }}{% endmacro %}{{ t({'x': {'x': {'y': 'string'}}}) }}
{% generation %}{% macro m() %}x{% endmacro %}{{ m() }}{% endgeneration %}{{ m is defined }}
{% if true %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}
{% if false %}{{ 1 | from_json }}{% endif %}{{ 1 | from_json if false else 'x' }}
{% if true %}{{ 1 | from_json }}{% endif %}
{{ 1 | from_json }}
{% if false %}{% for i in [1] %}{{ i | from_json }}{% endfor %}{% endif %}
{% if false %}{{ 1 is nosuch }}{% endif %}x
{% if [] | from_json %}{% endif %}
{% for i in [1, 2, 3] if i > 1 %}{{ i }}{% endfor %}{% for i in [] %}{% else %}{% set q = 1 %}{% endfor %}{{ q }}|
{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}{{ 1 == 1.0 == true }}{{ 1 < 2 in [2] }}
{{ [[1, [2]]].0.1.0 }}{{ 'abc'.1 }}{{ {0: 'z'}.0 }}{{ 1e3 }}{{ 1.5e-3 }}{{ 2E2 }}
""".strip().split("\n")]
PRINT_CASES = [(template, 11) for template in r"""
{{ [1, 'a', none, true, 1.0, [], {}, ()] }}
{{ {'a': 1, 2: "it's", none: 'q"q', 1.5: 'both\'"'} }}
{{ (1,) }}{{ (1, 2) }}{{ ((), [()]) }}
{{ ['\n\t\r\x00\x7f\\', 'é', '\xa0\u200b\u2028\ue000', '🙂', '\U000e0001', '\xad'] }}
{{ messages[0].content }}{{ messages[1].content }}
{{ [nothing] }}{{ ['<b>' | safe] }}
{{ {'a': 1}.keys() }}{{ {'a': 1}.values() }}{{ {'a': [1]}.items() }}
{{ [1] | string | length }}{{ 'a' ~ [1, 'b'] }}{{ [[1], {'a': 2}] | join(', ') }}
{{ [1, 'x'] | trim }}{{ {'A': 1} | lower }}{{ ['a'] | replace('a', 'b') }}
{{ 'x%s' | replace('%s', ['y']) }}
{{ [1, 2] | map('string') | list }}
""".strip().split("\n")]
SORT_CASES = [(template, 2) for template in r"""
{{ {'b': 1, 'A': 2, 'c': 0} | dictsort }}
{{ {'b': 1, 'A': 2, 'c': 0} | dictsort(true) }}{{ {'b': 1, 'a': 2} | dictsort(by='value') }}
{{ {'b': 1, 'a': 2} | dictsort(false, 'key', true) }}{{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}
{% for k, v in {'b': 1, 'a': 2} | dictsort %}{{ k }}{{ v }}{% endfor %}
{{ {} | dictsort }}
{{ [1] | dictsort }}
{{ {'a': 1} | dictsort(by='x') }}
{{ {1: 1, 'a': 2} | dictsort }}
{{ {'a': none, 'b': 1} | dictsort(by='value') }}
{{ {'x': 'B', 'y': 'a', 'z': 'b'} | dictsort(by='value') }}
{{ [3, 1, 2] | sort }}{{ [3, 1, 2] | sort(true) }}
{{ ['b', 'A', 'a'] | sort }}{{ ['b', 'A'] | sort(case_sensitive=true) }}
{{ messages | sort(attribute='role') | map(attribute='role') | join(',') }}
{{ messages | sort(attribute='role,content', reverse=true) | map(attribute='content') | join(',') }}
{{ [1, 'a'] | sort }}
{{ [none, none] | sort }}{{ [1.5, 1, true] | sort }}{{ 'hello' | sort }}{{ {'b': 1, 'a': 2} | sort }}
{{ [[1, 2], [3, 0]] | sort(attribute=1) }}
{{ [1] | sort(key='a') }}
{{ [1, 2, 1, 'a', 'A', true, 1.0] | unique | list }}{{ ['a', 'A'] | unique(true) | list }}
{{ messages | unique(attribute='role') | map(attribute='content') | join(',') }}
{{ [[1]] | unique | list }}
{{ 'hello WORLD-x (y) o\'k ßa ǆ éa' | title }}|{{ 'hello WORLD-x (y) o\'k ßa ǆ éa'.title() }}
{{ '3rd a1b ΑΣ ' | title }}|{{ '3rd a1b ΑΣ '.title() }}|{{ 5 | title }}
{{ none | select | list }}{{ none | selectattr('x') | list }}{{ none | map('x') | list }}{{ none | sort }}
""".strip().split("\n")]
