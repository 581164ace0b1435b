#include "trainer/chat/chat_template.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/chat/template_json.h"
#include "trainer/data/data.h"
#include "trainer/text/tokenizer.h"

namespace spillway {
namespace {

const std::string kChat = SPILLWAY_TEST_DATA "/chat/";

using nlohmann::ordered_json;

// Counts of templates by their result beside the reference's text, which is null if it refuses.
struct Fared {
  int same = 0;
  int both_refuse = 0;
  int refused = 0;  // although the reference renders it
};

void compare(const ordered_json& gold, const ordered_json& text, const std::string& source, std::size_t row, Fared& fared) {
  const TemporaryDirectory directory;
  ordered_json config = gold.at("special");
  config["chat_template"] = source;
  directory.file("tokenizer_config.json", config.dump());
  try {
    const std::string ours = ChatTemplate::load(directory.path()).render(gold.at("rows")[row].get<std::string>());
    EXPECT_EQ(ordered_json(ours), text) << source << " row " << row;
    ++fared.same;
  } catch (const InputError&) {
    ++(text.is_null() ? fared.both_refuse : fared.refused);
  }
}

TEST(ChatTemplate, GivesTheTextOfTheReference) {
  const auto gold = ordered_json::parse(content_of(kChat + "gold.json"));
  Fared fared;
  for (const auto& [name, texts] : gold.at("texts").items()) {
    for (std::size_t row = 0; row < texts.size(); ++row) compare(gold, texts[row], content_of(kChat + name), row, fared);
  }
  EXPECT_EQ(fared.same + fared.both_refuse + fared.refused, 39);
  EXPECT_EQ(fared.refused, 0);
}

// White space, null keys, reasoning, ends of lines, markup, tojson, members, values, arguments: each gives the reference's text
// or a refusal.
TEST(ChatTemplate, SmallTemplatesGiveTheTextOfTheReferenceOrAreRefused) {
  const auto gold = ordered_json::parse(content_of(kChat + "gold.json"));
  Fared fared;
  for (const ordered_json& each : gold.at("cases"))
    compare(gold, each.at("text"), each.at("template").get<std::string>(), each.at("row").get<std::size_t>(), fared);
  EXPECT_GT(fared.same, 0);
  EXPECT_GT(fared.both_refuse, 0);
  EXPECT_LE(fared.refused, 26);  // not in this version: more methods, numbers beyond 64 bits
}

TEST(ChatTemplate, IsFoundBesideTheTokenizer) {
  const TemporaryDirectory directory;
  const std::string row = R"({"messages": [{"role": "user", "content": "x"}]})";
  EXPECT_REFUSED(ChatTemplate::load(directory.path()), InputError, "found no chat template for \"messages\"");
  directory.file("tokenizer_config.json", R"({"chat_template": "1{{ eos_token }}", "eos_token": {"content": "</s>"}})");
  EXPECT_EQ(ChatTemplate::load(directory.path()).render(row), "1</s>");
  directory.file("tokenizer_config.json",
                 R"({"chat_template": [{"name": "rag", "template": "a"}, {"name": "default", "template": "2"}]})");
  EXPECT_EQ(ChatTemplate::load(directory.path() + "/tokenizer.json").render(row), "2");
  directory.file("chat_template.jinja", "3{{ messages[0].content }}");
  EXPECT_EQ(ChatTemplate::load(directory.path()).render(row), "3x");
}

std::string rendered(const std::string& text) {
  const TemplateValue variables =
      read_template_json(R"({"messages": [{"role": "user", "content": "x"}], "zero": 0, "text": "a\nb"})");
  return Template(text, "t.jinja").render(variables, TemplateDate::from_text("2026-01-31"), TemplateMarks::none).text;
}

TEST(ChatTemplate, RefusesWhatItDoesNotKnowByLine) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"a\n{% block b %}{% endblock %}", "t.jinja: line 2: found {% block %}, which is not in this version"},
      {"{{ x | shuffle }}", "the filter shuffle"},
      {"{{ x is prime }}", "the test prime"},
      {"{% macro m(a=1, b) %}{% endmacro %}", "a parameter without a default value behind one"},
      {"{% call m %}{% endcall %}", "found no call in {% call %}"},
      {"{% macro m() %}", "allowed: endmacro"},
      {"{{ range(*[1], 2) }}", "found an argument without a name behind one with *"},
      {"{{ dict(**{}, a=1) }}", "found an argument behind **"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "the macro m with 2 arguments, allowed: 1"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "the macro m with a=, which is no parameter left to give"},
      {"{% macro m(a) %}{% endmacro %}{% call m(1) %}{% endcall %}", "the macro m with caller="},
      {"{% macro m(a) %}{% endmacro %}{{ [m] }}", "a macro within a value"},
      {"{% macro m(a) %}{% endmacro %}{% set ns = namespace() %}{% set ns.m = m %}", "sets ns.m to macro"},
      {"{% if text %}{{ text | shuffle }}{% endif %}", "t.jinja: line 1: the filter shuffle, which is not in this version"},
      {"{{ strftime_now('" + std::string(9000, 'x') + "') }}", "strftime_now() of a text of 8192 bytes or more"},
      {"{{ strftime_now('%9999999d') }}", "strftime_now() of a text of 8192 bytes or more"},
      {"{{ 'a'.encode() }}", ".encode() of string, which is not in this version"},
      {"{% if x %}", "found no {% endif %}"},
      {"{% for x in messages %}", "allowed: endfor"},
      {"{{ x", "found no }} for a {{"},
      {"{{ 'x }}", "found a string without an end"},
      {"{# x", "found no #} for a {#"},
      {"{{ }}", "found }}, allowed: a value"},
      {"{{ 1 1 }}", "found \"1\", allowed: the end of it"},
      {"{{ 99999999999999999999 }}", "found the number"},
      {"{% break %}", "found break outside of a loop"},
      {"{% endif %}", "found {% endif %}"},
      {"{{ x.y }}", "\"y\" of what is not defined"},
      {"{{ 1 / zero }}", "/ by zero"},
      {"{{ 1 + 'a' }}", "+ of number and string"},
      {"{{ namespace() }}", "a namespace is to be printed"},
      {"{% for x in zero %}{% endfor %}", "a loop over number"},
      {"{{ range(9999999) | length }}", "range of more than"},
      {"{% set a.b = 1 %}", "a is no namespace"},
      {"{{ raise_exception(text) }}", "the template refuses the messages: a b"},
      {"{{ " + std::string(100'000, '(') + " }}", "too deep"},
      {"{{ " +
           [] {
             std::string nots;
             for (int i = 0; i < 1000; ++i) nots += "not ";
             return nots;
           }() +
           "1 }}",
       "too deep"},
  };
  for (const auto& [text, part] : bad) EXPECT_REFUSED(rendered(text), InputError, part);
}

TEST(ChatTemplate, HostileOnesEnd) {
  const std::string doubled = "{% set ns = namespace(x=['a'], s='a') %}{% for i in range(100) %}";
  const std::vector<std::pair<std::string, std::string>> hostile = {
      // The innermost loop is empty: its rounds count.
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
       "does not end within 10 million statements"},
      {doubled + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == ns.x }}", "does not end within"},
      {doubled + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}", "does not end within 4 GiB of work"},
      {doubled + "{% for j in range(9) %}{% set ns.x = (ns.x, 1) %}{% endfor %}{% endfor %}", "more than 200 deep"},
      {doubled + "{% set ns.x = ns.x + ns.x %}{% endfor %}", "a list of more than 1048576 items"},
      {doubled + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "text of more than 268435456 bytes"},
      {doubled + "{% set ns.s = ns.s.replace('', 'aaaa') %}{% endfor %}", "text of more than 268435456 bytes"},
      {doubled + "{% set ns.s = (ns.s ~ ns.s)[:2000000] %}{% endfor %}{{ ns.s | list | length }}", "a list of more than"},
      {doubled + "{% set ns.s = (ns.s ~ ',,')[:2000000].replace(',', ',,,') %}{% endfor %}{{ ns.s.split(',') | length }}",
       "a list of more than 1048576 items"},
      {"{% set ns = namespace(s='a') %}{% for i in range(24) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
       "{% for i in range(99999) %}{% set t = ns.s.strip('b') %}{% endfor %}",
       "does not end within 4 GiB of work"},
      {doubled + "{% set ns.x = namespace(y=ns.x) %}{% for j in range(9999) %}{% set ns.x = namespace(y=ns.x) %}{% endfor %}{% "
                 "endfor %}",
       "does not end within 4 GiB of work"},
      {doubled + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}", "text of more than 268435456 bytes"},
      {doubled + "{% set ns.x = ns.x + ns.x %}{% if loop.index == 16 %}{% break %}{% endif %}{% endfor %}"
                 "{% for i in range(99999) %}{% set t = ns.x | unique | list %}{% set t = ns.x | sort %}{% endfor %}",
       "does not end within 4 GiB of work"},
      {"{{ [1] | tojson(indent=99999999) }}", "tojson with an indent of more than"},
      {"{{ [[[[1]]]] | tojson(indent=1000000) | length }}{{ " + std::string(100'000, '-') + "1 }}",
       "found \"-\", allowed: a value"},
      {"{{ 1" +
           [] {
             std::string sum;
             for (int i = 0; i < 100'000; ++i) sum += "+1";
             return sum;
           }() +
           " }}",
       "found an expression that is too deep"},
      {"{{ 'a'" +
           [] {
             std::string filters;
             for (int i = 0; i < 100'000; ++i) filters += "|d";
             return filters;
           }() +
           " }}",
       "found an expression that is too deep"},
  };
  for (const auto& [text, part] : hostile) EXPECT_REFUSED(rendered(text), InputError, part);
  // Namespaces that hold each other and themselves are freed when the conversation ends.
  EXPECT_EQ(rendered("{% set a = namespace(n=1) %}{% set b = namespace(a=a) %}{% set a.b = b %}{% set a.a = [a] %}{{ a.b.a.n }}"),
            "1");
}

TEST(ChatTemplate, HostileMacrosEnd) {
  std::string ifs, ends;
  for (int i = 0; i < 150; ++i) {
    ifs += "{% if " + std::string(100, '(') + "n" + std::string(100, ')') + " %}";
    ends += "{% endif %}";
  }
  const std::vector<std::pair<std::string, std::string>> hostile = {
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "macros that call each other more than 200 deep"},
      {"{% macro m() %}{% call m() %}{{ m() }}{% endcall %}{{ caller() }}{% endmacro %}{{ m() }}",
       "macros that call each other more than 200 deep"},
      {"{% macro m(n) %}{{ m(n - 1) ~ m(n - 1) if n else 'a' }}{% endmacro %}{{ m(100) }}", "does not end within 4 GiB of work"},
      {"{% macro m(n) %}" + ifs + "{{ m(n) }}" + ends + "{% endmacro %}{{ m(1) }}",
       "blocks more than 3000 deep within each other"},
  };
  for (const auto& [text, part] : hostile) EXPECT_REFUSED(rendered(text), InputError, part);
}

// The text with that of each {% generation %} block in [ ].
std::string marked(const std::string& text) {
  const TemplateValue variables = read_template_json(R"({"messages": [{"content": " a "}, {"content": "bé"}], "blank": ""})");
  const TemplateText made =
      Template(text, "t.jinja").render(variables, TemplateDate::from_text("2026-01-31"), TemplateMarks::generated);
  std::string shown;
  std::size_t at = 0;
  for (const auto& [first, last] : made.generated) {
    shown += made.text.substr(at, first - at) + "[" + made.text.substr(first, last - first) + "]";
    at = last;
  }
  return shown + made.text.substr(at);
}

TEST(ChatTemplate, TellsWhatGenerationBlocksMade) {
  const std::string tag = "{% generation %}", end = "{% endgeneration %}";
  const std::string said = tag + "{{ m.content }}" + end;
  const std::string loop = "{% for m in messages %}<" + said + ">\n{% endfor %}";
  const std::string macro = "{% macro say(m) %}<" + said + ">{% endmacro %}";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"no blocks", "no blocks"},
      {loop, "<[ a ]>\n<[bé]>\n"},
      {"{% for m in messages %}{% if loop.last %}<" + said + ">{% endif %}{% endfor %}", "<[bé]>"},
      {"x {%- generation -%} y {%- endgeneration -%} z", "x[y]z"},
      {"x\n{% generation %}\n y \n{% endgeneration %}\nz", "x\n[ y \n]z"},
      {tag + "{{ blank }}" + end + tag + "a" + end + tag + "b" + end, "[][a][b]"},
      {tag + "a" + tag + "b" + end + "c" + end + "d", "[abc]d"},
      {macro + "{{ say(messages[0]) }}{{ say(messages[1]) }}", "<[ a ]><[bé]>"},
      {macro + "{{ '(' + say(messages[1]) + ')' ~ 1 }}", "(<[bé]>)1"},
      {macro + "{% set x = say(messages[1]) %}{% set y %}-{{ x }}-{% endset %}{{ y ~ y }}", "-<[bé]>--<[bé]>-"},
      {"{% macro say(m) %} " + said + " {% endmacro %}{{ say(messages[0]) | trim }}|{{ say(messages[0]).lstrip() }}",
       "[a]|[a ] "},
      {macro + "{{ [say(messages[0]), say(messages[1])] | join(',') }}", "<[ a ]>,<[bé]>"},
      {macro + "{{ say(messages[1]).split('é')[0] }}{{ say(messages[1])[2:] }}", "<[b][é]>"},
      {macro + "{{ say(messages[1]).replace('x', 'y') }}{{ say(messages[1]) | default('') }}", "<[bé]><[bé]>"},
      {"{% macro outer(m) %}{% set x = caller() %}" + tag + "({{ x }}{{ varargs }}{{ kwargs }})" + end +
           "{% endmacro %}{% call outer(1) %}" + tag + "x" + end + "{% endcall %}",
       "[(x(){})]"},
      {macro + "{{ say(messages[1]) | length }}{% if say(messages[1]) %}y{% endif %}", "4y"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(marked(text), expected) << text;
  EXPECT_REFUSED(marked(macro + "{{ say(messages[1]) | upper }}"), InputError,
                 "the filter upper of text from a {% generation %} block");
  EXPECT_REFUSED(marked(macro + "{{ say(messages[1]).replace('b', '') }}"), InputError,
                 ".replace() of text from a {% generation %} block");
}

TEST(ChatTemplate, RendersMessagesWithSpansAndWithAPrompt) {
  const TemporaryDirectory directory;
  const auto conversation = [](const char* text) { return read_template_json(text); };
  const TemplateValue messages = conversation(R"([{"role": "user", "content": "é"}, {"role": "assistant", "content": "ja"}])");
  directory.file("chat_template.jinja",
                 "{{ tools | length }}{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}"
                 "{% generation %}{{ m.content }}{% endgeneration %}{% endif %};{% endfor %}"
                 "{{ '>' if add_generation_prompt }}");
  const ChatTemplate chat = ChatTemplate::load(directory.path());
  EXPECT_TRUE(chat.has_generation_tags());
  const RenderedChat made = chat.render_with_spans(messages, conversation("[]"), GenerationPrompt::add);
  EXPECT_EQ(made.text, "0é;ja;>");
  EXPECT_EQ(made.generated, (TemplateSpans{{4, 6}}));
  EXPECT_EQ(chat.render_with_spans(messages, conversation("[]"), GenerationPrompt::leave_out).text, "0é;ja;");
  EXPECT_REFUSED(chat.render_with_spans(messages, conversation("[1]"), GenerationPrompt::add), InputError,
                 "\"tools\" is no array");
  directory.file("chat_template.jinja", "{{ messages[0].content }}");
  EXPECT_FALSE(ChatTemplate::load(directory.path()).has_generation_tags());
}

TEST(ChatTemplate, KnowsTheDateThatItIsGiven) {
  EXPECT_EQ(rendered("{{ strftime_now('%d %b %Y') }}{{ strftime_now('%Y-%m-%d %H:%M:%S.%f|%A|%j|%-d|%z%Z%%%') }}"),
            "31 Jan 20262026-01-31 00:00:00.000000|Saturday|031|31|%%");
  EXPECT_EQ(rendered("{% if date_string is not defined %}{% if strftime_now is defined %}{% set date_string = "
                     "strftime_now('%d') %}{% endif %}{% endif %}{{ date_string }}"),
            "31");
  EXPECT_EQ(TemplateDate::from_text("2024-02-29").text(), "2024-02-29");
  EXPECT_EQ(TemplateDate::from_text(TemplateDate::today().text()).text(), TemplateDate::today().text());
  for (const char* bad :
       {"", "2026-02-29", "2026-1-31", "2026-01-31T00:00", "26-01-31", "0999-01-01", "2026/01/31", "-026-01-01"})
    EXPECT_REFUSED(TemplateDate::from_text(bad), InputError, "allowed: YYYY-MM-DD");
}

TEST(ChatTemplate, NestsRowsNoDeeperThanItsLimit) {
  const TemporaryDirectory directory;
  directory.file("chat_template.jinja", "{{ messages[0].content | tojson | length }}");
  const ChatTemplate chat = ChatTemplate::load(directory.path());
  const auto row = [](int depth) {
    return fmt::format(R"({{"messages": [{{"role": "user", "content": {}1{}}}]}})",
                       std::string(static_cast<std::size_t>(depth), '['), std::string(static_cast<std::size_t>(depth), ']'));
  };
  EXPECT_EQ(chat.render(row(190)), "381");
  EXPECT_REFUSED(chat.render(row(10'000'000)), InputError, "values more than 200 deep within each other");
}

TEST(ChatTemplate, RowsWithToolsHaveATemplateOfTheirOwnWhereThereIsOne) {
  const TemporaryDirectory directory;
  directory.file("tokenizer_config.json",
                 R"({"chat_template": [{"name": "default", "template": "d{{ tools is none }}"},
                                       {"name": "tool_use", "template": "t{{ tools | length }}{{ image_token }}"}],
                     "extra_special_tokens": {"image_token": "<image>"}})");
  const std::string message = R"({"messages": [{"role": "user", "content": "x"}])";
  EXPECT_EQ(ChatTemplate::load(directory.path()).render(message + "}"), "dTrue");
  EXPECT_EQ(ChatTemplate::load(directory.path()).render(message + R"(, "tools": null})"), "dTrue");
  EXPECT_EQ(ChatTemplate::load(directory.path()).render(message + R"(, "tools": [{}]})"), "t1<image>");
  EXPECT_REFUSED(ChatTemplate::load(directory.path()).render(message + R"(, "tools": ["f"]})"), InputError,
                 "\"tools\" is no array of objects");
  directory.file("chat_template.jinja", "file");  // wins over everything in tokenizer_config.json
  EXPECT_EQ(ChatTemplate::load(directory.path()).render(message + R"(, "tools": [{}]})"), "file");
}

