#include "trainer/machine/probe_work.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <thread>

#include "memory/base/prompt_thread.h"
#include "memory/base/random.h"
#include "nvme/content_hash.h"
#include "nvme/store_file.h"
#include "offload/host_adamw.h"
#include "trainer/host/interrupt.h"
#include "trainer/machine/nvme_directories.h"
#include "trainer/machine/units_alone.h"

namespace spillway {
namespace {

// More than the caches of one processor's share of a server.
constexpr Bytes kCold = 40 * kMiB;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Runs `work` on a thread like those of the NVMe lanes.
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

// A drive may skip writing bytes that are all alike or that it has already, so each page gets content that no other page has.
void fill_pages(const Arena& arena, std::uint64_t& pages) {
  for (Bytes at = 0; at + 8 <= arena.bytes(); at += kExtentAlignment) {
    const std::uint64_t word = mix64(pages++);
    std::memcpy(arena.at(at), &word, sizeof word);
  }
}

Arena filled(Bytes bytes) {
  Arena arena(bytes, "probe of NVMe");
  for (Bytes at = 0; at + 8 <= bytes; at += 8) {
    const std::uint64_t word = mix64(static_cast<std::uint64_t>(at));
    std::memcpy(arena.at(at), &word, sizeof word);
  }
  return arena;
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

ExactState Update::state() const {
  return {reinterpret_cast<BFloat16*>(arena_.at(0)), reinterpret_cast<std::int16_t*>(arena_.at(2 * elements_)), array(4),
          array(8)};
}

void Update::run() {
  const ExactState state = this->state();
  host_adamw(pool_, {.lr = 1e-4}, {.count = elements_}, source_of(state), array(12), state);
}

void Update::run_hashed() {
  const ExactState state = this->state();
  const auto hash = [&](std::int64_t begin) {
    std::uint64_t found = 0;
    for (const auto& [place, each] : {std::array{0, 2}, std::array{2, 2}, std::array{4, 4}, std::array{8, 4}}) {
      const std::byte* const first = arena_.at(place * elements_ + begin * each);
      for (Bytes at = 0; at < kAdamWChunk * each; at += kHashedPieceBytes)
        found += content_hash({first + at, static_cast<std::size_t>(kHashedPieceBytes)});
    }
    hashes_.fetch_add(found, std::memory_order_relaxed);
  };
  pool_.parallel_for(elements_ / kAdamWChunk, [&](std::int64_t task, int) {
    const std::int64_t begin = task * kAdamWChunk;
    hash(begin);
    host_adamw({.lr = 1e-4}, {.begin = begin, .count = kAdamWChunk}, advanced(source_of(state), begin), array(12) + begin,
               advanced(state, begin));
    hash(begin);
  });
}

void Update::copy() { std::memcpy(arena_.at(8 * elements_), arena_.at(0), static_cast<std::size_t>(8 * elements_)); }

void Update::pass() { ops::accumulate(pool_, elements_, array(8), array(12)); }

DiskMoves::DiskMoves(const std::vector<NvmeDirectory>& directories, Bytes most)
    : bytes_([&] {
        constexpr Bytes least = 128 * kKiB, where_unknown = 256 * kMiB;
        const Bytes free = store_capacity(store_directories(directories));
        return std::clamp<Bytes>(free / 2 / least * least, least, free >= kUnknownFree ? std::min(most, where_unknown) : most);
      }()),
      segment_(std::min<Bytes>(bytes_ / 2, 16 * kMiB)),
      store_(open_store(directories, bytes_, [](StoreOptions& store) { store.content = StoreContent::nameless; })),
      reads_{.channel = store_->open_channel({}), .direction = IoDirection::read},
      writes_{.channel = store_->open_channel({}), .direction = IoDirection::write, .end = bytes_} {}

SettlingRate DiskMoves::settle_writes(const SettlingRule& rule) {
  const SettlingRate rate = settle(writes_, rule, [&](const SettlingRate& so_far) {
    return so_far.over() && (writes_.went_round || writes_.at >= 2 * segment_);
  });
  reads_.end = writes_.begin = written() / segment_ / 2 * segment_;
  if (writes_.went_round) writes_.at = writes_.begin;
  return rate;
}

Bytes DiskMoves::written() const { return writes_.went_round ? bytes_ / segment_ * segment_ : writes_.at; }

SettlingRate DiskMoves::settle_reads(const SettlingRule& rule) {
  return settle(reads_, rule, [](const SettlingRate& so_far) { return so_far.over(); });
}

DiskMoves::Both DiskMoves::settle_both(const SettlingRule& rule) {
  BothSettled both;
  const auto beside = [&](Way& way, int place) {
    const auto gone = [place](BothSettled* of) { of->gone(place); };
    const std::unique_ptr<BothSettled, decltype(gone)> end(&both, gone);
    return settle(way, rule, [&, place](const SettlingRate& so_far) { return both.over(place, so_far); });
  };
  std::future<SettlingRate> reads = std::async(std::launch::async, [&] { return beside(reads_, 0); });
  SettlingRate writes = beside(writes_, 1);
  writes_.end = written();
  return {.reads = reads.get(), .writes = std::move(writes)};
}

SettlingRate DiskMoves::settle(Way& way, const SettlingRule& rule, const std::function<bool(const SettlingRate&)>& over) {
  SettlingRate rate(rule);
  Moved before;
  move(way, [&](const Moved& now) {
    if (over(rate)) return true;  // perhaps in the middle of a window, whose rest would differ from its beginning
    if (now.seconds - before.seconds < rule.window_s) return false;
    rate.add(static_cast<double>(now.bytes - before.bytes), now.seconds - before.seconds);
    before = now;
    return over(rate);
  });
  return rate;
}

double DiskMoves::rate_of(Way& way, double seconds, const std::function<void()>& begun) {
  const Moved moved = move(way, [&](const Moved& now) { return now.seconds >= seconds; }, begun);
  return static_cast<double>(moved.bytes) / moved.seconds;
}

DiskMoves::Moved DiskMoves::move(Way& way, const std::function<bool(const Moved&)>& enough, const std::function<void()>& begun) {
  const std::array<Arena, 2> memory = {filled(segment_), filled(segment_)};
  if (begun) begun();
  const auto begin = Clock::now();
  Moved moved;
  in_prompt_thread([&] {
    std::optional<IoTicket> before;
    const auto complete = [&] {
      if (!before) return;
      way.channel.wait(*before);
      moved = {.bytes = moved.bytes + segment_, .seconds = seconds_since(begin)};
    };
    for (std::size_t turn = 0; moved.bytes == 0 || !enough(moved); ++turn) {
      if (InterruptHandler::requested()) break;
      if (way.at + segment_ > way.end) way.at = way.begin, way.went_round = true;
      const Arena& mine = memory[turn % memory.size()];
      if (way.direction == IoDirection::write) fill_pages(mine, pages_);
      const IoSegment segment{way.at, mine.data(), segment_};
      const IoTicket ticket = way.channel.start(way.direction, {&segment, 1});
      way.at += segment_;
      complete();
      before = ticket;
    }
    complete();
    InterruptHandler::stop_where_requested(kNotMeasured);
  });
  return moved;
}

// Times the second of two syncs, around one small write.
double DiskMoves::sync_s() {
  const Arena memory = filled(kSmallRequestBytes);
  const IoSegment segment{writes_.begin, memory.data(), kSmallRequestBytes};
  writes_.channel.sync();  // flushes whatever the drive still holds from earlier writes
  writes_.channel.write({&segment, 1});
  const auto begin = Clock::now();
  writes_.channel.sync();
  return seconds_since(begin);
}

// Moves a few hundred requests at a time, as many as the rows of a micro-batch.
double DiskMoves::move_small(Way& way, double seconds) {
  constexpr std::uint64_t together = 256;
  const auto places = static_cast<std::uint64_t>(std::max<Bytes>(1, (way.end - way.begin) / kSmallRequestBytes));
  std::vector<IoSegment> moves(std::min<std::uint64_t>(together, static_cast<std::uint64_t>(segment_ / kSmallRequestBytes)));
  const Arena memory = filled(static_cast<Bytes>(moves.size()) * kSmallRequestBytes);
  const auto begin = Clock::now();
  std::uint64_t moved = 0;
  in_prompt_thread([&] {
    while (moved == 0 || seconds_since(begin) < seconds) {
      InterruptHandler::stop_where_requested(kNotMeasured);
      for (std::size_t i = 0; i < moves.size(); ++i) {
        moves[i] = {way.begin + static_cast<Bytes>(mix64(moved++) % places) * kSmallRequestBytes,
                    memory.data() + static_cast<Bytes>(i) * kSmallRequestBytes, kSmallRequestBytes};
      }
      way.channel.wait(way.channel.start(way.direction, moves));
    }
  });
  return static_cast<double>(moved) / seconds_since(begin);
}

}  // namespace spillway
