#include "trainer/plan/bound_words.h"

#include <fmt/core.h>

#include "trainer/words/quantity.h"

namespace spillway {
namespace {

constexpr LaneSet kDrive = set_of(Lane::nvme_read) | set_of(Lane::nvme_write);

bool is_one(LaneSet lanes) { return (lanes & (lanes - 1)) == 0; }

// "compute", "nvme_read and nvme_write": the one that has more work first.
std::string names_of(const LanesBound& bound) {
  std::string names(name_of(bound.lane));
  for (const auto& [name, lane] : Names<Lane>::all) {
    if (lane != bound.lane && (bound.lanes & set_of(lane))) names += fmt::format(" and {}", name);
  }
  return names;
}

std::string words_of(const LanesBound& bound) {
  if (is_one(bound.lanes)) return fmt::format("{} alone has work for so long", names_of(bound));
  if (bound.lanes == kDrive) return "the drive's reads and writes together take so long";
  return fmt::format("{}, which slow each other, have work for so long together", names_of(bound));
}

std::string why_updates_wait(const Choices& choices) {
  const std::string_view when = choices.update == UpdateTime::after ? "after the backward" : "in the next forward";
  return choices.clip ? fmt::format("updates run {}, since clipping has them wait for the norm", when)
                      : fmt::format("updates run {}", when);
}

}  // namespace

std::string bound_name(const Bound& bound) {
  if (bound.by_norm) return "norm";
  if (is_one(bound.within.lanes)) return std::string(name_of(bound.lane()));
  return bound.within.lanes == kDrive ? "drive" : "lanes";
}

std::string bound_words(const Bound& bound, const Choices& choices) {
  if (!bound.by_norm) return words_of(bound.within);
  return fmt::format(
      "{}: with what they move they then have {} of compute to hide behind, where {} {} {}; the rest of the step "
      "takes {} ({}). Memory can hold {} of what they move, read before or written after that",
      why_updates_wait(choices), rounded_seconds(bound.compute_within_s), names_of(bound.within),
      is_one(bound.within.lanes) ? "takes" : "take", rounded_seconds(bound.within.seconds), rounded_seconds(bound.rest.seconds),
      names_of(bound.rest), rounded_size(bound.held_bytes));
}

}  // namespace spillway
