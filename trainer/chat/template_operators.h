// Operators and slices of the template language, as Python has them.
// Not here: == and the order of values (template_value.h), operators that may skip an operand (and, or).
#pragma once

#include <string_view>

#include "trainer/chat/template_limits.h"
#include "trainer/chat/template_value.h"

namespace spillway {

TemplateValue operate(std::string_view op, const TemplateValue& left, const TemplateValue& right, TemplateWork& work);
TemplateValue negative(const TemplateValue& value);
// A bound that is none counts as not given.
TemplateValue slice_of(const TemplateValue& whole, const TemplateValue& first, const TemplateValue& last,
                       const TemplateValue& step, TemplateWork& work);

}  // namespace spillway
