// The template language of chat templates: the part of Jinja that they use (expressions, if, for, set, filters, tests, white
// space control as Hugging Face sets it). A construct outside this part is refused, by name and line, when the template is read.
// Not here: where templates come from, and the contents of a conversation (chat_template.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trainer/chat/template_value.h"

namespace spillway {

struct TemplateBody;

// Immutable once read: several threads may render it at the same time.
class Template {
 public:
  // `origin` (a file name) is for messages.
  Template(std::string_view source, std::string origin);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // `variables` is a dictionary of names. Throws InputError if the template refuses them, or asks a value for something that it
  // does not support.
  std::string render(const TemplateValue& variables) const;

 private:
  std::string origin_;
  std::unique_ptr<const TemplateBody> body_;
};

}  // namespace spillway
