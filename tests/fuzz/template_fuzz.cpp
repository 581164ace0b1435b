// Chat templates, rendered with a conversation.
#include "tests/fuzz/fuzz.h"
#include "trainer/template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  const TemplateValue message = {{"role", "user"}, {"content", "text"}};
  const TemplateValue variables = {
      {"messages", TemplateValue::array({message, message})}, {"tools", nullptr}, {"bos_token", "<s>"}};
  refuse_or_accept([&] { Template(text_of(data, size), "template").render(variables); });
  return 0;
}
