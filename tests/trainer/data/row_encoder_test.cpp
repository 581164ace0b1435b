// Rows of every shape as tokens, and which tokens have loss: marked with ⟦ and ⟧, by hand.
#include "trainer/data/row_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"
#include "tests/trainer/text/tokenizers.h"

namespace spillway {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kKinds = SPILLWAY_TEST_DATA "/chat/kinds/";

// A tokenizer whose tokens are bytes and these special ones, of which the first goes before a text.
std::string byte_tokenizer(const std::vector<std::string>& special) {
  json vocabulary, added = json::array();
  std::int32_t next = 256;
  for (std::int32_t byte = 0; byte < 256; ++byte) {
    const bool stands_for_itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    const std::int32_t c = stands_for_itself ? byte : next++;
    std::string text(1, static_cast<char>(c));
    if (c >= 0x80) text = {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
    vocabulary[text] = byte;
  }
  for (std::size_t i = 0; i < special.size(); ++i)
    added.push_back({{"id", 256 + i}, {"content", special[i]}, {"special", true}, {"normalized", false}});
  const json begins = {{"type", "TemplateProcessing"},
                       {"single", {{{"SpecialToken", {{"id", special[0]}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}}}}}},
                       {"special_tokens", {{special[0], {{"id", special[0]}, {"ids", {256}}}}}}};
  return json({{"added_tokens", added},
               {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
               {"post_processor", begins},
               {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}}})
      .dump();
}

const std::vector<std::string> kSpecial = {"<s>",
                                           "</s>",
                                           "<|im_start|>",
                                           "<|im_end|>",
                                           "<|begin_of_text|>",
                                           "<|start_header_id|>",
                                           "<|end_header_id|>",
                                           "<|eot_id|>",
                                           "<start_of_turn>",
                                           "<end_of_turn>",
                                           "<|user|>",
                                           "<|assistant|>",
                                           "<|system|>",
                                           "<|end|>",
                                           "<|endoftext|>",
                                           "<think>",
                                           "</think>",
                                           "[INST]",
                                           "[/INST]"};

// A directory with that tokenizer, a template, and the special tokens that templates ask for.
class Place {
 public:
  explicit Place(const std::string& chat_template, const std::string& end = "</s>") {
    directory_.file("tokenizer.json", byte_tokenizer(kSpecial));
    directory_.file("tokenizer_config.json", json({{"bos_token", "<s>"}, {"eos_token", end}}).dump());
    if (!chat_template.empty()) directory_.file("chat_template.jinja", chat_template);
    tools_.emplace(directory_.path());
  }
  // The row's text, with what has loss in marks.
  std::string marked(const json& row, RowRules rules = {.train_on = TrainOn::assistant, .needs_loss = true}) {
    std::vector<std::int32_t> tokens, targets;
    RowEncoder encoder(*tools_, rules);
    last = encoder.encode(row.dump(), "r.jsonl", tokens, targets);
    std::string text;
    bool is_open = false;
    std::int64_t with_loss = 0;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const bool has_loss = t > 0 && targets[t] != kNoLoss;
      EXPECT_EQ(targets[t] == kNoLoss ? tokens[t] : targets[t], tokens[t]);
      with_loss += has_loss ? 1 : 0;
      if (has_loss != is_open) text += has_loss ? "⟦" : "⟧";
      is_open = has_loss;
      text += tools_->tokenizer("").tokenizer.decode({&tokens[t], 1});
    }
    EXPECT_EQ(last.with_loss, with_loss);
    return text + (is_open ? "⟧" : "");
  }
  std::string marked(const json& row, TrainOn train_on) { return marked(row, {.train_on = train_on, .needs_loss = true}); }

  EncodedRow last;

 private:
  TemporaryDirectory directory_;
  std::optional<TextTools> tools_;
};

Place place_of(const std::string& kind, const std::string& end = "</s>") {
  std::string text = content_of(kKinds + kind + ".jinja");
  if (text.ends_with('\n')) text.pop_back();
  return Place(text, end);
}

json said(const std::vector<std::pair<std::string, std::string>>& turns) {
  json messages = json::array();
  for (const auto& [role, content] : turns) messages.push_back({{"role", role}, {"content", content}});
  return {{"messages", messages}};
}
const json kTwoTurns = said({{"user", "q1"}, {"assistant", "A1"}, {"user", "q2"}, {"assistant", "A2"}});

