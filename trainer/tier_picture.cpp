#include "trainer/tier_picture.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace spillway {
namespace {

struct Change {
  double at_s;
  Bytes bytes;
  int category;
};

// When the bytes of each buffer of the step are in use: from the beginning of the first operation that touches it to the end of
// the last.
std::vector<Span> lifetimes(const Plan& plan, const Timeline& timeline) {
  std::vector<Span> spans(plan.step.buffers.size(),
                          {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()});
  const int resident = static_cast<int>(plan.resident.size());
  for (std::size_t id = 0; id < plan.step.ops.size(); ++id) {
    const Span& ran = timeline.spans[id];
    for (const Operand& operand : plan.step.ops[id].operands) {
      if (operand.buffer < resident) continue;
      Span& span = spans[static_cast<std::size_t>(operand.buffer - resident)];
      span.begin_s = std::min(span.begin_s, ran.begin_s);
      span.end_s = std::max(span.end_s, ran.end_s);
    }
  }
  return spans;
}

}  // namespace

TierPicture tier_picture(const Plan& plan, const Timeline& timeline, double step_s, Tier tier, int columns) {
  std::array<Bytes, kCategories> level{};  // at the beginning of the step
  std::vector<Change> changes;
  for (const Buffer& buffer : plan.resident) {
    if (buffer.tier == tier) level[static_cast<int>(buffer.category)] += buffer.bytes * buffer.slots;
  }
  const std::vector<Span> spans = lifetimes(plan, timeline);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Buffer& buffer = plan.step.buffers[i];
    if (buffer.tier != tier || !(spans[i].end_s > spans[i].begin_s)) continue;
    const int category = static_cast<int>(buffer.category);
    const Bytes bytes = buffer.bytes * buffer.slots;
    // A span of several steps' length covers all of each but its beginning and its end, folded into one step.
    const double begin = std::fmod(spans[i].begin_s, step_s), length = std::min(spans[i].end_s - spans[i].begin_s, step_s);
    const double end = begin + length;
    changes.push_back({begin, bytes, category});
    changes.push_back({end > step_s ? end - step_s : end, -bytes, category});
    if (end > step_s) level[category] += bytes;
  }
  // What ends goes before what begins at the same moment: it may leave its bytes to it.
  std::ranges::sort(changes,
                    [](const Change& a, const Change& b) { return a.at_s != b.at_s ? a.at_s < b.at_s : a.bytes < b.bytes; });
  TierPicture picture;
  for (std::vector<Bytes>& values : picture) values.assign(static_cast<std::size_t>(columns), 0);
  const auto total = [](const std::array<Bytes, kCategories>& bytes) {
    Bytes sum = 0;
    for (const Bytes b : bytes) sum += b;
    return sum;
  };
  std::size_t next = 0;
  for (int column = 0; column < columns; ++column) {
    const double until = step_s * (column + 1) / columns;
    std::array<Bytes, kCategories> fullest = level;
    while (next < changes.size() && (changes[next].at_s < until || column + 1 == columns)) {
      const double now = changes[next].at_s;
      for (; next < changes.size() && changes[next].at_s == now; ++next) level[changes[next].category] += changes[next].bytes;
      if (total(level) > total(fullest)) fullest = level;
    }
    for (int c = 0; c < kCategories; ++c) picture[c][static_cast<std::size_t>(column)] = fullest[c];
  }
  return picture;
}

}  // namespace spillway
