#include "tests/simt/block.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "memory/base/random.h"
#include "tests/simt/gpu.h"

namespace spillway::simt {
namespace {

const char* name_of(WarpOp::Kind kind) {
  constexpr const char* names[] = {"sync_warp",       "shuffle_xor",      "mma",
                                   "load_matrices",   "begin_products",   "a product of a warpgroup",
                                   "commit_products", "wait_for_products"};
  return names[static_cast<int>(kind)];
}

std::uint16_t half_of(std::uint32_t word, std::size_t index) {
  return static_cast<std::uint16_t>(index == 0 ? word : word >> 16);
}

}  // namespace

std::uint64_t Block::random() { return mix64(random_state_++); }

void Block::begin(const Launch& launch, std::int64_t index) {
  launch_ = &launch;
  index_ = index;
  count_id_ = launch.first_count + static_cast<std::uint32_t>(index);
  epoch_ = 0;
  random_state_ = mix64(options_.seed) + (static_cast<std::uint64_t>(index) << 32);
  counts_ = {};
  failure_ = nullptr;
  shared_.begin(static_cast<std::size_t>(launch.grid.shared_bytes));
  warps_.resize(static_cast<std::size_t>(launch.threads / kWarp));
  for (Warp& warp : warps_) warp.epoch = 0;
  warpgroups_.resize(static_cast<std::size_t>(launch.threads / kGroupThreads));
  for (Warpgroup& warpgroup : warpgroups_) warpgroup.reset();
  while (std::ssize(lanes_) < launch.threads) lanes_.push_back(std::make_unique<Lane>());
  for (int thread = 0; thread < launch.threads; ++thread) {
    Lane& of = lane(thread);
    of.block = this, of.thread = thread;
    of.state = State::ready;
    of.copies.clear(), of.groups = 0;
    of.last = nullptr;
    of.fiber.start(&run_lane, &of);
  }
}

void Block::run_lane(void* argument) {
  Lane& of = *static_cast<Lane*>(argument);
  Block& block = *of.block;
  try {
    block.launch_->body(block.launch_->kernel, Gpu(block, of.thread));
    if (!of.copies.empty()) throw Error(fmt::format("thread {} ends with copies that it has not waited for", of.thread));
    const auto warpgroup = static_cast<std::size_t>(of.thread / kGroupThreads);
    if (warpgroup < block.warpgroups_.size() && block.warpgroups_[warpgroup].is_busy())
      throw Error(fmt::format("thread {} ends with products that it has not waited for", of.thread));
  } catch (...) {
    if (!block.failure_) block.failure_ = std::current_exception();
  }
}

void Block::run(const Launch& launch, std::int64_t index, Counts& counts) {
  begin(launch, index);
  const int warps = launch.threads / kWarp;
  const auto has_ended = [this](int thread) { return lane(thread).state == State::ended; };
  for (int left = warps; left > 0;) {
    bool went_on = false;
    // One warp may be far ahead of another, or just behind it.
    for (int tries = 0; tries < warps; ++tries)
      went_on |= run_warp(static_cast<int>(random() % static_cast<std::uint64_t>(warps)));
    for (int warp = 0; warp < warps && !went_on; ++warp) went_on |= run_warp(warp);
    left = 0;
    for (int thread = 0; thread < launch.threads; thread += kWarp) left += has_ended(thread) ? 0 : 1;
    if (!went_on && left > 0) pass_barrier();
  }
  counts += counts_;
}

bool Block::run_warp(int warp) {
  bool went_on = false;
  const int first = warp * kWarp;
  while (true) {
    int ready = 0;
    for (int i = 0; i < kWarp; ++i) {
      Lane& of = lane(first + i);
      if (of.state != State::ready) continue;
      ++ready;
      if (!of.fiber.resume()) of.state = State::ended;
      if (failure_) std::rethrow_exception(failure_);
    }
    if (ready == 0) return went_on;
    went_on = true;
    if (options_.counts) warps_[static_cast<std::size_t>(warp)].log.take(counts_);
    const auto at_op = [&](int i) { return lane(first + i).state == State::at_warp_op; };
    int waiting = 0;
    for (int i = 0; i < kWarp; ++i) waiting += at_op(i) ? 1 : 0;
    if (waiting == 0) return true;
    if (waiting < kWarp) {
      int with = 0, without = 0;
      while (!at_op(with)) ++with;
      while (at_op(without)) ++without;
      const Lane &here = lane(first + with), &other = lane(first + without);
      throw Error(fmt::format("thread {} is at {} ({}), where thread {} of its warp {}", here.thread, name_of(here.op->kind),
                              text_of(here.op->at), other.thread,
                              other.state == State::ended ? "has ended" : "is at a barrier, " + text_of(other.at)));
    }
    perform(warp);
  }
}

void Block::perform(int warp) {
  const int first = warp * kWarp;
  const WarpOp& op = *lane(first).op;
  for (int i = 1; i < kWarp; ++i) check_together(first, first + i);
  if (op.is_of_warpgroup()) return meet_warpgroup(warp);
  switch (op.kind) {
    case WarpOp::Kind::sync: ++warps_[static_cast<std::size_t>(warp)].epoch; break;
    case WarpOp::Kind::shuffle: shuffle(warp); break;
    case WarpOp::Kind::multiply: multiply(warp); break;
    case WarpOp::Kind::load_matrices: load_matrices(warp); break;
    default: break;
  }
  for (int i = 0; i < kWarp; ++i) lane(first + i).state = State::ready;
}

void Block::check_together(int thread, int other) const {
  const WarpOp &op = *lane(thread).op, &its = *lane(other).op;
  if (its.kind == op.kind && its.at.line() == op.at.line() && its.at.file_name() == op.at.file_name()) return;
  throw Error(fmt::format("thread {} is at {} ({}), and thread {} of its {} at {} ({})", thread, name_of(op.kind), text_of(op.at),
                          other, thread / kWarp == other / kWarp ? "warp" : "warpgroup", name_of(its.kind), text_of(its.at)));
}

// The last warp of the group to arrive does the operation.
void Block::meet_warpgroup(int warp) {
  const int number = warp * kWarp / kGroupThreads, first = number * kGroupThreads;
  const WarpOp& op = *lane(warp * kWarp).op;
  if (std::ssize(warpgroups_) <= number || options_.chip != Chip::sm_90)
    throw Error(fmt::format("{} at {}: there is no warpgroup here", name_of(op.kind), text_of(op.at)));
  for (int i = 0; i < kWarp; ++i) lane(warp * kWarp + i).state = State::at_warpgroup_op;
  for (int i = 0; i < kGroupThreads; i += kWarp)
    if (lane(first + i).state != State::at_warpgroup_op) return;
  for (int i = kWarp; i < kGroupThreads; i += kWarp) check_together(first, first + i);
  Warpgroup& warpgroup = warpgroups_[static_cast<std::size_t>(number)];
  const Warpgroup::Readers readers{now(first), now(first + kWarp)};
  if (op.kind == WarpOp::Kind::begin_products) warpgroup.begin();
  if (op.kind == WarpOp::Kind::commit_products) warpgroup.commit();
  if (op.kind == WarpOp::Kind::group_multiply) {
    std::array<const GroupProduct*, kGroupThreads> products;
    for (int i = 0; i < kGroupThreads; ++i) products[static_cast<std::size_t>(i)] = &lane(first + i).op->product;
    warpgroup.multiply(products, readers, shared_, op.at);
  }
  if (op.kind == WarpOp::Kind::wait_for_products)
    warpgroup.wait(op.left, lane(first).op->product.c, options_.chip, readers, shared_, op.at);
  for (int i = 0; i < kGroupThreads; ++i) lane(first + i).state = State::ready;
}

void Block::shuffle(int warp) {
  std::array<std::uint64_t, kWarp> brought;
  for (int i = 0; i < kWarp; ++i) brought[static_cast<std::size_t>(i)] = lane(warp * kWarp + i).op->value;
  for (int i = 0; i < kWarp; ++i) {
    WarpOp& op = *lane(warp * kWarp + i).op;
    const int from = i ^ op.mask;
    if (from < 0 || from >= kWarp) throw Error(fmt::format("a shuffle by {} at {}", op.mask, text_of(op.at)));
    op.value = brought[static_cast<std::size_t>(from)];
  }
}

// The fragments of m16n8k16, as the PTX manual draws them.
void Block::multiply(int warp) {
  Line a[kRows], b[kColumns];
  float c[kRows][kColumns];
  const auto each_lane = [&](const auto& visit) {
    for (std::size_t i = 0; i < kWarp; ++i) visit(*lane(warp * kWarp + static_cast<int>(i)).op, i / 4, 2 * (i % 4));
  };
  each_lane([&](const WarpOp& op, std::size_t row, std::size_t column) {
    for (std::size_t i = 0; i < 2; ++i) {
      a[row][column + i] = half_of(op.a[0], i), a[row + 8][column + i] = half_of(op.a[1], i);
      a[row][column + 8 + i] = half_of(op.a[2], i), a[row + 8][column + 8 + i] = half_of(op.a[3], i);
      b[row][column + i] = half_of(op.b[0], i), b[row][column + 8 + i] = half_of(op.b[1], i);
      c[row][column + i] = op.c[i], c[row + 8][column + i] = op.c[2 + i];
    }
  });
  multiply_add(options_.chip, lane(warp * kWarp).op->type, a, b, &c[0][0]);
  each_lane([&](const WarpOp& op, std::size_t row, std::size_t column) {
    for (std::size_t i = 0; i < 2; ++i) op.c[i] = c[row][column + i], op.c[2 + i] = c[row + 8][column + i];
  });
}

// Lanes 8 i to 8 i + 7 give the places of the rows of the i-th matrix, 8 numbers of 16 bits each.
void Block::load_matrices(int warp) {
  std::uint16_t matrices[4][8][8];
  std::array<std::uint32_t, kWarp> places;
  for (int i = 0; i < kWarp; ++i) {
    const WarpOp& op = *lane(warp * kWarp + i).op;
    places[static_cast<std::size_t>(i)] = op.byte;
    const std::byte* row = shared_.access(now(warp * kWarp + i), op.byte, 16, false, op.at);
    std::memcpy(matrices[i / 8][i % 8], row, 16);
  }
  if (options_.counts) AccessLog::note_rows(places, counts_);
  for (int i = 0; i < kWarp; ++i) {
    const WarpOp& op = *lane(warp * kWarp + i).op;
    const int row = i / 4, column = 2 * (i % 4);
    for (int m = 0; m < 4; ++m) {
      const auto& matrix = matrices[m];
      const std::uint32_t low = op.transposed ? matrix[column][row] : matrix[row][column],
                          high = op.transposed ? matrix[column + 1][row] : matrix[row][column + 1];
      op.registers[m] = low | high << 16;
    }
  }
}

void Block::pass_barrier() {
  for (int thread = 0; thread < launch_->threads; ++thread) {
    const Lane& of = lane(thread);
    if (of.state != State::at_barrier || of.at.line() != lane(0).at.line()) refuse_barrier();
  }
  for (int thread = 0; thread < launch_->threads; ++thread) lane(thread).state = State::ready;
  ++epoch_;
}

void Block::refuse_barrier() const {
  const auto waits = [](const Lane& of) { return of.state == State::at_barrier; };
  for (int thread = 0; thread < launch_->threads; ++thread) {
    if (lane(thread).state == State::at_warpgroup_op)
      throw Error(fmt::format("thread {} waits for its warpgroup at {} ({}), which others of it do not reach", thread,
                              name_of(lane(thread).op->kind), text_of(lane(thread).op->at)));
  }
  int with = 0;
  while (!waits(lane(with))) ++with;
  for (int other = 0; other < launch_->threads; ++other) {
    if (waits(lane(other)) && lane(other).at.line() == lane(with).at.line()) continue;
    throw Error(fmt::format("thread {} waits at the barrier at {}, which thread {} does not reach: it {}", with,
                            text_of(lane(with).at), other,
                            waits(lane(other)) ? "waits at " + text_of(lane(other).at) : "has ended"));
  }
  throw Error("no thread can go on");
}

// --- for the lane that runs ---

void Block::sync(int thread, const Site& at) {
  Lane& of = lane(thread);
  of.state = State::at_barrier, of.at = at;
  of.fiber.pause();
}

void Block::together(int thread, WarpOp& op) {
  Lane& of = lane(thread);
  of.state = State::at_warp_op, of.op = &op;
  of.fiber.pause();
}

std::byte* Block::global(int thread, std::uintptr_t address, std::size_t bytes, bool writes, const Site& at) {
  Lane& of = lane(thread);
  if (of.last == nullptr || address < of.last->begin || address + bytes > of.last->end) of.last = allocation_of(address, bytes);
  if (of.last == nullptr)
    throw Error(
        fmt::format("thread {} of block {} names {} bytes at {} that lie in no allocation", thread, index_, bytes, text_of(at)));
  if (address % bytes != 0)
    throw Error(fmt::format("thread {} of block {} takes {} bytes at {}: the address is not aligned", thread, index_, bytes,
                            text_of(at)));
  if (options_.counts) {
    warps_[static_cast<std::size_t>(thread / kWarp)].log.note(thread % kWarp, at, address, bytes, false);
    auto& touched = writes ? of.last->written_by : of.last->read_by;
    for (std::uintptr_t sector = (address - of.last->begin) / kSectorBytes;
         sector <= (address + bytes - 1 - of.last->begin) / kSectorBytes; ++sector) {
      if (touched[sector].exchange(count_id_, std::memory_order_relaxed) == count_id_) continue;
      (writes ? counts_.written_bytes : counts_.read_bytes) += static_cast<std::int64_t>(kSectorBytes);
    }
  }
  return reinterpret_cast<std::byte*>(address) + of.last->shift;
}

std::byte* Block::shared(int thread, std::uint32_t byte, std::size_t bytes, bool writes, const Site& at) {
  if (options_.counts) warps_[static_cast<std::size_t>(thread / kWarp)].log.note(thread % kWarp, at, byte, bytes, true);
  return shared_.access(now(thread), byte, bytes, writes, at);
}

void Block::copy(int thread, std::uint32_t to, const std::byte* from, const Site& at) {
  if (options_.counts) {
    // A copy of nothing writes zeros to shared memory, and reads nothing.
    AccessLog& log = warps_[static_cast<std::size_t>(thread / kWarp)].log;
    if (from == nullptr) log.note(thread % kWarp, at, 0, 16, false, false);
    log.note(thread % kWarp, at, to, 16, true);
  }
  const std::byte* const there =
      from == nullptr ? nullptr : global(thread, reinterpret_cast<std::uintptr_t>(from), 16, false, at);
  shared_.begin_copy(now(thread), to, at);
  lane(thread).copies.push_back({to, there, lane(thread).groups});
}

void Block::commit_copies(int thread) { ++lane(thread).groups; }

// Copies the bytes that lie there now, which is as late as a copy may be.
void Block::wait_for_copies(int thread, int groups_left, const Site& at) {
  Lane& of = lane(thread);
  const auto is_awaited = [&](const Copy& copy) { return copy.group < of.groups - groups_left; };
  for (const Copy& copy : of.copies) {
    if (!is_awaited(copy)) continue;
    std::byte* to = shared_.end_copy(now(thread), copy.to, at);
    if (copy.from == nullptr) {
      std::memset(to, 0, 16);
    } else {
      std::memcpy(to, copy.from, 16);
    }
  }
  std::erase_if(of.copies, is_awaited);
}

}  // namespace spillway::simt
