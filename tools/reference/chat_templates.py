"""The fixed templates of chat_cases.py, each with its row (chat_rows.py). Not here: random ones."""

def of_each(expression):
    return "{% for m in messages %}[{{ " + expression + " }}]{% endfor %}"


SPACE_CASES = [(of_each("m.content" + does), 4) for does in r"""
.strip()
.lstrip()
.rstrip()
 | trim
.split() | join('|')
.split(none) | length
.split(none, 1) | join('|')
.split(maxsplit=1) | join('|')
.split(sep=none, maxsplit=2) | join('|')
.split('\u3000') | join('|')
.split('\u3000', 1) | join('|')
.split('', 1) | join('|')
.strip('\u3000')
.strip('\u3000 \n界')
.strip('')
.strip(none)
.lstrip('\u3000你')
.rstrip('\u2003\n')
 | trim('\u3000')
 | trim(chars='\xa0\u3000')
 | trim(none)
.strip() | length
.split(' ') | length
.strip(3)
.strip(chars='x')
 | trim(char='x')
.split(',', 1, 2) | join
.split(by=',') | join
.strip('a', 'b')
"""[1:-1].split("\n")]
SPACE_CASES += [(template, 0) for template in (
    "{{ 'a' -}}\u3000\xa0\n{{ 'b' }}\u2003 {{- 'c' }}",
    "x\n\u3000{% if true %}y{% endif %}\n\xa0 {# c #}z\n \u2003{{ 'w' }}",
    "x{%\u3000if true\xa0%}y{%- endif\u2003%}",
    "\u3000{% if true +%}\n  y{%+ endif %}",
    "a {#- c -#} b {# c +#}\nd {#+ c #}\n e")]
NULL_CASES = [(of_each(expression), 5) for expression in """
m.content
m.content is defined
m.content is none
'content' in m
m.name | default('nobody')
m | length
m | tojson
m.tool_calls | tojson if m.tool_calls else '-'
m.keys() | join(',')
'x' if m.content is string else 'y'
""".strip().split("\n")]
NULL_CASES += [(template, 5) for template in """
{{ tools | tojson }}
{{ messages[2].content[0].text }}
{{ messages[2].content[1] is none }}
{{ messages[1].tool_calls[0].id is none }}
""".strip().split("\n")]
THOUGHT_CASES = [(of_each(expression), row) for row in range(6, 11) for expression in """
m | tojson
m.reasoning_content is defined
m.thinking is defined
m.reasoning is defined
m.reasoning_content | default('-') | tojson
m.thinking.steps | default('-') | tojson
m.keys() | join(' ')
""".strip().split("\n")]
NEWLINE_CASES = [(template, 0) for template in r"""
{{ 'a\r\nb' }}
{{ '''' }}
{{ '\x41\u00e9\U0001f642\101\7\a\b\f\v\q\e' }}
{{ '\é' }}
{{ '\N{BULLET}' }}
{{ '\ud83d' }}
{{ '\xg' }}
{{ 'a' 'b' "c" }}
""".strip().split("\n")]
NEWLINE_CASES += [(template, 0) for template in (
    'a\r\nb\rc\n\rd\r\n', 'a\r\n\r\n', 'a\r', '{% if true %}\r\nx{% endif %}\r\n', '{% if true %}\rx{% endif %}\r',
    'x\r\n  {% if true %}\r\n  y\r\n  {%- endif %}\r\nz', "{{ 'a\r\nb\rc' }}", "{{ 'a' }}\r\n", '\r\n{# c #}\r\nx',
    '{{ "a\\\r\nb" }}', '\n\n', '', '\n', "{{ 'x' }}\n\n")]
