#include "offload/fetched_rows.h"

#include <algorithm>

#include "memory/error.h"

namespace spillway {

FetchedRows::FetchedRows(const UnitGraph& graph) : graph_(graph) {
  for (const Unit& unit : graph.units) {
    if (unit.lookup.rows == 0) continue;
    tables_.push_back({unit.lookup, unit.blocks.front()});
    row_elements_ = unit.lookup.row_elements;
  }
  std::sort(tables_.begin(), tables_.end(), [](const Table& a, const Table& b) { return a.lookup.first < b.lookup.first; });
}

FetchedRow FetchedRows::row_of(std::int32_t token) const {
  const auto after = std::upper_bound(tables_.begin(), tables_.end(), token,
                                      [](std::int32_t value, const Table& table) { return value < table.lookup.first; });
  SPILLWAY_CHECK(after != tables_.begin(), "token {} before the first row", token);
  const Table& table = *std::prev(after);
  const std::int64_t row = token - table.lookup.first;
  SPILLWAY_CHECK(row < table.lookup.rows, "token {} after the last row", token);
  return {table.block, row * row_elements_};
}

std::int64_t FetchedRows::rows() const { return tables_.empty() ? 0 : tables_.back().lookup.first + tables_.back().lookup.rows; }

const RowLookup& FetchedRows::lookup_of(int block) const {
  const auto found = std::find_if(tables_.begin(), tables_.end(), [&](const Table& table) { return table.block == block; });
  SPILLWAY_CHECK(found != tables_.end(), "block {} is not looked up", block);
  return found->lookup;
}

Bytes FetchedRows::read_begin(const FetchedRow& row, Bytes each) const {
  const Bytes begin = row.element * each / kExtentAlignment * kExtentAlignment;
  return std::min(begin, graph_.blocks[static_cast<std::size_t>(row.block)].elements * each - read_bytes(each));
}

BoundRows::BoundRows(const Plan& plan, const UnitGraph& graph, const Op& op, std::byte* device) : rows_(graph) {
  // The arrays of all blocks come before the memory that takes their rows.
  std::vector<const Buffer*> homes;
  const auto resident = [&](const Operand& operand) { return &plan.resident[static_cast<std::size_t>(operand.buffer)]; };
  for (const Operand& operand : op.operands) {
    if (buffer_of(plan, plan.step, operand.buffer).tier == Tier::nvme) {
      homes.push_back(resident(operand));
      continue;
    }
    Array array{.each = operand.role == Role::waiting ? gradient_bytes_per_element(plan.choices.form)
                                                      : plan.blocks[rows_.any_block()].find(operand.kind)->each()};
    array.memory = device + buffer_of(plan, plan.step, operand.buffer).offset + operand.begin;
    array.begin.resize(graph.blocks.size());
    std::size_t home = 0;
    for (const Unit& unit : graph.units) {
      if (unit.lookup.rows == 0) continue;
      const Buffer& buffer = *homes.at(home++);
      array.begin[static_cast<std::size_t>(unit.blocks.front())] = {buffer.offset,
                                                                    buffer.offset + (buffer.slots - 1) * buffer.bytes};
    }
    homes.clear();
    arrays_.push_back(std::move(array));
  }
  segments_.resize(arrays_.size() * static_cast<std::size_t>(op.strip.count * graph.rows));
}

std::span<const IoSegment> BoundRows::segments(std::span<const std::int32_t> tokens, int slot) {
  std::size_t count = 0;
  for (const Array& array : arrays_) {
    const Bytes bytes = rows_.read_bytes(array.each);
    std::byte* memory = array.memory;
    for (const std::int32_t token : tokens) {
      const FetchedRow row = rows_.row_of(token);
      const auto& begin = array.begin[static_cast<std::size_t>(row.block)];
      segments_[count++] = {begin[static_cast<std::size_t>(slot)] + rows_.read_begin(row, array.each), memory, bytes};
      memory += bytes;
    }
  }
  return {segments_.data(), count};
}

}  // namespace spillway
