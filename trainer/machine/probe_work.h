// The work whose speed the probe measures, alone and beside other work: products of a layer, updates, moves of a drive. For
// trainer/machine/probe*.cpp only.
// Not here: how it is sampled (probe_measure.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "memory/base/parallel.h"
#include "memory/plan/machine.h"
#include "memory/runtime/arena.h"
#include "models/cpu/ops.h"
#include "nvme/store.h"
#include "offload/host_adamw.h"
#include "trainer/machine/settling_rate.h"
#include "trainer/machine/units_alone.h"
#include "trainer/options/options.h"

namespace spillway {

// The three products of a linear layer: n rows, `in` and `out` features. Each run takes weights that no earlier run has left in
// the caches, as in a step.
class Products {
 public:
  Products(const ThreadPool& pool, DType dtype, std::int64_t n, std::int64_t in, std::int64_t out);
  void run();
  double flops() const noexcept { return flops_; }

 private:
  const ThreadPool& pool_;
  ops::MatmulEngine engine_;
  ops::GemmSpec forward_, input_, weight_;
  Bytes x_, w_, dw_, y_;
  int copies_, next_ = 0;
  std::optional<Arena> arena_;
  double flops_;
};

// State and gradient of `elements` parameters: 16 bytes for each.
class Update {
 public:
  Update(const ThreadPool& pool, std::int64_t elements);
  void run();
  void run_hashed();  // also hashes the state before and after, piece by piece, as updates of durable state do
  void copy();        // copies half of it onto the other half, on one thread
  void pass();        // adds the gradient to an array of the state
  void leave_caches() const { spillway::leave_caches(arena_.at(0), arena_.bytes()); }
  double update_bytes() const { return 28.0 * static_cast<double>(elements_); }
  double copied_bytes() const { return 8.0 * static_cast<double>(elements_); }
  double pass_bytes() const { return 12.0 * static_cast<double>(elements_); }

 private:
  ExactState state() const;
  float* array(Bytes bytes_before) const { return reinterpret_cast<float*>(arena_.at(bytes_before * elements_)); }
  const ThreadPool& pool_;
  std::int64_t elements_;  // a whole number of kAdamWChunk
  Arena arena_;
  std::atomic<std::uint64_t> hashes_{0};  // keeps the compiler from dropping the hashes
};

// Reads and writes files in the directories with the request size and depth of training, on threads like the lanes'. Reads and
// writes may run at the same time, each called by one thread.
inline constexpr std::string_view kNotMeasured = "this machine was not measured to its end; nothing is kept of it";

class DiskMoves {
 public:
  // Makes files that take half of the free space in the directories, up to `most` bytes. Holds memory only while moves run.
  DiskMoves(const std::vector<NvmeDirectory>& directories, Bytes most);

  // The rates that the drive sustains. Writes come first, because reading bytes that were never written would need no disk. They
  // go to unwritten places as long as there are any: bytes written a moment ago may still be in a cache, where a second write
  // would replace them.
  SettlingRate settle_writes(const SettlingRule& rule);
  SettlingRate settle_reads(const SettlingRule& rule);
  // Both directions at the same time, until both have settled, so that each has the rate that the other leaves it. Later writes
  // go to places that have been written before.
  struct Both {
    SettlingRate reads, writes;
  };
  Both settle_both(const SettlingRule& rule);

  // Bytes a second of consecutive moves over `seconds`, after settle_writes(). `begun` is called right before the first move,
  // when the moves' memory is already filled: filling it would take processor time from the work measured beside them.
  double read_for(double seconds, const std::function<void()>& begun) { return rate_of(reads_, seconds, begun); }
  double write_for(double seconds, const std::function<void()>& begun) { return rate_of(writes_, seconds, begun); }
  // Requests a second of small moves at scattered places, like those of an embedding's rows.
  double small_reads_for(double seconds) { return move_small(reads_, seconds); }
  double small_writes_for(double seconds) { return move_small(writes_, seconds); }
  // Seconds of a sync right after a small write.
  double sync_s();

 private:
  // Moves of one direction, again and again through a part of the files.
  struct Way {
    StoreChannel channel;
    IoDirection direction;
    Bytes begin = 0, end = 0, at = 0;
    bool went_round = false;
  };
  struct Moved {
    Bytes bytes = 0;
    double seconds = 0;
  };
  // Keeps two segments in flight. Calls `enough` with the total so far whenever one completes.
  Moved move(Way& way, const std::function<bool(const Moved&)>& enough, const std::function<void()>& begun = {});
  SettlingRate settle(Way& way, const SettlingRule& rule, const std::function<bool(const SettlingRate&)>& over);
  Bytes written() const;  // bytes from the beginning of the files
  double rate_of(Way& way, double seconds, const std::function<void()>& begun);
  double move_small(Way& way, double seconds);
  Bytes bytes_, segment_;
  std::unique_ptr<Store> store_;
  Way reads_, writes_;
  std::uint64_t pages_ = 0;  // pages written
};

}  // namespace spillway
