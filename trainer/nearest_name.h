// The known name nearest to one that was mistyped, for messages.
// Not here: any acceptance of a near name; what is not known is refused.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace spillway {

// Empty where nothing is near: more than a third of the letters would have to change.
std::string nearest_name(std::string_view name, std::span<const std::string> known);

}  // namespace spillway
