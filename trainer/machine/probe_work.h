// The work whose speed the probe measures, alone and beside other work: products of a layer, updates, moves of a drive.
// Not for anyone but trainer/machine/probe*.cpp. Not here: how it is sampled (probe_measure.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "memory/arena.h"
#include "memory/machine.h"
#include "memory/parallel.h"
#include "models/cpu/ops.h"
#include "nvme/store.h"
#include "offload/host_adamw.h"
#include "trainer/machine/settling_rate.h"
#include "trainer/machine/units_alone.h"
#include "trainer/options/options.h"

namespace spillway {

// The three products of a linear layer: n rows, `in` and `out` features. Each run takes weights that no run before has left in
// the caches, as a step finds them.
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

// State and gradient of `elements` parameters: 16 bytes each.
class Update {
 public:
  Update(const ThreadPool& pool, std::int64_t elements);
  void run();
  void run_hashed();  // with hashes of the state before and after, piece by piece, as durable state is updated
  void copy();        // half of it onto the other half, by one thread
  void pass();        // over the gradient and an array of the state, which it is added to
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
  std::atomic<std::uint64_t> hashes_{0};  // so that they are taken
};

// Files in the directories with requests of the size and depth of training, by threads as lanes have. Reads and writes may run at
// once, each called by one thread.
inline constexpr std::string_view kNotMeasured = "this machine was not measured to its end; nothing is kept of it";

class DiskMoves {
 public:
  // Files that take half of the room in the directories, up to `most` bytes. Memory is held only while moves run.
  DiskMoves(const std::vector<NvmeDirectory>& directories, Bytes most);

  // What the drive sustains. Writes come first, as what was never written would be read without a disk; and they go to places
  // that had none before for as long as there are any: what was written a moment ago may still be in a cache, and is written over
  // there.
  SettlingRate settle_writes(const SettlingRule& rule);
  SettlingRate settle_reads(const SettlingRule& rule);
  // Both at once, until both have settled, so that each has the rate that the other leaves it. What follows writes to places that
  // have been written to.
  struct Both {
    SettlingRate reads, writes;
  };
  Both settle_both(const SettlingRule& rule);

  // Bytes a second of moves that follow each other for so long, after settle_writes(). `begun` is called right before the first:
  // their memory is filled by then, which would take the processors' time from what is measured beside.
  double read_for(double seconds, const std::function<void()>& begun) { return rate_of(reads_, seconds, begun); }
  double write_for(double seconds, const std::function<void()>& begun) { return rate_of(writes_, seconds, begun); }
  // Requests a second of moves as those of an embedding's rows: small ones that lie apart.
  double small_reads_for(double seconds) { return move_small(reads_, seconds); }
  double small_writes_for(double seconds) { return move_small(writes_, seconds); }
  // Seconds of a sync right after a small write.
  double sync_s();

 private:
  // Moves of one direction, round and round through a part of the files.
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
  // Two segments in flight; `enough` is asked whenever one is complete, and told of all so far.
  Moved move(Way& way, const std::function<bool(const Moved&)>& enough, const std::function<void()>& begun = {});
  SettlingRate settle(Way& way, const SettlingRule& rule, const std::function<bool(const SettlingRate&)>& over);
  Bytes written() const;  // from the beginning of the files
  double rate_of(Way& way, double seconds, const std::function<void()>& begun);
  double move_small(Way& way, double seconds);
  Bytes bytes_, segment_;
  std::unique_ptr<Store> store_;
  Way reads_, writes_;
  std::uint64_t pages_ = 0;  // written
};

}  // namespace spillway
