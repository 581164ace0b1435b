// A block's shared memory. Every two bytes have a shadow: who wrote and read them last, and when. It tells of races, of reads
// before the first write, and of copies that nobody waited for.
// Not here: bank conflicts (access_log.h).
//
// Two accesses of different lanes, one of which writes, must have a barrier between them: of the block, or, within a warp, of the
// warp. Time is counted in both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/simt/machine.h"

namespace spillway::simt {

struct LaneTime {
  int thread = 0;
  std::uint32_t block_epoch = 0, warp_epoch = 0;
  int warp() const { return thread / 32; }
};

class SharedMemory {
 public:
  // Begins a new block, in which nothing is written.
  void begin(std::size_t bytes);

  // The bytes, after a check of the access: it is inside, aligned to its size, without a race, and, if it reads, of written
  // bytes.
  std::byte* access(const LaneTime& now, std::uint32_t byte, std::size_t bytes, bool writes, const Site& at);
  // A copy of 16 bytes. Nobody may touch them until it is waited for; it writes them then.
  void begin_copy(const LaneTime& now, std::uint32_t byte, const Site& at);
  std::byte* end_copy(const LaneTime& now, std::uint32_t byte, const Site& at);
  // Lets products of a warpgroup read, behind the next barrier, what the thread has written.
  void show_to_products(const LaneTime& now);
  const std::byte* read_for_product(const LaneTime& now, std::uint32_t byte, std::size_t bytes, const Site& at);

 private:
  struct Shadow {
    std::int32_t writer = -1, reader = -1;  // threads; readers of one warp: kManyLanes, of several: kManyWarps
    std::int32_t reader_warp = -1;
    std::uint32_t write_epoch = 0, write_warp_epoch = 0, read_epoch = 0, read_warp_epoch = 0;
    std::uint32_t write_line = 0, read_line = 0;
    std::uint32_t shown = 0;   // how often the writer had shown its writes before this one
    std::uint16_t copies = 0;  // in flight
    bool is_written = false;
  };
  void check_place(const LaneTime& now, std::uint32_t byte, std::size_t bytes, const Site& at) const;
  static bool races_with_write(const Shadow& shadow, const LaneTime& now);
  static bool races_with_reads(const Shadow& shadow, const LaneTime& now);
  void check_write(const Shadow& shadow, const LaneTime& now, std::uint32_t byte, const Site& at) const;
  void note_write(Shadow& shadow, const LaneTime& now, const Site& at);
  static void note_read(Shadow& shadow, const LaneTime& now, const Site& at);

  std::size_t bytes_ = 0;
  std::vector<std::byte> content_;
  std::vector<Shadow> shadows_;
  std::vector<std::vector<std::uint32_t>> shown_;  // per thread: epochs of the block in which it has shown its writes
};

}  // namespace spillway::simt
