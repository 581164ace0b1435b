// Chat templates, rendered with a conversation.
#include "tests/fuzz/fuzz.h"
#include "trainer/chat/template.h"
#include "trainer/chat/template_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  static const TemplateValue variables = read_template_json(R"({
      "messages": [{"role": "user", "content": "te\u3000xt "},
                   {"role": "tool", "content": [{"n": 1.5, "big": 99999999999999999999}]}],
      "tools": null, "bos_token": "<s>"})");
  refuse_or_accept([&] {
    Template(text_of(data, size), "template").render(variables, TemplateDate::from_text("2026-01-31"), TemplateMarks::generated);
  });
  return 0;
}