// An unknown argument is refused by name, even in a part of the template that does not run.
TEST(ChatTemplate, RefusesArgumentsThatItDoesNotKnow) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{% if zero %}{{ 'a' | trim(char='a') }}{% endif %}", "the filter trim with char=, allowed: chars"},
      {"{% if zero %}{{ 'a' | tojson(1, 2, 3, 4, 5) }}{% endif %}",
       "the filter tojson with 5 arguments, allowed: ensure_ascii, indent, separators, sort_keys"},
      {"{% if zero %}{{ 'a' | replace('a') }}{% endif %}", "the filter replace without new"},
      {"{% if zero %}{{ 'a' | int(base=2) }}{% endif %}", "the filter int with base, which is not in this version"},
      {"{% if zero %}{{ 'a' | length(1) }}{% endif %}", "the filter length with 1 arguments, allowed: none"},
      {"{% if zero %}{{ 'a' is defined(1) }}{% endif %}", "the test defined with 1 arguments, allowed: none"},
      {"{% if zero %}{{ 'a' is equalto }}{% endif %}", "the test equalto without b"},
      {"{% if zero %}{{ 'a' | trim('a', chars='b') }}{% endif %}", "the filter trim with chars twice"},
      {"{{ 'a'.split(',', by=1) }}", ".split() with by=, allowed: sep, maxsplit"},
      {"{{ 'a'.strip(chars='a') }}", ".strip() with chars=, allowed: chars, without names"},
      {"{{ 'a'.startswith('a', 1) }}", ".startswith() with start, which is not in this version"},
      {"{{ 'a'.upper('a') }}", ".upper() with 1 arguments, allowed: none"},
      {"{{ messages[0].get() }}", ".get() without key"},
      {"{{ ['a'] | map('trim', char='a') | list }}", "the filter trim with char=, allowed: chars"},
      {"{{ ['a'] | map(attribute='a', otherwise='b') | list }}", "the filter map with otherwise=, allowed: attribute, default"},
      {"{{ ['a'] | select('equalto') | list }}", "the test equalto without b"},
      {"{{ range(stop=1) }}", "range() with stop=, allowed: start, stop, step, without names"},
      {"{{ namespace(1, 2) }}", "namespace() of several values"},
      {"{{ raise_exception() }}", "raise_exception() without message"},
      {"{{ 'a' | join(*messages) }}", "found a call with *"},
      {"{{ ['a'] | map('a\\nb') | list }}", "the filter map by \"a\\nb\", which is not in this version"},
  };
  for (const auto& [text, part] : bad) EXPECT_REFUSED(rendered(text), InputError, part);
}

