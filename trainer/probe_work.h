// The work whose speed the probe measures, alone and beside other work: products of a layer, updates, moves of a drive.
// Not for anyone but trainer/probe*.cpp. Not here: how it is sampled (probe_measure.h).
#pragma once

#include <optional>
#include <vector>

#include "memory/arena.h"
#include "memory/machine.h"
#include "memory/parallel.h"
#include "models/ops.h"
#include "models/units_alone.h"
#include "nvme/store.h"
#include "trainer/options.h"

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
  void pass();  // over the gradient and an array of the state, which it is added to
  void leave_caches() const { spillway::leave_caches(arena_.at(0), arena_.bytes()); }
  double update_bytes() const { return 28.0 * static_cast<double>(elements_); }
  double pass_bytes() const { return 12.0 * static_cast<double>(elements_); }

 private:
  float* array(Bytes bytes_before) const { return reinterpret_cast<float*>(arena_.at(bytes_before * elements_)); }
  const ThreadPool& pool_;
  std::int64_t elements_;
  Arena arena_;
};

// Files in the directories with requests of the size and depth of training, by threads as lanes have. Reads and writes may run at
// once, each called by one thread.
class DiskMoves {
 public:
  // Files as large as the directories have room for, up to `most` bytes to read and as many to write; of these, what can be laid
  // out in `layout_s` for each is used. Memory is held only while moves run.
  DiskMoves(const std::vector<NvmeDirectory>& directories, Bytes most, double layout_s);

  // Bytes a second of moves that follow each other for so long, round and round.
  double read_for(double seconds) { return move(reader_, IoDirection::read, 0, readable_, seconds).rate; }
  double write_for(double seconds) { return move(writer_, IoDirection::write, half_, writable_, seconds).rate; }
  // Requests a second of moves as those of an embedding's rows: small ones that lie apart.
  double small_reads_for(double seconds) { return move_small(reader_, IoDirection::read, 0, readable_, seconds); }
  double small_writes_for(double seconds) { return move_small(writer_, IoDirection::write, half_, writable_, seconds); }

 private:
  struct Moved {
    Bytes bytes = 0;
    double rate = 0;
  };
  enum class Rounds : std::uint8_t { once, many };
  Moved move(StoreChannel& channel, IoDirection direction, Bytes base, Bytes bytes, double seconds, Rounds rounds = Rounds::many);
  double move_small(StoreChannel& channel, IoDirection direction, Bytes base, Bytes bytes, double seconds);
  Bytes half_, segment_;
  std::optional<Store> store_;
  StoreChannel reader_, writer_;
  Bytes readable_ = 0, writable_ = 0;
};

}  // namespace spillway
