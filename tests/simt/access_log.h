// The memory accesses of a warp's lanes between two of its rendezvous, grouped again into the warp's instructions: the n-th
// access of a lane from one place of the source belongs with the n-th access of the others from there. The log gives the sectors
// of global memory that an instruction takes, and how often banks of shared memory collide in it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "tests/simt/machine.h"

namespace spillway::simt {

class AccessLog {
 public:
  // Notes an access. `occurs` is false for a lane that takes part in an instruction of all without an access of its own, as a
  // copy of nothing reads nothing; it is counted all the same.
  void note(int lane, const Site& at, std::uintptr_t address, std::size_t bytes, bool is_shared, bool occurs = true) {
    Lane& of = lanes_[static_cast<std::size_t>(lane)];
    auto place = std::ranges::find_if(
        of.places, [&](const Place& p) { return p.line == at.line() && p.column == at.column() && p.is_shared == is_shared; });
    if (place == of.places.end()) place = of.places.insert(place, {at.line(), at.column(), 0, is_shared});
    const std::uint32_t occurrence = place->accesses++;
    if (occurs)
      of.accesses.push_back(
          {place->line, place->column, occurrence, address, static_cast<std::uint32_t>(bytes), lane, is_shared});
  }
  // Counts one instruction that reads 16 bytes of shared memory at each of these, eight rows at a time.
  static void note_rows(const std::array<std::uint32_t, 32>& bytes, Counts& counts);
  // Adds what was noted, and forgets it.
  void take(Counts& counts);

 private:
  struct Access {
    std::uint32_t line, column, occurrence;
    std::uintptr_t address;
    std::uint32_t bytes;
    int lane;
    bool is_shared;
    bool together(const Access& other) const {
      return line == other.line && column == other.column && occurrence == other.occurrence && is_shared == other.is_shared;
    }
  };
  struct Place {
    std::uint32_t line, column, accesses;
    bool is_shared;
  };
  struct Lane {
    std::vector<Access> accesses;
    std::vector<Place> places;
  };
  std::array<Lane, 32> lanes_;
  std::vector<Access> all_;
};

}  // namespace spillway::simt