TEST(RowEncoder, ChatMl) {
  Place place = place_of("chatml");
  const std::string system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n";
  EXPECT_EQ(place.marked(kTwoTurns), system +
                                         "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n⟦A1<|im_end|>\n⟧"
                                         "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n⟦A2<|im_end|>\n⟧");
  EXPECT_EQ(place.marked(kTwoTurns, TrainOn::last),
            system +
                "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n"
                "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n⟦A2<|im_end|>\n⟧");
  EXPECT_EQ(place.marked(said({{"user", "q"}, {"assistant", "A"}}), TrainOn::all),
            "<|im_start|>⟦system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\nA<|im_end|>\n⟧");
  EXPECT_EQ(place.marked(said({{"system", "s"}, {"assistant", "Hello!"}, {"user", "q"}, {"assistant", "A"}})),
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>assistant\n⟦Hello!<|im_end|>\n⟧<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\n⟦A<|im_end|>\n⟧");
  EXPECT_EQ(place.marked(said({{"assistant", "Hello!"}, {"user", "q"}})),
            system + "<|im_start|>assistant\n⟦Hello!<|im_end|>\n⟧<|im_start|>user\nq<|im_end|>\n");
}

TEST(RowEncoder, Llama3) {
  const std::string user = "<|start_header_id|>user<|end_header_id|>\n\n",
                    assistant = "<|start_header_id|>assistant<|end_header_id|>\n\n";
  const std::string expected =
      "<s>" + user + "q1<|eot_id|>" + assistant + "⟦A1<|eot_id|>⟧" + user + "q2<|eot_id|>" + assistant + "⟦A2<|eot_id|>⟧";
  EXPECT_EQ(place_of("llama3").marked(kTwoTurns), expected);
  EXPECT_EQ(place_of("llama3_always").marked(kTwoTurns), expected + assistant) << "the template writes a prompt in any case";
}

TEST(RowEncoder, Qwen3) {
  Place place = place_of("qwen3");
  const std::string empty = "<think>\n\n</think>\n\n";
  EXPECT_EQ(place.marked(said({{"user", "q"}, {"assistant", "A"}})),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦" + empty + "A<|im_end|>\n⟧");
  EXPECT_EQ(place.marked(kTwoTurns),
            "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n⟦A1<|im_end|>\n⟧"
            "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n⟦" +
                empty + "A2<|im_end|>\n⟧");
  json thought = kTwoTurns;
  thought["messages"][1]["content"] = "<think>\nhm\n</think>\n\nA1";
  thought["messages"][3]["reasoning_content"] = "so";
  EXPECT_EQ(place.marked(thought),
            "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n⟦A1<|im_end|>\n⟧"
            "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n⟦<think>\nso\n</think>\n\nA2<|im_end|>\n⟧");
  const json call = {{"type", "function"}, {"function", {{"name", "f"}, {"arguments", {{"x", 1}}}}}};
  json called = said({{"user", "q"}, {"assistant", ""}, {"tool", "sun"}, {"assistant", "A"}, {"user", "r"}, {"assistant", "B"}});
  called["messages"][1]["tool_calls"] = {call};
  EXPECT_EQ(place.marked(called),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n"
            "</tool_call><|im_end|>\n⟧<|im_start|>user\n<tool_response>\nsun\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
            "⟦A<|im_end|>\n⟧<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n⟦" +
                empty + "B<|im_end|>\n⟧");
}

TEST(RowEncoder, Mistral) {
  EXPECT_EQ(place_of("mistral").marked(kTwoTurns), "<s>[INST] q1 [/INST]⟦ A1</s>⟧[INST] q2 [/INST]⟦ A2</s>⟧");
  // The system prompt goes into the last turn of the user, so that what stood before an earlier answer cannot be told.
  const json row = said({{"system", "s"}, {"user", "q1"}, {"assistant", "A1"}, {"user", "q2"}, {"assistant", "A2"}});
  Place moves = place_of("mistral_system");
  EXPECT_REFUSED(moves.marked(row), InputError, "the chat template writes message 2 otherwise when others follow");
}

TEST(RowEncoder, Gemma) {
  EXPECT_EQ(place_of("gemma").marked(kTwoTurns),
            "<s><start_of_turn>user\nq1<end_of_turn>\n<start_of_turn>model\n⟦A1<end_of_turn>\n⟧"
            "<start_of_turn>user\nq2<end_of_turn>\n<start_of_turn>model\n⟦A2<end_of_turn>\n⟧");
}

TEST(RowEncoder, Phi) {
  EXPECT_EQ(place_of("phi3", "<|endoftext|>").marked(kTwoTurns),
            "<|user|>\nq1<|end|>\n<|assistant|>\n⟦A1<|end|>\n⟧<|user|>\nq2<|end|>\n<|assistant|>\n⟦A2<|end|>\n<|endoftext|>⟧");
}

TEST(RowEncoder, APromptThatBeginsToThink) {
  json row = kTwoTurns;
  row["messages"][1]["content"] = "<think>hm</think>A1";
  EXPECT_EQ(place_of("think_prompt").marked(row), "<|User|>q1<|Assistant|>⟦A1</s>⟧<|User|>q2<|Assistant|>⟦A2</s>⟧");
}

// A run keeps the date of its beginning, so that its rows stay the same tokens.
TEST(RowEncoder, TheDateOfTheRun) {
  TemporaryDirectory directory;
  directory.file("chat_template.jinja", "{{ strftime_now('%d %B %Y') }}");
  const TextTools tools(directory.path(), TemplateDate::from_text("2024-05-06"));
  EXPECT_EQ(tools.chat().render(R"({"messages": [{"role": "user", "content": "a"}]})"), "06 May 2024");
  EXPECT_THROW(TemplateDate::from_text("2024-13-06"), InputError);
}

TEST(RowEncoder, TagsOfTheTemplate) {
  Place place(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
      "{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}");
  const std::string first = "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n",
                    second = "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n";
  json row = kTwoTurns;
  EXPECT_EQ(place.marked(row), first + "⟦A1<|im_end|>⟧\n" + second + "⟦A2<|im_end|>⟧\n") << "the end token counts";
  EXPECT_EQ(place.marked(row, TrainOn::last), first + "A1<|im_end|>\n" + second + "⟦A2<|im_end|>⟧\n");
  row["messages"][3]["weight"] = 0;
  EXPECT_EQ(place.marked(row), first + "⟦A1<|im_end|>⟧\n" + second + "A2<|im_end|>\n");
}

TEST(RowEncoder, WeightsOfMessages) {
  Place place = place_of("gemma");
  json row = kTwoTurns;
  row["messages"][1]["weight"] = 0;
  row["messages"][3]["weight"] = 1;
  const std::string begin =
      "<s><start_of_turn>user\nq1<end_of_turn>\n<start_of_turn>model\nA1<end_of_turn>\n"
      "<start_of_turn>user\nq2<end_of_turn>\n<start_of_turn>model\n";
  EXPECT_EQ(place.marked(row), begin + "⟦A2<end_of_turn>\n⟧");
  EXPECT_EQ(place.marked(row, TrainOn::all),
            "<s>⟦<start_of_turn>user\nq1<end_of_turn>\n⟧<start_of_turn>model\nA1<end_of_turn>\n"
            "⟦<start_of_turn>user\nq2<end_of_turn>\n<start_of_turn>model\nA2<end_of_turn>\n⟧");
  row["messages"][3]["weight"] = 0;
  EXPECT_REFUSED(place.marked(row), InputError, "found only messages of the assistant that have no loss");
  EXPECT_REFUSED(place.marked(row, TrainOn::last), InputError, "found only messages of the assistant that have no loss");
  row["messages"][3]["weight"] = 0.5;
  EXPECT_REFUSED(place.marked(row), InputError, "message 3 has the weight 0.5, allowed: 0 or 1");
}

const std::string kTwo =
    "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n⟦A1<|im_end|>\n⟧"
    "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n⟦A2<|im_end|>\n⟧";
const std::string kPlain =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.function.arguments.x }}){% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

TEST(RowEncoder, ShapesThatAreConversations) {
  Place place(kPlain);
  const json turns = {{{"from", "human"}, {"value", "q1"}},
                      {{"from", "gpt"}, {"value", "A1"}},
                      {{"from", "user"}, {"value", "q2"}},
                      {{"from", "assistant"}, {"value", "A2"}}};
  EXPECT_EQ(place.marked({{"conversations", turns}, {"id", 7}}), kTwo);
  EXPECT_EQ(place.marked({{"conversations", turns}, {"system", "s"}}), "<|im_start|>system\ns<|im_end|>\n" + kTwo);
  EXPECT_EQ(place.marked({{"instruction", "q2"}, {"output", "A2"}, {"history", json::array({json::array({"q1", "A1"})})}}), kTwo);
  EXPECT_EQ(place.marked({{"instruction", "do"}, {"input", "this"}, {"output", "A"}, {"system", "s"}}),
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\ndo\nthis<|im_end|>\n<|im_start|>assistant\n⟦A<|im_end|>\n⟧");
  EXPECT_EQ(place.marked({{"instruction", "do"}, {"input", nullptr}, {"output", "A"}, {"system", ""}}),
            "<|im_start|>user\ndo<|im_end|>\n<|im_start|>assistant\n⟦A<|im_end|>\n⟧");
  // Other names of the keys; roles that have another name may be ShareGPT's.
  const auto named = [&](const json& row, const std::string& columns) {
    return place.marked(row, RowRules{.train_on = TrainOn::assistant,
                                      .columns = DataColumns(FlagValue("--data-columns", {columns})),
                                      .needs_loss = true});
  };
  EXPECT_EQ(named({{"chat", turns}, {"conversations", 5}}, "messages=chat,role=from,content=value"), kTwo);
  EXPECT_EQ(named({{"chat", turns}}, "conversations=chat"), kTwo);
  EXPECT_EQ(named({{"q", "q2"}, {"a", "A2"}, {"before", json::array({json::array({"q1", "A1"})})}},
                  "instruction=q,output=a,history=before"),
            kTwo);
  EXPECT_REFUSED(named({{"chat", turns}}, "messages=chat"), InputError, "role");
  const json messages = kTwoTurns["messages"];
  const json asked = {messages[0], messages[1], messages[2]}, answered = {messages[3]};
  EXPECT_EQ(place.marked({{"prompt", asked}, {"completion", answered}}),
            "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n<|im_start|>user\nq2<|im_end|>\n"
            "<|im_start|>assistant\n⟦A2<|im_end|>\n⟧")
      << "of a prompt nothing has loss";
  const json calls = {{{"from", "human"}, {"value", "q"}},
                      {{"from", "function_call"}, {"value", R"({"name": "f", "arguments": {"x": 3}})"}},
                      {{"from", "observation"}, {"value", "sun"}},
                      {{"from", "gpt"}, {"value", "A"}}};
  EXPECT_EQ(place.marked({{"conversations", calls}, {"tools", R"([{"name": "f"}])"}}),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦(f 3)<|im_end|>\n⟧<|im_start|>tool\nsun<|im_end|>\n"
            "<|im_start|>assistant\n⟦A<|im_end|>\n⟧");
}

TEST(RowEncoder, TextsBeginAndEndAsTheTokenizerSays) {
  Place place("");
  RowRules rules{.train_on = TrainOn::assistant, .text_ends = TextEnds::both, .needs_loss = true};
  EXPECT_EQ(place.marked({{"text", "ab"}}, rules), "<s>⟦ab</s>⟧");
  EXPECT_EQ(place.marked({{"text", "<s>ab</s>"}}, rules), "<s>⟦ab</s>⟧") << "not twice";
  EXPECT_EQ(place.marked({{"prompt", "ab"}, {"completion", "cd"}}, rules), "<s>ab⟦cd</s>⟧");
  EXPECT_EQ(place.marked({{"input_ids", {97, 98}}}, rules), "a⟦b⟧") << "ids are as they are";
  rules.train_on = TrainOn::all;
  EXPECT_EQ(place.marked({{"prompt", "ab"}, {"completion", "cd"}}, rules), "<s>⟦abcd</s>⟧");
  rules.text_ends = TextEnds::none;
  EXPECT_EQ(place.marked({{"text", "ab"}}, rules), "a⟦b⟧");
  EXPECT_EQ(place.marked({{"prompt", "ab"}, {"completion", "cd"}}, rules), "a⟦bcd⟧");
}

TEST(RowEncoder, RowsThatAreRefused) {
  Place place(kPlain), strict = place_of("gemma"), bare("");
  const std::vector<std::pair<json, std::string>> rows = {
      {{{"text", "a"}, {"messages", json::array()}}, "found both \"text\" and \"messages\", two shapes of a row, allowed: one"},
      {{{"text", "a"}, {"input_ids", {1, 2}}}, "found both \"input_ids\" and \"text\""},
      {{{"instruction", "a"}, {"output", "b"}, {"prompt", "c"}, {"completion", "d"}}, "two shapes of a row"},
      {{{"prompt", "a"}, {"chosen", "b"}, {"rejected", "c"}}, "found \"chosen\" and \"rejected\", a preference pair"},
      {{{"messages", json::array()}, {"chosen", "b"}, {"rejected", "c"}}, "a preference pair"},
      {{{"prompt", "a"}}, "found \"prompt\" without \"completion\""},
      {{{"instruction", "a"}, {"response", "b"}}, "found \"instruction\" without \"output\""},
      {{{"text", nullptr}}, "\"text\" is null"},
      {{{"prompt", "a"}, {"completion", {1}}}, "\"prompt\" is a string and \"completion\" is an array"},
      {{{"conversations", {{{"from", "alien"}, {"value", "x"}}}}}, "turn 0 from \"alien\", allowed: human, user, gpt"},
      {{{"conversations", {{{"from", "human"}}}}}, "turn 0 without \"value\""},
      {{{"conversations", "x"}}, "\"conversations\" is a string"},
      {{{"conversations", json::array()}}, "no turn in \"conversations\""},
      {{{"conversations", {{{"from", "function_call"}, {"value", "{}"}}}}}, "has no \"name\" and \"arguments\""},
      {{{"conversations", {{{"from", "function_call"}, {"value", "x"}}}}}, "is not valid JSON"},
      {{{"instruction", "a"}, {"output", "b"}, {"history", json::array({json::array({"x"})})}}, "\"history\" that is no pair"},
      {{{"instruction", 3}, {"output", "b"}}, "\"instruction\" is a number"},
      {said({{"user", "q"}}), "found no message of the assistant, so that nothing has loss"},
      {said({{"alien", "q"}, {"assistant", "A"}}), "message 0 has the role \"alien\", allowed: system, developer, user"},
      {{{"messages", "x"}}, "\"messages\" is string"},
      {{{"text", ""}}, "an empty \"text\""},
      {{{"input_ids", {5}}}, "found one token, which follows no other"},
      {{{"input_ids", {5, 6}}, {"labels", {5, -100}}}, "none of its tokens has loss"},
  };
  for (const auto& [row, part] : rows) EXPECT_REFUSED(place.marked(row), InputError, part);
  EXPECT_REFUSED(strict.marked(said({{"system", "s"}, {"user", "q"}, {"assistant", "A"}})), InputError,
                 "System role not supported");
  EXPECT_REFUSED(bare.marked(kTwoTurns), InputError, "found no chat template");
  EXPECT_NE(place.marked(said({{"alien", "q"}, {"assistant", "A"}}), TrainOn::all), "");
}

TEST(RowEncoder, LongRows) {
  Place place(kPlain);
  RowRules rules{.train_on = TrainOn::last, .longest = 14, .needs_loss = true};
  EXPECT_REFUSED(place.marked(kTwoTurns, rules), InputError, "tokens, allowed: at most 14 (--seq-length + 1)");
  rules.long_rows = LongRows::truncate;
  EXPECT_REFUSED(place.marked(kTwoTurns, rules), InputError, "none of its first 14 tokens (--seq-length + 1) has loss");
  rules.train_on = TrainOn::all;
  EXPECT_EQ(place.marked(kTwoTurns, rules), "<|im_start|>⟦user\nq1<|im_end|>\n<|im_start|>ass⟧");
  EXPECT_TRUE(place.last.is_cut);
  EXPECT_GT(place.last.tokens, 14);
  EXPECT_EQ(place.last.with_loss, 13);
}

}  // namespace
}  // namespace spillway
