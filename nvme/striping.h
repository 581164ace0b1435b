// Maps logical offsets of the store to files and offsets, by arithmetic, without tables.
// Files fill evenly, stripe after stripe; a file whose cap is reached drops out and the others go on (a new zone).
// Not here: any input or output.
#pragma once

#include <span>
#include <vector>

#include "memory/base/types.h"

namespace spillway {

class StripeMap {
 public:
  struct Place {
    int file = 0;
    Bytes offset = 0;     // in that file
    Bytes run_bytes = 0;  // bytes for which logical and file offsets go on together
  };

  // caps: [files]; of each cap whole stripes count (a single file is one run, without stripes: then whole multiples of
  // kExtentAlignment). The map depends only on bytes and min(cap, bytes needed of the file): caps equal to file_bytes() give the
  // same map again.
  StripeMap(std::span<const Bytes> caps, Bytes stripe_bytes, Bytes bytes);

  Place place(Bytes offset) const;
  Bytes bytes() const noexcept { return bytes_; }
  // Bytes that the file must hold: whole stripes, 0 for a file that is not needed.
  Bytes file_bytes(int file) const { return file_bytes_[static_cast<std::size_t>(file)]; }

  static Bytes capacity(std::span<const Bytes> caps, Bytes stripe_bytes);

 private:
  struct Zone {
    Bytes begin = 0;         // logical
    Bytes end = 0;           // logical
    Bytes level = 0;         // the offset that all files of the zone have reached where it begins
    std::vector<int> files;  // in the order of the stripes
  };
  Bytes stripe_bytes_;
  Bytes bytes_;
  std::vector<Zone> zones_;
  std::vector<Bytes> file_bytes_;  // [files]
};

}  // namespace spillway
