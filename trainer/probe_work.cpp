#include "trainer/probe_work.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

#include "memory/prompt_thread.h"
#include "memory/random.h"
#include "models/units_alone.h"
#include "offload/host_adamw.h"

namespace spillway {
namespace {

// Beyond the caches of a processor's share of a server.
constexpr Bytes kCold = 40 * kMiB;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Done by a thread such as the lanes of NVMe have.
template <typename F>
void in_prompt_thread(const F& work) {
  std::exception_ptr error;
  std::thread thread([&] {
    make_thread_prompt();
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  });
  thread.join();
  if (error) std::rethrow_exception(error);
}

// Disks may do without writing what is all alike.
Arena filled(Bytes bytes) {
  Arena arena(bytes, "probe of NVMe");
  for (Bytes at = 0; at + 8 <= bytes; at += 8) {
    const std::uint64_t word = mix64(static_cast<std::uint64_t>(at));
    std::memcpy(arena.at(at), &word, sizeof word);
  }
  return arena;
}

StoreOptions store_options(const std::vector<NvmeDirectory>& directories) {
  StoreOptions options;
  for (const NvmeDirectory& directory : directories) options.directories.push_back({directory.path, directory.size.value_or(0)});
  return options;
}

}  // namespace

Products::Products(const ThreadPool& pool, DType dtype, std::int64_t n, std::int64_t in, std::int64_t out)
    : pool_(pool),
      engine_(pool.threads()),
      forward_(ops::linear_forward(dtype, n, in, out)),
      input_(ops::linear_input_gradient(dtype, n, in, out, dtype)),
      weight_(ops::linear_weight_gradient(dtype, n, in, out, ops::Store::write)),
      x_(round_up(n * in * size_of(dtype), 64)),
      w_(round_up(in * out * size_of(dtype), 64)),
      dw_(round_up(in * out * 4, 64)),
      y_(round_up(n * out * size_of(dtype), 64)),
      copies_(static_cast<int>((kCold + w_ + dw_ - 1) / (w_ + dw_))),
      flops_(6.0 * static_cast<double>(n) * static_cast<double>(in) * static_cast<double>(out)) {
  const Bytes scratch =
      std::max({engine_.scratch_bytes(forward_), engine_.scratch_bytes(input_), engine_.scratch_bytes(weight_)});
  arena_.emplace(x_ + y_ + copies_ * (w_ + dw_) + scratch, "probe of matrix products");
  arena_->prefault(pool);
  fill_with_numbers(arena_->at(0), x_ + y_ + w_, dtype);
  for (int copy = 1; copy < copies_; ++copy)
    std::memcpy(arena_->at(x_ + y_ + copy * w_), arena_->at(x_ + y_), static_cast<std::size_t>(w_));
}

void Products::run() {
  std::byte *x = arena_->at(0), *y = arena_->at(x_), *w = arena_->at(x_ + y_ + next_ * w_),
            *dw = arena_->at(x_ + y_ + copies_ * w_ + next_ * dw_), *scratch = arena_->at(x_ + y_ + copies_ * (w_ + dw_));
  engine_.run(pool_, forward_, {.a = x, .b = w, .c = y}, scratch);
  engine_.run(pool_, input_, {.a = y, .b = w, .c = x}, scratch);
  engine_.run(pool_, weight_, {.a = y, .b = x, .c = dw}, scratch);
  next_ = (next_ + 1) % copies_;
}

Update::Update(const ThreadPool& pool, std::int64_t elements)
    : pool_(pool), elements_(elements), arena_(16 * elements, "probe of memory") {
  arena_.prefault(pool);
}

void Update::run() {
  const ExactState state{reinterpret_cast<BFloat16*>(arena_.at(0)), reinterpret_cast<std::int16_t*>(arena_.at(2 * elements_)),
                         array(4), array(8)};
  host_adamw(pool_, {.lr = 1e-4}, {.count = elements_}, source_of(state), array(12), state);
}

void Update::pass() { ops::accumulate(pool_, elements_, array(8), array(12)); }

DiskMoves::DiskMoves(const std::vector<NvmeDirectory>& directories, Bytes most, double layout_s)
    : half_([&] {
        constexpr Bytes least = 64 * kKiB;
        return std::clamp<Bytes>(store_capacity(store_options(directories).directories) / 2 / least * least, least, most);
      }()),
      segment_(std::min<Bytes>(half_, 16 * kMiB)),
      store_([&] {
        StoreOptions options = store_options(directories);
        options.bytes = 2 * half_;
        return Store(options);
      }()),
      reader_(store_->open_channel({})),
      writer_(store_->open_channel({})) {
  // What was never written is read without a disk, and what is written for the first time costs the file system more.
  readable_ = move(writer_, IoDirection::write, 0, half_, layout_s, Rounds::once).bytes;
  writable_ = move(writer_, IoDirection::write, half_, half_, layout_s, Rounds::once).bytes;
}

// Segments round and round through [base, base + bytes), two in flight, until the time is over.
DiskMoves::Moved DiskMoves::move(StoreChannel& channel, IoDirection direction, Bytes base, Bytes bytes, double seconds,
                                 Rounds rounds) {
  const Arena memory = filled(segment_);
  const auto begin = Clock::now();
  Moved moved;
  in_prompt_thread([&] {
    std::optional<IoTicket> before;
    for (Bytes at = 0; moved.bytes == 0 || seconds_since(begin) < seconds; at += segment_) {
      if (at + segment_ > bytes) {
        if (rounds == Rounds::once) break;
        at = 0;
      }
      const IoSegment move{base + at, memory.data(), segment_};
      const IoTicket ticket = channel.start(direction, {&move, 1});
      if (before) channel.wait(*before);
      before = ticket;
      moved.bytes += segment_;
    }
    channel.wait(*before);
  });
  moved.rate = static_cast<double>(moved.bytes) / seconds_since(begin);
  return moved;
}

// A few hundred at a time, as a micro-batch's rows are.
double DiskMoves::move_small(StoreChannel& channel, IoDirection direction, Bytes base, Bytes bytes, double seconds) {
  constexpr std::uint64_t together = 256;
  const auto places = static_cast<std::uint64_t>(std::max<Bytes>(1, bytes / kSmallRequestBytes));
  std::vector<IoSegment> moves(std::min<std::uint64_t>(together, static_cast<std::uint64_t>(segment_ / kSmallRequestBytes)));
  const Arena memory = filled(static_cast<Bytes>(moves.size()) * kSmallRequestBytes);
  const auto begin = Clock::now();
  std::uint64_t moved = 0;
  in_prompt_thread([&] {
    while (moved == 0 || seconds_since(begin) < seconds) {
      for (std::size_t i = 0; i < moves.size(); ++i) {
        moves[i] = {base + static_cast<Bytes>(mix64(moved++) % places) * kSmallRequestBytes,
                    memory.data() + static_cast<Bytes>(i) * kSmallRequestBytes, kSmallRequestBytes};
      }
      channel.wait(channel.start(direction, moves));
    }
  });
  return static_cast<double>(moved) / seconds_since(begin);
}

}  // namespace spillway
