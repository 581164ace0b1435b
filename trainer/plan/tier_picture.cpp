#include "trainer/plan/tier_picture.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace spillway {
namespace {

struct Change {
  double at_s;
  Bytes bytes;
  Category category;
  bool of_step_before;
};

// The time in which a buffer's bytes are in use: from the begin of the first operation that touches it to the end of the last.
Span lifetime(const BufferUse& buffer, std::span<const Span> spans /* of a turn */) {
  Span life{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const int op : buffer.ops) {
    const Span& ran = spans[static_cast<std::size_t>(op)];
    life.begin_s = std::min(life.begin_s, ran.begin_s);
    life.end_s = std::max(life.end_s, ran.end_s);
  }
  return life;
}

}  // namespace

StepUse step_use(const Plan& plan) {
  StepUse use;
  for (const Buffer& buffer : plan.resident) use.resident[buffer.tier][buffer.category] += buffer.bytes * buffer.slots;
  for (const Buffer& buffer : plan.step.buffers)
    use.buffers.push_back({.tier = buffer.tier, .category = buffer.category, .bytes = buffer.bytes * buffer.slots, .ops = {}});
  use.operations = plan.step.ops.size();
  const int resident = static_cast<int>(plan.resident.size());
  // The first operation that touches a buffer writes it, and the others wait for that one. Operations of a lane end in order, so
  // of each lane only the last is kept.
  const auto note = [&](std::vector<int>& ops, int id) {
    const auto lane_of = [&](int op) { return plan.step.ops[static_cast<std::size_t>(op)].lane; };
    const auto of_lane =
        std::find_if(ops.begin() + (ops.empty() ? 0 : 1), ops.end(), [&](int op) { return lane_of(op) == lane_of(id); });
    if (of_lane != ops.end()) ops.erase(of_lane);
    if (ops.empty() || ops.front() != id) ops.push_back(id);
  };
  for (int id = 0; id < static_cast<int>(plan.step.ops.size()); ++id) {
    for (const Operand& operand : plan.step.ops[static_cast<std::size_t>(id)].operands) {
      if (operand.buffer < resident) continue;
      note(use.buffers[static_cast<std::size_t>(operand.buffer - resident)].ops, id);
    }
  }
  std::erase_if(use.buffers, [](const BufferUse& buffer) { return buffer.ops.empty(); });
  return use;
}

TierPicture tier_picture(const StepUse& use, std::span<const Span> spans, double step_s, Tier tier, int columns, Bytes most) {
  By<Category, Bytes> level = use.resident[tier];  // of this step alone
  By<Category, Bytes> of_step_before;
  std::vector<Change> changes;
  const auto take = [&](const BufferUse& buffer, std::span<const Span> turn) {
    const Span life = lifetime(buffer, turn);
    if (!(life.end_s > life.begin_s)) return;
    // A span may be longer than a step. Folded into one step, it covers all of it but the gap between its end and its beginning.
    const double within = std::fmod(life.begin_s, step_s), begin = within < 0 ? within + step_s : within;
    const double end = begin + std::min(life.end_s - life.begin_s, step_s);
    const bool begins_later = life.begin_s >= step_s;
    changes.push_back({begin, buffer.bytes, buffer.category, begins_later});
    changes.push_back({end > step_s ? end - step_s : end, -buffer.bytes, buffer.category, begins_later || end > step_s});
    if (end > step_s) of_step_before[buffer.category] += buffer.bytes;
  };
  for (std::size_t first = 0; first < spans.size(); first += use.operations) {
    for (const BufferUse& buffer : use.buffers) {
      if (buffer.tier == tier) take(buffer, spans.subspan(first, use.operations));
    }
  }
  // Times that differ only by the rounding of the fold are made equal.
  const double moment_s = step_s * 1e-9;
  for (Change& change : changes) change.at_s = std::round(change.at_s / moment_s) * moment_s;
  // At equal times ends come before begins: a new buffer may take the bytes of an old one.
  std::ranges::sort(changes,
                    [](const Change& a, const Change& b) { return a.at_s != b.at_s ? a.at_s < b.at_s : a.bytes < b.bytes; });
  TierPicture picture;
  for (std::vector<Bytes>& values : picture) values.assign(static_cast<std::size_t>(columns), 0);
  const auto total = [](const By<Category, Bytes>& bytes) {
    Bytes sum = 0;
    for (const Bytes b : bytes) sum += b;
    return sum;
  };
  const auto together = [&] {
    By<Category, Bytes> bytes = level;
    Bytes room = most - total(level);
    for (const Category c : kAll<Category>) {
      const Bytes added = std::clamp<Bytes>(of_step_before[c], 0, std::max<Bytes>(room, 0));
      bytes[c] += added, room -= added;
    }
    return bytes;
  };
  std::size_t next = 0;
  for (int column = 0; column < columns; ++column) {
    const double until = step_s * (column + 1) / columns;
    By<Category, Bytes> fullest = together();
    while (next < changes.size() && (changes[next].at_s < until || column + 1 == columns)) {
      const double now = changes[next].at_s;
      for (; next < changes.size() && changes[next].at_s == now; ++next) {
        const Change& change = changes[next];
        (change.of_step_before ? of_step_before : level)[change.category] += change.bytes;
      }
      if (const By<Category, Bytes> bytes = together(); total(bytes) > total(fullest)) fullest = bytes;
    }
    for (const Category c : kAll<Category>) picture[c][static_cast<std::size_t>(column)] = fullest[c];
  }
  return picture;
}

}  // namespace spillway
