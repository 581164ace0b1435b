// Filters that look into lists and objects: map, select, sort and their like.
// Not here: the other filters, and the function that finds any of them (template_call.h).
#pragma once

#include <string_view>

#include "trainer/chat/template_call.h"

namespace spillway {

// Null if there is none of that name.
const TemplateSignature* find_template_list_filter(std::string_view name);

}  // namespace spillway
