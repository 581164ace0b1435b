// The template language of chat templates: the part of Jinja that they are written in (expressions, if, for, set, filters, tests,
// white space control as Hugging Face sets it). What is not in it is refused by name and line when the template is read.
// Not here: where templates come from, and what is in a conversation (chat_template.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trainer/chat/template_value.h"

namespace spillway {

struct TemplateBody;

// Immutable once read: may be rendered by several threads at once.
class Template {
 public:
  // `origin` (a file name) is for messages.
  Template(std::string_view source, std::string origin);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // `variables` is a dictionary of names. An InputError where the template refuses them, or asks of a value what it cannot do.
  std::string render(const TemplateValue& variables) const;

 private:
  std::string origin_;
  std::unique_ptr<const TemplateBody> body_;
};

}  // namespace spillway
