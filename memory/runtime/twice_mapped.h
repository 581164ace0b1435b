// Memory with two addresses: one for code on the host's side, which must not touch it, and one for code on the device's side.
// Not here: who has which (runtime.h).
#pragma once

#include <cstddef>
#include <string>

#include "memory/base/types.h"

namespace spillway {

class TwiceMapped {
 public:
  // Maps zeroed memory. Throws BudgetError where the system has too little; `name` is for messages.
  TwiceMapped(Bytes bytes, const std::string& name);
  ~TwiceMapped();
  TwiceMapped(const TwiceMapped&) = delete;
  TwiceMapped& operator=(const TwiceMapped&) = delete;

  std::byte* host_view() const noexcept { return host_view_; }      // a touch ends the process
  std::byte* device_view() const noexcept { return device_view_; }  // another address of the same bytes
  Bytes bytes() const noexcept { return bytes_; }

 private:
  Bytes bytes_ = 0;
  std::byte* host_view_ = nullptr;
  std::byte* device_view_ = nullptr;
};

}  // namespace spillway