MARKUP_CASES = [(template, 12) for template in r"""
{{ '<a>'|safe + messages[0].content }}
{{ messages[0].content + '<a>'|safe }}
{{ '<a>'|safe ~ messages[0].content }}
{{ ('<a>'|safe + '<b>'|safe) + "'" }}
{{ ('<a> '|safe).strip() + '<' }}
{{ ('<a>'|safe)[0] + '<' }}
{{ ('<a>'|safe)[::-1] + '<' }}
{{ ('<a>'|safe)[:2] + '<' }}
{{ ('<a>'|safe | upper) + '<' }}
{{ ('<a>'|safe | string) + '<' }}
{{ ('<a>'|safe | trim) + '<' }}
{{ ('<a>'|safe | replace('a', 'b')) + '<' }}
{{ ('<a>'|safe).replace('a', '<') + '<' }}
{{ ('<'|safe).join(['<', 1, '>'|safe]) }}
{{ ['<', '>'|safe] | join('<'|safe) + '<' }}
{{ ('<a><b>'|safe).split('a')[0] + '<' }}
{{ ('<a>'|safe | first) + '<' }}
{{ ('<a>'|safe | last) + '<' }}
{{ ('<a>'|safe | list)[0] + '<' }}
{{ ('<a>'|safe | reverse) + '<' }}
{{ ('<a>'|safe | capitalize) + '<' }}
{{ ('<a>'|safe) == '<a>' }}
{{ {'<a>': 1}['<a>'|safe] }}
{{ ('<a>'|safe) is string }}
{{ '<a>'|safe|tojson }}
{{ 5|safe + '<' }}
{{ '<a>'|safe + 5 }}
{% set x = '<a>'|safe %}{% set x = x + '&' %}{{ x ~ '&' }}
{% set x %}<{{ '>'|safe }}{% endset %}{{ x + '<' }}
{% for c in '<a'|safe %}{{ c + '<' }}{% endfor %}
{{ (none|safe) + '<' }}
{{ ('a'|safe).escape('<') }}
{{ ('<a>'|safe or 'b') + '<' }}
{{ ('<a>'|safe | default('b')) + '<' }}
{{ 'x'|safe in 'axb' }}
""".strip().split("\n")]
JSON_CASES = [(template, 11) for template in r"""
{{ messages[0].content | tojson }}
{{ messages[0].content | tojson(sort_keys=true) }}
{{ messages[1].content | tojson }}
{{ messages[0].content | tojson(indent=2) }}
{{ messages[0].content | tojson(2) }}
{{ messages[0].content | tojson(indent='--') }}
{{ messages[0].content | tojson(indent=0) }}
{{ messages[0].content | tojson(indent=-1) }}
{{ messages[0].content | tojson(indent=true) }}
{{ messages[0].content | tojson(indent=1.5) }}
{{ messages[0].content | tojson(separators=(',', ':')) }}
{{ messages[0].content | tojson(separators=[', ', ' : '], indent=1) }}
{{ messages[0].content | tojson(separators=(',',)) }}
{{ messages[0].content | tojson(separators=none) }}
{{ messages[0].content | tojson(true, 1, (';', '='), true) }}
{{ messages[0].content | tojson(false, none, none, false, 1) }}
{{ messages[0].content | tojson(indents=1) }}
{{ messages[0].content | tojson(true, ensure_ascii=true) }}
{{ 'é' | tojson(ensure_ascii=1) }}
{{ 'é' | tojson(ensure_ascii='') }}
{{ '\x00\x1f\t\b\f\n\r' | tojson }}
{{ [] | tojson(indent=2) }}
{{ {} | tojson(indent=2) }}
{{ [[], {}, [1], {'a': []}] | tojson(indent=2) }}
{{ (1, (2,), ()) | tojson }}
{{ {1: 2, true: 3, none: 4, 1.5: 5, 'a': 6} | tojson }}
{{ {2: 'b', 1: 'a', 1.5: 'c'} | tojson(sort_keys=true) }}
{{ {2: 'b', 'a': 1} | tojson(sort_keys=true) }}
{{ {(1, 2): 3} | tojson }}
{{ nothing | tojson }}
{{ [nothing] | tojson }}
{{ range(3) | tojson }}
{{ range(3) | list | tojson }}
{{ messages | map(attribute='role') | tojson }}
{{ {'a': 1}.items() | tojson }}
{{ {'a': 1}.items() | list | tojson }}
{{ 1e3 | tojson }}
{{ (1.0 / 3) | tojson }}
{{ none | tojson }}
{{ namespace(a=1) | tojson }}
{{ dict(a=1, b=[2]) | tojson }}
{{ dict({'a': 1}, a=2, b=3) | tojson }}
{{ messages[1].content | map('string') | join(' ') }}
""".strip().split("\n")]
JSON_CASES += [(template, 11) for template in (
    "{{ messages[0].content | tojson(indent='\t') }}", '{{ \'é🙂\x7f\\u2028\\\\"/\' | tojson }}',
    '{{ \'é🙂\x7f\\u2028\\\\"/\' | tojson(ensure_ascii=true) }}')]
