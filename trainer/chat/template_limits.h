// Limits on the cost of one conversation: a template that would run for ever, or take all memory, is refused, because templates
// come from anywhere.
// Not here: the work of templates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/chat/template_value.h"

namespace spillway {

inline constexpr std::size_t kLongestTemplateText = 256 << 20;            // bytes
inline constexpr std::int64_t kMostTemplateItems = 1 << 20;               // items of a list that is made
inline constexpr std::int64_t kLongestTemplateRange = 100'000;            // as the reference's sandbox has it
inline constexpr std::size_t kDeepestTemplateValue = 200;                 // containers nested in one another
inline constexpr std::int64_t kMostTemplateSteps = 10'000'000;            // statements, rounds of loops and calls of macros
inline constexpr int kDeepestTemplateCalls = 200;                         // macros that call each other: about as in Python
inline constexpr int kDeepestTemplateEvaluation = 3000;                   // blocks and expressions: bounds the stack
inline constexpr std::int64_t kMostTemplateWork = std::int64_t{1} << 32;  // bytes made or read
inline constexpr std::int64_t kCostOfTemplateCall = 4096;                 // of a macro, as bytes of work

class TemplateWork {
 public:
  void step() {
    if (++steps_ > kMostTemplateSteps) throw TemplateProblem{"does not end within 10 million statements of one conversation"};
  }
  void spend(std::int64_t bytes) {
    if (bytes > kMostTemplateWork - spent_) throw TemplateProblem{"does not end within 4 GiB of work for one conversation"};
    spent_ += bytes;
  }

 private:
  std::int64_t steps_ = 0;
  std::int64_t spent_ = 0;
};

}  // namespace spillway
