// The template language of chat templates: the part of Jinja that they use (expressions, if, for, set, macros, filters, tests,
// white space control as Hugging Face sets it). A construct outside this part is refused, by name and line, when the template is
// read; an unknown filter or test within an if, when it is reached.
// Not here: where templates come from, and the contents of a conversation (chat_template.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trainer/chat/template_date.h"
#include "trainer/chat/template_value.h"

namespace spillway {

struct ParsedTemplate;

enum class TemplateMarks : std::uint8_t { none, generated };

// Immutable once read: several threads may render it at the same time.
class Template {
 public:
  // `origin` (a file name) is for messages.
  Template(std::string_view source, std::string origin);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // `variables` is a dictionary of names. Throws InputError if the template refuses them, or asks a value for something that it
  // does not support. Tells the bytes that {% generation %} blocks made if `marks` says so; then it refuses to make text of other
  // bytes from them.
  TemplateText render(const TemplateValue& variables, const TemplateDate& date, TemplateMarks marks) const;

  bool has_generation_tags() const;

 private:
  std::string origin_;
  std::unique_ptr<const ParsedTemplate> parsed_;
};

}  // namespace spillway
