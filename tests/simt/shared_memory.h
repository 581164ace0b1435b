// A block's shared memory, every two bytes with a shadow: who wrote and read them last, and when. From it come the races,
// what is read before it is written, and copies that nobody waited for.
// Not here: bank conflicts (access_log.h).
//
// Two accesses of different lanes of which one writes must have a barrier between them: of the block, or, within a warp, of the
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
  // For a new block: nothing is written.
  void begin(std::size_t bytes);

  // The bytes, for an access that is checked: inside, aligned to its size, without a race, and, where read, written before.
  std::byte* access(const LaneTime& now, std::uint32_t byte, std::size_t bytes, bool writes, const Site& at);
  // 16 bytes that a copy will bring: until it is waited for nobody may touch them. It writes when it is waited for.
  void begin_copy(const LaneTime& now, std::uint32_t byte, const Site& at);
  std::byte* end_copy(const LaneTime& now, std::uint32_t byte, const Site& at);
  // What the thread has written, products of a warpgroup may read behind the next barrier.
  void show_to_products(const LaneTime& now);
  const std::byte* read_for_product(const LaneTime& now, std::uint32_t byte, std::size_t bytes, const Site& at);

 private:
  struct Shadow {
    std::int32_t writer = -1, reader = -1;  // threads; readers of one warp: kManyLanes, of several: kManyWarps
    std::int32_t reader_warp = -1;
    std::uint32_t write_epoch = 0, write_warp_epoch = 0, read_epoch = 0, read_warp_epoch = 0;
    std::uint32_t write_line = 0, read_line = 0;
    std::uint32_t shown = 0;   // how often the writer had shown what it wrote, before this
    std::uint16_t copies = 0;  // under way
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
  std::vector<std::vector<std::uint32_t>> shown_;  // of each thread, when it has shown what it wrote: epochs of the block
};

}  // namespace spillway::simt
