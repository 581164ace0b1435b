// Memory with two addresses: one that nobody may touch, for code that stands on the host's side, and one for the device's.
// Not here: who has which (runtime.h).
#pragma once

#include <cstddef>
#include <string>

#include "memory/types.h"

namespace spillway {

class TwiceMapped {
 public:
  // Zeroed. Throws BudgetError where the system has not so much; `name` is for messages.
  TwiceMapped(Bytes bytes, const std::string& name);
  ~TwiceMapped();
  TwiceMapped(const TwiceMapped&) = delete;
  TwiceMapped& operator=(const TwiceMapped&) = delete;

  std::byte* host_view() const noexcept { return host_view_; }      // a touch ends the process
  std::byte* device_view() const noexcept { return device_view_; }  // of the same bytes
  Bytes bytes() const noexcept { return bytes_; }

 private:
  Bytes bytes_ = 0;
  std::byte* host_view_ = nullptr;
  std::byte* device_view_ = nullptr;
};

}  // namespace spillway