// Python reads items only when they are asked for.
TEST(ChatTemplate, RefusesWhereLookingAtOnceWouldShow) {
  EXPECT_REFUSED(rendered("{% set it = [1, 2] | select %}{% for x in it %}{% break %}{% endfor %}{{ it | list | length }}"),
                 InputError, "an iterator (what map, select and their like give) that is read twice");
  EXPECT_REFUSED(rendered("{% set it = [1, 2] | select %}{% set other = it | map('string') %}{{ it | first }}"), InputError,
                 "an iterator (what map, select and their like give) that is read twice");
  EXPECT_REFUSED(
      rendered("{% set ns = namespace(goes=true) %}{% for x in [1, 2] if ns.goes %}{% set ns.goes = false %}{% endfor %}"),
      InputError, "a loop whose condition is changed by what it does");
  EXPECT_EQ(
      rendered("{% set it = [1, 0, 2] | select %}{{ it | map('string') | join }}{% for x in [3, 0, 4] if x %}{{ loop.index }}"
               "{{ loop.last }}{% endfor %}"),
      "121False2True");
}

TEST(ChatTemplate, RefusesWhatIsNoConversation) {
  const TemporaryDirectory directory;
  directory.file("chat_template.jinja", "{{ messages[0].content }}");
  const ChatTemplate chat = ChatTemplate::load(directory.path());
  for (const auto& [row, part] : std::vector<std::pair<std::string, std::string>>{
           {R"({"messages": "hello"})", "\"messages\" is string, allowed: an array"},
           {R"({"messages": []})", "found no message in \"messages\""},
           {R"({"messages": ["hello"]})", "message 0 is string"},
           {R"({"messages": [{"content": "x"}]})", "message 0 has no \"role\""},
           {R"({"messages": [{"role": 3, "content": "x"}]})", "message 0 has no \"role\""},
           {R"({"messages": [{"role": "user"}]})", "message 0 has no \"content\""}}) {
    EXPECT_REFUSED(chat.render(row), InputError, part);
  }
}

