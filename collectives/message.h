// Messages over a socket: fields one after the other, in the byte order of x86-64, behind a head that says how long they are. A
// message that is received may be hostile: what is longer than its reader expects, or ends too early, is an IoError. Not here:
// what messages say.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/socket.h"
#include "memory/base/error.h"
#include "memory/base/types.h"

namespace spillway {

class Message {
 public:
  Message() = default;
  explicit Message(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_bytes({reinterpret_cast<const std::byte*>(&value), sizeof value});
  }
  void put_text(const std::string& text) { put_span(std::as_bytes(std::span(text))); }
  void put_span(std::span<const std::byte> data) {
    put(static_cast<std::uint64_t>(data.size()));
    put_bytes(data);
  }

  template <typename T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string get_text() {
    const std::span<const std::byte> data = get_span();
    return {reinterpret_cast<const char*>(data.data()), data.size()};
  }
  // Valid as long as the message.
  std::span<const std::byte> get_span() {
    const auto size = get<std::uint64_t>();
    const std::byte* const begin = take(size);
    return {begin, static_cast<std::size_t>(size)};
  }

  void append(const Message& other) { put_bytes(other.bytes_); }
  // Its first four bytes, to see what it is; nothing has been got of it yet.
  Message head() const { return Message({bytes_.begin(), bytes_.begin() + std::min<std::ptrdiff_t>(4, std::ssize(bytes_))}); }

  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  void put_bytes(std::span<const std::byte> data) { bytes_.insert(bytes_.end(), data.begin(), data.end()); }
  const std::byte* take(std::uint64_t size) {
    if (size > bytes_.size() - at_) throw IoError("a message of another rank ends too early");
    const std::byte* const begin = bytes_.data() + at_;
    at_ += static_cast<std::size_t>(size);
    return begin;
  }

  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;
};

void send_message(Socket& to, const Message& message, Deadline deadline);
// At most `longest` bytes.
Message receive_message(Socket& from, Bytes longest, Deadline deadline);

}  // namespace spillway