NAME_CASES = [(template, 11) for template in r"""
{{ messages[0].content.items() | list | length }}
{{ messages[0].content['items'] }}
{{ messages[0].content.keys() | join }}
{{ messages[0].content['keys'] }}
{{ messages[0].content.get('get') }}
{{ messages[0].content.update }}
{{ messages[0].content['update'] }}
{{ messages[0].content.update is defined }}
{{ messages[0].content.items is defined }}
{{ messages[0].content._y }}
{{ messages[0].content.__x__ }}
{{ messages[0].content['copy'] is defined }}
{{ messages[0].content.nothing }}|
{{ messages[0].content['nothing'] }}|
{{ messages[0].content.nothing.more }}
{{ messages[0].content.b.more }}|
{{ 'text'.more }}|{{ 'text'['more'] }}|{{ [1].more }}|{{ none.more }}|
{{ 'text'.upper is defined }}{{ 'text'['upper']() }}{{ [1].append is defined }}
{{ [1].index is defined }}
{{ [1].append(2) }}
{{ {'a': 1}.pop('a') }}
{% if messages[0].content.items %}yes{% endif %}
{% set f = messages[0].content.get %}{{ f('b') }}
{{ messages[0].content.get('none', 'd') }}
{{ messages[0].content.get('none') }}
{{ messages[0].content.get(key='b') }}
{{ messages[0].content.get() }}
{{ messages[0].content.get('b', 1, 2) }}
{{ messages[0].content.items(1) }}
{{ messages[0].content | items | list | length }}
{{ messages[0].content | items | length }}
{{ 'a' | items | list }}
{{ nothing | items | list | length }}
{{ messages[0]['content']['a']['y'] }}{{ messages[0].content.a.x }}
{{ messages[1]['content'][true] }}{{ messages[1].content[1.0] }}|
{{ messages[1].content[-1] }}{{ messages[1].content[99] }}|
""".strip().split("\n")]
VALUE_CASES = [(template, 0) for template in r"""
{{ 1 == true }}{{ 0 == false }}{{ 1.0 == true }}{{ 1 == 1.0 }}{{ 2 == true }}{{ '1' == 1 }}
{{ none == false }}{{ 1 != true }}
{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}{{ {'a': 1} == {'a': true} }}
{{ {'a': 1} == {'a': 1, 'b': 2} }}
{{ {'a': [1, {'x': 1, 'y': 2}]} == {'a': [1.0, {'y': 2, 'x': 1}]} }}
{{ (1, 2) == [1, 2] }}{{ (1, 2) == (1, 2) }}{{ [1, 2] == [1, 2] }}{{ (1,) == 1 }}{{ () == [] }}
{{ range(2) == [0, 1] }}{{ range(2) == range(0, 2) }}
{{ {1: 2}[1] }}{{ {1: 2}[true] }}{{ {1: 2}[1.0] }}{{ {1: 2}['1'] }}{{ {true: 'x'}[1] }}
{{ {none: 'n'}[none] }}{{ {(1, 2): 't'}[(1, 2)] }}{{ {1.5: 'r'}[1.5] }}
{{ {1: 'a', true: 'b', 1.0: 'c'} | length }}{{ {'a': 1, 'a': 2}.a }}
{{ {[1]: 2} }}
{{ {'a': 1}[[1]] }}|{{ {'a': 1}[{}] }}|
{{ 1 in {1: 2} }}{{ '1' in {1: 2} }}{{ true in [1] }}{{ [1] in {1: 2} }}
{{ 1 in (1, 2) }}{{ (1,) in [(1,)] }}{{ [1] in [(1,)] }}{{ none in [none] }}
{{ nothing in [nothing] }}{{ 'a' in nothing }}
{{ 1 in 'a1' }}
{{ nothing in 'a' }}
{{ 'a' in none }}
{{ [1] == nothing }}{{ nothing == nothing }}{{ nothing == none }}{{ nothing != none }}
{{ namespace(a=1) == namespace(a=1) }}
{% set n = namespace(a=1) %}{{ n == n }}{{ n.a }}{{ n['a'] }}{{ n.b }}|{{ n is mapping }}
{{ (1, 2) + (3,) == (1, 2, 3) }}{{ ((1, 2) + (3,)) | length }}
{{ (1, 2) + [3] }}
{{ (1, 2, 3)[1:] | join }}{{ (1, 2, 3)[::-1] == (3, 2, 1) }}{{ (1, 2) is sequence }}
{{ () | length }}{{ 'e' if () else 'f' }}
{{ range(3)[1] }}{{ range(5)[1:3] | join }}{{ range(3) | length }}{{ 2 in range(3) }}
{{ range(3) | last }}{{ range(10, 0, -3) | join(',') }}{{ range(0) | join }}|
{{ range(3) }}
{{ range(100001) | length }}
{{ range('3') }}
{{ range(1, 2, 0) }}
{{ range() }}
{{ range(stop=3) }}
{{ range(1, 2, 3, 4) }}
{{ range(true) | join }}
{{ none[1:] }}|{{ 5[1:] }}|{{ {'a': 1}[1:] }}|
{{ nothing[1:] }}
{{ 'abc'['x':] }}|{{ [1, 2][nothing:] }}|
{{ 'abc'[1.5:] }}|{{ 'abc'[true:] }}
{{ 'abc'[::0] }}
{{ 'abcdef'[4:1:-2] }}{{ 'abcdef'[-100:100] }}{{ ''[::-1] }}{{ 'añb🙂'[1:3] }}{{ 'añb🙂'[-1] }}
{{ [1, 2, 3][-2:] | join }}
{% set xs = [1, 2, 3] | select %}{{ xs | list | length }}{{ xs | list | length }}
{{ ([1, 2, 3] | select)[0] }}|
{{ [1, 2] | select | length }}
{{ [1, 2] | map('string') | last }}
{{ [1, 2] | map('string') | first }}
{% if [] | select %}yes{% endif %}
{{ [3, 1] | select | reverse | join }}{{ [3, 1] | reverse | join }}{{ 'añ' | reverse }}
{{ {'a': 1, 'b': 2} | reverse | join }}
{{ [3, 1] | reverse | length }}
{{ 1 in [1, 2] | select }}
{{ {'a': 1}.items() | first | join }}{{ {'a': 1}.items() | length }}
{{ {'a': 1}.values() | list | join }}{{ {'a': 1}.keys() | last }}{{ ('a', 1) in {'a': 1}.items() }}
{{ {'a': 1}.keys()[0] }}|
{{ {'a': 1}.items() }}
{{ {'a': 1}.values() == {'a': 1}.values() }}
{{ 1.0 }}{{ 1e1 if false else 10.0 }}{{ 100000000000000000000.0 }}{{ 0.1 + 0.2 }}{{ 1 / 3 }}
{{ 10 / 2 }}{{ 1.5 * 2 }}{{ -2.5 }}{{ 0.00001 }}{{ 123456789.0 * 1000000000.0 }}
{{ 9223372036854775807 + 1 }}
{{ 9007199254740993 / 3 }}
{{ 9007199254740993 == 9007199254740992.0 }}{{ 9007199254740993 > 9007199254740992.0 }}
{{ 7 // 2 }}{{ -7 // 2 }}{{ -7 % 3 }}{{ 7 % -3 }}{{ true + true }}{{ -3 | string }}{{ - 3 }}
{{ 2 - -1 }}
{{ 'a' < 'b' }}{{ 'é' > 'z' }}{{ 1 < 1.5 }}{{ true < 2 }}{{ 'B' < 'a' }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ '5' + 5 }}
{{ nothing + 'a' }}
{{ nothing ~ 'a' ~ 1 ~ none ~ true ~ 1.0 }}
{{ 1 is number }}{{ true is number }}{{ true is integer }}{{ 1.0 is float }}{{ 1.0 is integer }}
{{ {} is mapping }}{{ {} is sequence }}{{ {} is iterable }}{{ 'a' is sequence }}{{ 1 is iterable }}
{{ nothing is iterable }}{{ nothing is sequence }}{{ none is iterable }}{{ range(1) is sequence }}
{{ {}.items() is sequence }}{{ {}.items() is iterable }}
{{ 1 is true }}{{ true is true }}{{ 0 is false }}{{ false is false }}{{ true is boolean }}
{{ 1 is boolean }}{{ 'a' is equalto 'a' }}{{ 1 is eq true }}{{ 1 is eq(1.0) }}{{ 1 is in [1] }}
{{ 'a' is in('abc') }}{{ 1 is not in [1] }}
{{ 1 is defined(2) }}
{{ 1 is equalto }}
{{ 1 is equalto(1, 2) }}
{{ 1 is eq(b=1) }}
{{ 1 is in(seq=[1]) }}
{{ cycler is defined }}
{{ range is defined }}{{ namespace is defined }}{{ dict is mapping }}
{% set r = range %}{{ r(3) | join }}
{{ 'a'() }}
{{ nothing() }}
{{ nothing.x() }}
{{ messages[0].x() }}
{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}|
{% set x = 0 %}{% generation %}{% set x = 1 %}{% endgeneration %}{{ x }}
{% set x %}{% set y = 1 %}a{% endset %}{{ x }}{{ y }}|
{% for i in [1, 2] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}
{% for i in [1, 2, 3] %}{{ loop.depth }}{{ loop.depth0 }}{{ loop.cycle('a', 'b') }}{{ loop['index'] }}{% endfor %}
{% for i in [1, 2, 3] %}{{ loop.nothing }}{{ loop | length }}{% endfor %}
{% for i in [1] %}{{ loop.changed(i) }}{% endfor %}
{% for i in [1] %}{{ loop.cycle() }}{% endfor %}
{% for i in 'ab' %}{% set outer = loop %}{% for j in 'xy' %}{{ outer.index }}{{ loop.index }}{% endfor %}{% endfor %}
{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{% endfor %}{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}
{% for x in none %}{% endfor %}
{% for x in nothing %}a{% else %}b{% endfor %}
{% set ns = namespace(_a=1) %}
{% set ns = namespace() %}{% set ns._a = 1 %}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}
{% set d = {'a': 1} %}{% set d.a = 2 %}
{% set d = dict(a=1) %}{% set d.a = 2 %}{{ d.a }}
""".strip().split("\n")]
ARGUMENT_CASES = [(template, 12) for template in r"""
{{ 'a,b,c' | replace(',', ';', 1) }}{{ 'a,b,c' | replace(',', ';', count=1) }}
{{ 'abc' | replace('', '-') }}{{ 'añ🙂' | replace('', '-', 2) }}{{ '' | replace('', '-') }}
{{ 'aaa' | replace('a', 'b', 0) }}{{ 'aaa' | replace('aa', 'b') }}{{ 1.0 | replace('.', ',') }}
{{ 'a1' | replace(1, 2) }}
{{ 'a,b,c'.replace(',', ';', 1) }}{{ 'abc'.replace('', '-') }}{{ 'aaa'.replace('a', 'b', -1) }}
{{ 'a' | replace('a') }}
{{ 'a'.replace('a') }}
{{ 'a'.replace('a', 1) }}
{{ 'a'.replace('a', 'b', 'c') }}
{{ 'a' | replace('a', 'b', 1, 2) }}
{{ 'a' | replace('a', new='b') }}{{ 'a' | replace(new='b', old='a') }}
{{ 'a' | replace('a', 'b', none) }}
{{ messages | map(attribute='name', default='D') | join(',') }}
{{ messages | map(attribute='role', default='D') | join(',') }}
{{ messages | map(attribute='name') | join(',') }}|
{{ messages | map(attribute='name', default=none) | join(',') }}|
{{ messages | map(attribute='name', defaults='x') | join }}
{{ messages | map(default='x') | join }}
{{ messages | map | join }}
{{ messages | map('attr', 'role') | join }}
{{ ['a,b', 'c'] | map('replace', ',', ';') | join(' ') }}
{{ ['a', none] | map('default', 'x', true) | join(' ') }}
{{ [' a '] | map('trim') | join }}{{ ['xax'] | map('trim', 'x') | join }}
{{ ['xax'] | map('trim', chars='x') | join }}
{{ ['a'] | map('trim', 'x', 'y') | join }}
{{ ['a'] | map('nofilter') | join }}
{{ [{'a': {'b': [5, 6]}}] | map(attribute='a.b.1') | join }}
{{ [[1, 2], [3, 4]] | map(attribute=1) | join }}
{{ [1] | map(attribute='a.b') | join }}
{{ none | map('upper') | list | length }}{{ nothing | map('upper') | list | length }}
{{ none | select | list | length }}{{ nothing | selectattr('a') | list | length }}
{{ 5 | select | list }}
{{ [1, 0, 2] | select | join }}{{ [1, 0, 2] | reject | join }}
{{ [1, 'a'] | select('string') | join }}{{ [1, 2, 1] | select('equalto', 1) | join }}
{{ [1, 2, true] | reject('eq', 1) | join }}{{ [1, 2] | select('in', [2]) | join }}
{{ [1] | select('nosuch') | list }}
{{ [1] | select('equalto') | list }}
{{ [1] | select('defined', 1) | list }}
{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='role') | join }}
{{ messages | selectattr('role', '==', 'user') | list | length }}
{{ messages | selectattr('role') | list | length }}
{{ messages | rejectattr('content.x') | list | length }}
{{ messages | selectattr | list }}
{{ messages | selectattr('role', 'equalto', 'user', 1) | list }}
{{ messages | selectattr('role', test='equalto') | list }}
{{ [1, 2] | join }}{{ [1, none, 'a'] | join(', ') }}{{ [1, 2] | join(d='-') }}
{{ messages | join(',', attribute='role') }}{{ messages | join(',', 'role') }}{{ [1, 2] | join(3) }}
{{ 'abc' | join('-') }}{{ {'a': 1} | join }}
{{ [1] | join(',', sep=',') }}
{{ [1] | join(',', 'a', 'b') }}
{{ [[1]] | join }}
{{ ','.join(['a', 'b']) }}{{ ','.join('ab') }}{{ ','.join({'a': 1}) }}
{{ ','.join([1]) }}
{{ ','.join() }}
{{ ','.join(['a'], 1) }}
{{ nothing | default('d') }}{{ none | default('d') }}{{ none | default('d', true) }}
{{ '' | default('d', boolean=true) }}{{ nothing | default }}
{{ nothing | default(default_value='e') }}{{ nothing | d('f') }}{{ 0 | d('z', false) }}
{{ nothing | default('d', true, 1) }}
{{ nothing | default(value='d') }}
{{ '42' | int }}{{ ' 42 ' | int }}{{ '42.7' | int }}{{ 'x' | int }}{{ 'x' | int(7) }}
{{ 'x' | int(default=8) }}{{ 4.9 | int }}{{ -4.9 | int }}{{ true | int }}{{ none | int }}
{{ [] | int(3) }}{{ '1_000' | int }}{{ '1e3' | int }}{{ '+5' | int }}{{ '-5' | int }}
{{ '0x10' | int }}{{ 'inf' | int }}{{ 'nan' | int(2) }}{{ '' | int }}{{ 'a_b' | int }}
{{ '\u30005\u3000' | int }}{{ '--5' | int }}{{ '1__0' | int }}{{ '010' | int }}
{{ '0x10' | int(0, 16) }}
{{ '101' | int(base=2) }}
{{ '٣' | int }}
{{ nothing | int }}
{{ 1e300 | int }}
{{ 'abc'.startswith('a') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abc'.startswith('') }}
{{ 'abc'.startswith('b', 1) }}
{{ 'abc'.startswith() }}
{{ 'abc'.startswith(none) }}
{{ 'abc'.startswith(['a']) }}
{{ 'abc'.startswith(prefix='a') }}
{{ 'abc'.upper(1) }}
{{ 'abc' | upper(1) }}
{{ 'abc' | length(1) }}
{{ 'abc' | first(1) }}
{{ [1] | list(1) }}
{{ 'a' | string(1) }}
{{ 'a' | safe(1) }}
{{ 'a' | tojson(x=1) }}
{{ raise_exception('no') }}
{{ raise_exception() }}
{{ raise_exception(message='no') }}
{{ raise_exception('a', 'b') }}
{{ messages[0].content | upper }}
{{ messages[0].content.upper() }}
{{ messages[0].content | lower }}
{{ messages[0].content | capitalize }}
{{ messages[1].content | capitalize }}{{ messages[1].content | upper }}
{{ 'ΟΔΟΣ' | lower }}{{ 'ΟΔΟΣ x' | lower }}{{ 'Σ' | lower }}{{ 'ΑΣ, Β' | lower }}
{{ 'ßa' | capitalize }}{{ 'ǆa' | capitalize }}{{ 'ﬃ' | capitalize }}
{{ 'ΟΣ.' | lower }}
{{ 'a' | capitalize }}{{ '' | capitalize }}{{ 'ABC' | capitalize }}{{ none | upper }}
{{ 1.5 | trim }}{{ 'abC'.capitalize() }}
{{ 'a'.title() }}
{{ 'a b'.splitlines() }}
{{ 'abc'.find('b') }}
{{ 'a' | title }}
{{ 'x' | indent(2) }}
{{ 'abc' | trim(x='a') }}
{{ 'a' | count }}{{ [1] | count }}{{ nothing | length }}{{ 'añ🙂' | length }}
{{ 5 | length }}
{{ none | length }}
{{ [] | first }}|{{ [] | last }}|{{ '' | first }}|{{ {'a': 1} | first }}{{ 'añ' | last }}
{{ 5 | first }}
{{ none | last }}
{{ 'ab' | list | join('-') }}{{ {'a': 1} | list | join }}
{{ none | list }}
{{ [1, 2] }}
{{ {'a': 1} }}
{{ (1,) }}
{{ [1] | string }}
{{ 'a' ~ [1] }}
{{ namespace() }}
{{ [1] | trim }}
""".strip().split("\n")]
CASES = (SPACE_CASES + NULL_CASES + THOUGHT_CASES + NEWLINE_CASES + MARKUP_CASES + JSON_CASES + NAME_CASES +
         VALUE_CASES + ARGUMENT_CASES)
