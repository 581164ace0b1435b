// Fixed-width little-endian fields in a row of bytes, written and read in order; a read beyond the end is an answer, not a crash.
// Not here: what the fields mean (store_identity.h, commit_record.h).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "memory/base/error.h"

namespace spillway {

static_assert(std::endian::native == std::endian::little);

class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::byte> out) : out_(out) {}
  template <typename T>
  void put(T value) {
    static_assert(std::is_integral_v<T>);
    put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text)));
  }
  void put_bytes(std::span<const std::byte> bytes) {
    SPILLWAY_CHECK(bytes.size() <= out_.size() - at_, "{} bytes at {} of {}", bytes.size(), at_, out_.size());
    if (!bytes.empty()) std::memcpy(out_.data() + at_, bytes.data(), bytes.size());
    at_ += bytes.size();
  }
  std::size_t size() const noexcept { return at_; }

 private:
  std::span<std::byte> out_;
  std::size_t at_ = 0;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> in) : in_(in) {}
  // Returns zero, and ok() turns false, if the bytes end before the field does.
  template <typename T>
  T get() {
    static_assert(std::is_integral_v<T>);
    T value{};
    if (const auto bytes = take(sizeof(T)); !bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  std::string get_text() {
    const auto bytes = take(get<std::uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  bool ok() const noexcept { return ok_; }
  std::size_t left() const noexcept { return in_.size() - at_; }

 private:
  std::span<const std::byte> take(std::size_t bytes) {
    ok_ &= bytes <= left();
    if (!ok_) return {};
    at_ += bytes;
    return in_.subspan(at_ - bytes, bytes);
  }
  std::span<const std::byte> in_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace spillway
