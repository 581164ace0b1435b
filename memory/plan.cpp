#include "memory/plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "memory/access_map.h"
#include "memory/error.h"

namespace spillway {

std::string_view name_of(const OpHead& op) {
  const bool rows = op.index == Index::rows;
  switch (op.kind) {
    case OpKind::move:
      if (op.lane == Lane::nvme_read) return rows ? "read_rows" : "read";
      if (op.lane == Lane::nvme_write) return rows ? "write_rows" : "write";
      return name_of(op.lane);
    case OpKind::forward: return "forward";
    case OpKind::backward: return "backward";
    case OpKind::loss: return "loss";
    case OpKind::gradient_add: return rows ? "gradient_add_rows" : "gradient_add";
    case OpKind::gradient_finish: return rows ? "gradient_finish_rows" : "gradient_finish";
    case OpKind::norm: return "norm";
    case OpKind::update: return rows ? "update_rows" : "update";
    case OpKind::gather: return "gather";
    case OpKind::reduce: return "reduce";
    case OpKind::commit: return "commit";
  }
  return {};
}
std::string order_words(const Choices& choices) {
  if (choices.group == choices.micro_batches) return "vertical";
  return choices.group == 1 ? "horizontal" : fmt::format("groups of {}", choices.group);
}
std::string_view name_of(UpdateTime update) {
  constexpr std::string_view names[] = {"after", "in-backward", "in-next-forward"};
  return names[static_cast<int>(update)];
}
std::string_view name_of(Saved saved) {
  constexpr std::string_view names[] = {"keep", "recompute", "spill"};
  return names[static_cast<int>(saved)];
}

Bytes row_window(Bytes row_bytes) {
  return round_up(row_bytes + kExtentAlignment - std::gcd(row_bytes, kExtentAlignment), kExtentAlignment);
}

bool makes_durable(const Choices& choices) {
  // Where some updates of a step come with the next one, or some rows after their blocks, no step's state is ever whole.
  const bool is_whole = defers_all(choices) || (!defers_any(choices) && !choices.fetches_rows);
  return choices.durable_every > 0 && choices.slots == 2 && is_whole;
}

bool squares_with_update(const UnitGraph& graph, const Choices& choices, int block) {
  return choices.update == UpdateTime::in_backward && !defers(choices, block) && !keeps_rows_apart(graph, choices, block) &&
         choices.form != StateForm::compact && choices.slots == 1 && choices.sharding.ranks == 1 && !has_host(choices.chain);
}

bool keeps_rows_apart(const UnitGraph& graph, const Choices& choices, int block) {
  return choices.fetches_rows && graph.blocks[static_cast<std::size_t>(block)].looked_up;
}

bool has_dense_gradient(const UnitGraph& graph, const Choices& choices, int block) {
  if (!keeps_rows_apart(graph, choices, block)) return true;
  return std::any_of(graph.units.begin(), graph.units.end(), [&](const Unit& unit) {
    return unit.lookup.rows == 0 &&
           std::find(unit.gradient_blocks.begin(), unit.gradient_blocks.end(), block) != unit.gradient_blocks.end();
  });
}

int first_sharing_unit(const UnitGraph& graph) {
  const auto is_looked_up = [&](int block) { return graph.blocks[static_cast<std::size_t>(block)].looked_up; };
  const auto shares = [&](const Unit& unit) {
    return unit.lookup.rows == 0 && std::any_of(unit.gradient_blocks.begin(), unit.gradient_blocks.end(), is_looked_up);
  };
  const auto first = std::find_if(graph.units.begin(), graph.units.end(), shares);
  return static_cast<int>(std::min(first, graph.units.end() - 1) - graph.units.begin());
}

bool may_fetch_rows(const UnitGraph& graph, const Choices& choices) {
  if (choices.sharding.ranks > 1 || has_host(choices.chain) || turns_of(choices) > 1) return false;
  const bool rows_last = choices.update == UpdateTime::in_backward && !choices.clip && choices.slots == 1;
  if (!rows_last && !defers_all(choices)) return false;
  bool any = false;
  for (const Unit& unit : graph.units) {
    if (unit.lookup.rows == 0) continue;
    any = true;
    if (unit.lookup.row_elements % kSquareLeaf != 0) return false;
    const int block = unit.blocks.front();
    for (const auto* tiers : {&choices.weight_tier, &choices.optimizer_tier, &choices.gradient_tier}) {
      if ((*tiers)[block] != Tier::nvme) return false;
    }
    for (const Bytes each : {Bytes{2}, Bytes{4}}) {
      if (row_window(unit.lookup.row_elements * each) > graph.blocks[block].elements * each) return false;
    }
  }
  return any;
}

std::vector<std::int64_t> norm_words(const UnitGraph& graph, const Choices& choices) {
  std::vector<std::int64_t> begin(1, 0);
  for (const ParameterBlock& block : graph.blocks)
    begin.push_back(begin.back() + (choices.sharding.shards_optimizer() ? square_nodes_of_part(block.elements) : 1));
  return begin;
}

const Buffer& buffer_of(const Plan& plan, const Program& program, int index) {
  const int resident = static_cast<int>(plan.resident.size());
  SPILLWAY_CHECK(index >= 0 && index < resident + static_cast<int>(program.buffers.size()), "buffer {} of {} + {}", index,
                 resident, program.buffers.size());
  return index < resident ? plan.resident[index] : program.buffers[static_cast<std::size_t>(index - resident)];
}

namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(1, "invalid plan: " + message, "The plan was not made for this model and version; plan again.");
}