TEST(Data, ConversationsAreTrainedOnAsTheirTemplateWritesThem) {
  const TemporaryDirectory directory;
  const std::string tokenizer = directory.file("tokenizer.json", content_of(SPILLWAY_TEST_DATA "/tokenizers/qwen2.json"));
  const std::string rows = directory.file(
      "t.jsonl", R"({"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "World!"}]})");
  DataRequest request;
  request.paths = {rows};
  request.seq_length = 64;
  request.vocabulary = 512;
  request.tokenizer = tokenizer;
  request.train_on = TrainOn::all;
  EXPECT_REFUSED(BatchSampler{request}, InputError, "allowed: a chat_template.jinja");
  EXPECT_REFUSED(BatchSampler{request}, InputError, "found no chat template");
  directory.file("chat_template.jinja",
                 "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}");
  std::vector<std::int32_t> ids;
  Tokenizer::load(tokenizer).encode("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nWorld!<|im_end|>\n", ids);
  BatchSampler sampler(request);
  EXPECT_EQ(sampler.counted_tokens(0), static_cast<std::int64_t>(ids.size()) - 1);
  std::vector<std::int32_t> tokens(64), targets(64);
  sampler.fill(0, 0, tokens, targets);
  ids.resize(64, 0);
  tokens[static_cast<std::size_t>(sampler.counted_tokens(0))] =
      ids[static_cast<std::size_t>(sampler.counted_tokens(0))];  // the last id is a target only
  EXPECT_EQ(tokens, ids);
  request.tokenizer = "bytes";
  EXPECT_REFUSED(BatchSampler{request}, InputError, "\"messages\" without a tokenizer.json");
}

}  // namespace
}  // namespace spillway
