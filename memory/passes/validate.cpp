#include "memory/passes/validate.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "memory/base/error.h"
#include "memory/passes/access_map.h"

namespace spillway {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(1, "invalid plan: " + message, "The plan was not made for this model and version; plan again.");
}

void check_buffers(const Plan& plan, const Program& program) {
  const auto check = [&](const Buffer& buffer) {
    const Bytes bytes = buffer.bytes * buffer.slots;
    if (buffer.bytes < 0 || buffer.slots < 1 || buffer.slots > 2 || buffer.offset < 0 || buffer.offset % kExtentAlignment != 0 ||
        buffer.bytes % kExtentAlignment != 0 || bytes > plan.peak[buffer.tier] - buffer.offset) {
      refuse(fmt::format("buffer {} has offset {} and {} x {} bytes in a {} tier of {}", buffer.name.text(), buffer.offset,
                         buffer.slots, buffer.bytes, name_of(buffer.tier), plan.peak[buffer.tier]));
    }
  };
  for (const Buffer& buffer : plan.resident) check(buffer);
  for (const Buffer& buffer : program.buffers) {
    if (buffer.first_op >= 0) check(buffer);
  }
}

// Buffers that are alive at the same operation must not share a byte. The sweep goes by operation, with live buffers by offset.
void check_disjoint(const Plan& plan, const Program& program) {
  struct Edge {
    int op;
    bool begins;
    const Buffer* buffer;
  };
  std::vector<Edge> edges;
  for (const Buffer& buffer : plan.resident) edges.push_back({-1, true, &buffer});
  for (const Buffer& buffer : program.buffers) {
    if (buffer.first_op < 0 || buffer.bytes == 0) continue;
    edges.push_back({buffer.first_op, true, &buffer});
    edges.push_back({buffer.last_op + 1, false, &buffer});
  }
  std::stable_sort(edges.begin(), edges.end(),
                   [](const Edge& a, const Edge& b) { return a.op != b.op ? a.op < b.op : a.begins < b.begins; });
  By<Tier, std::map<Bytes, const Buffer*>> live;
  for (const Edge& edge : edges) {
    auto& tier = live[edge.buffer->tier];
    const Buffer& buffer = *edge.buffer;
    if (buffer.bytes == 0) continue;
    if (!edge.begins) {
      tier.erase(buffer.offset);
      continue;
    }
    const auto next = tier.lower_bound(buffer.offset);
    const auto clash = [&](const Buffer& other) {
      refuse(fmt::format("{} and {} share bytes of the {} tier while both are alive", buffer.name.text(), other.name.text(),
                         name_of(buffer.tier)));
    };
    if (next != tier.end() && next->first < buffer.offset + buffer.bytes * buffer.slots) clash(*next->second);
    if (next != tier.begin()) {
      const Buffer& before = *std::prev(next)->second;
      if (before.offset + before.bytes * before.slots > buffer.offset) clash(before);
    }
    tier.emplace(buffer.offset, &buffer);
  }
}

// `units`, `micro_batches`: the numbers of them that the program may name.
void check_operands(const Plan& plan, const Program& program, const UnitGraph& graph, std::size_t units, int micro_batches) {
  const int ops = static_cast<int>(program.ops.size());
  for (int id = 0; id < ops; ++id) {
    const Op& op = program.ops[id];
    if (op.unit >= static_cast<std::ptrdiff_t>(units) || op.block >= static_cast<int>(graph.blocks.size()) ||
        op.strip.first + op.strip.count > micro_batches) {
      refuse(fmt::format("operation {} names unit {}, block {}, micro-batch {}", id, op.unit, op.block, op.strip.first));
    }
    for (const Operand& operand : op.operands) {
      if (operand.buffer < 0) continue;
      const Buffer& buffer = buffer_of(plan, program, operand.buffer);
      if (operand.begin < 0 || operand.bytes < 0 || operand.bytes > buffer.bytes - operand.begin) {
        refuse(fmt::format("operation {} touches bytes {} to {} of {}, which has {}", id, operand.begin,
                           operand.begin + operand.bytes, buffer.name.text(), buffer.bytes));
      }
      if (!buffer.resident && (id < buffer.first_op || id > buffer.last_op)) {
        refuse(fmt::format("operation {} touches {} outside its lifetime {} to {}", id, buffer.name.text(), buffer.first_op,
                           buffer.last_op));
      }
    }
    for (const Wait& wait : op.waits) {
      const bool earlier = wait.turn == 0 ? wait.op >= 0 && wait.op < id : wait.turn == -1 && wait.op >= 0 && wait.op < ops;
      if (!earlier)
        refuse(
            fmt::format("operation {} waits for operation {} of turn {}, which does not come before it", id, wait.op, wait.turn));
    }
  }
}

// Every conflict must be covered by a chain of waits and lane order. `known[op][lane]` is the last operation of a lane (over two
// steps) that is complete when op starts.
void check_waits(const Plan& plan, const Program& program, bool repeats) {
  const int count = static_cast<int>(program.ops.size());
  const int rounds = repeats ? 2 : 1;
  using Known = By<Lane, int>;
  std::vector<Known> known(static_cast<std::size_t>(count) * rounds);
  Known lane_tail;
  std::ranges::fill(lane_tail, -1);
  AccessBook book(plan, program);
  for (int id = 0; id < count * rounds; ++id) {
    const Op& op = program.ops[id % count];
    Known& mine = known[id];
    std::ranges::fill(mine, -1);
    const auto absorb = [&](int other, bool complete) {
      for (const Lane lane : kAll<Lane>) mine[lane] = std::max(mine[lane], known[other][lane]);
      if (complete) {
        int& last = mine[program.ops[other % count].lane];
        last = std::max(last, other);
      }
    };
    const int before = lane_tail[op.lane];
    // Requests of an NVMe lane overlap: the operation before it on the lane has started, with its waits met, but need not be
    // complete.
    if (before >= 0) absorb(before, !is_drive(op.lane));
    for (const Wait& wait : op.waits) {
      const int other = (id / count + wait.turn) * count + wait.op;
      if (other >= 0) absorb(other, true);
    }
    lane_tail[op.lane] = id;
    for (const Operand& operand : op.operands) {
      if (operand.buffer < 0) continue;
      book.access(operand, id, op.lane, [&](int other) {
        if (other == id || mine[program.ops[other % count].lane] >= other) return;
        refuse(fmt::format("operation {} ({}) touches {} and does not wait for operation {} ({}), which touches the same bytes",
                           id % count, name_of(op), buffer_of(plan, program, operand.buffer).name.text(), other % count,
                           name_of(program.ops[other % count])));
      });
    }
  }
}

}  // namespace

void validate(const Plan& plan, const UnitGraph& graph) {
  // An evaluation's units are those of the graph with a tiled head, which may be another graph. They are looked up by number when
  // the program is bound, and a unit that does not exist is refused then.
  constexpr std::size_t any = std::numeric_limits<int>::max();
  const auto check = [&](const Program& program, std::size_t units, int micro_batches, bool repeats) {
    check_operands(plan, program, graph, units, micro_batches);
    check_buffers(plan, program);
    check_disjoint(plan, program);
    check_waits(plan, program, repeats);
  };
  check(plan.step, graph.units.size(), plan.choices.group, true);
  check(plan.evaluate, any, 1, false);
}

}  // namespace spillway