void check_buffers(const Plan& plan, const Program& program) {
  const auto check = [&](const Buffer& buffer) {
    const int tier = static_cast<int>(buffer.tier);
    const Bytes bytes = buffer.bytes * buffer.slots;
    if (buffer.bytes < 0 || buffer.slots < 1 || buffer.slots > 2 || buffer.offset < 0 || buffer.offset % kExtentAlignment != 0 ||
        buffer.bytes % kExtentAlignment != 0 || bytes > plan.peak[tier] - buffer.offset) {
      refuse(fmt::format("buffer {} has offset {} and {} x {} bytes in a {} tier of {}", buffer.name.text(), buffer.offset,
                         buffer.slots, buffer.bytes, name_of(buffer.tier), plan.peak[tier]));
    }
  };
  for (const Buffer& buffer : plan.resident) check(buffer);
  for (const Buffer& buffer : program.buffers) {
    if (buffer.first_op >= 0) check(buffer);
  }
}

// Buffers that are alive at the same operation must not share a byte: swept by operation, with the live ones by offset.
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
  std::array<std::map<Bytes, const Buffer*>, kTiers> live;
  for (const Edge& edge : edges) {
    auto& tier = live[static_cast<int>(edge.buffer->tier)];
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

// `units` and `micro_batches`: how many the program may name.
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
  using Known = std::array<int, kLanes>;
  std::vector<Known> known(static_cast<std::size_t>(count) * rounds);
  Known lane_tail;
  lane_tail.fill(-1);
  AccessBook book(plan, program);
  for (int id = 0; id < count * rounds; ++id) {
    const Op& op = program.ops[id % count];
    Known& mine = known[id];
    mine.fill(-1);
    const auto absorb = [&](int other, bool complete) {
      for (int lane = 0; lane < kLanes; ++lane) mine[lane] = std::max(mine[lane], known[other][lane]);
      if (complete) {
        int& last = mine[static_cast<int>(program.ops[other % count].lane)];
        last = std::max(last, other);
      }
    };
    const int before = lane_tail[static_cast<int>(op.lane)];
    // Requests of an NVMe lane overlap: what came before it on the lane has started, with its waits
    // met, but need not be complete.
    if (before >= 0) absorb(before, op.lane != Lane::nvme_read && op.lane != Lane::nvme_write);
    for (const Wait& wait : op.waits) {
      const int other = (id / count + wait.turn) * count + wait.op;
      if (other >= 0) absorb(other, true);
    }
    lane_tail[static_cast<int>(op.lane)] = id;
    for (const Operand& operand : op.operands) {
      if (operand.buffer < 0) continue;
      book.access(operand, id, static_cast<int>(op.lane), [&](int other) {
        if (other == id || mine[static_cast<int>(program.ops[other % count].lane)] >= other) return;
        refuse(fmt::format("operation {} ({}) touches {} and does not wait for operation {} ({}), which touches the same bytes",
                           id % count, name_of(op), buffer_of(plan, program, operand.buffer).name.text(), other % count,
                           name_of(program.ops[other % count])));
      });
    }
  }
}

}  // namespace

void validate(const Plan& plan, const UnitGraph& graph) {
  // An evaluation's units are those of the graph with a tiled head, which may be another; they are looked up by number when the
  // program is bound, and one that is not there is refused then.
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
