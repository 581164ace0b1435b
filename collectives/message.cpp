#include "collectives/message.h"

#include <array>

namespace spillway {
namespace {

constexpr std::uint64_t kMagic = 0x3153'4B4E'4152'5053;  // "SPRANKS1"

}  // namespace

void send_message(Socket& to, const Message& message, Deadline deadline) {
  const std::array<std::uint64_t, 2> head = {kMagic, message.bytes().size()};
  to.send(std::as_bytes(std::span(head)), deadline);
  to.send(message.bytes(), deadline);
}

Message receive_message(Socket& from, Bytes longest, Deadline deadline) {
  std::array<std::uint64_t, 2> head{};
  from.receive(std::as_writable_bytes(std::span(head)), deadline);
  if (head[0] != kMagic || head[1] > static_cast<std::uint64_t>(longest))
    throw IoError(fmt::format("{} says what no rank of Spillway says", from.peer()));
  std::vector<std::byte> bytes(static_cast<std::size_t>(head[1]));
  from.receive(bytes, deadline);
  return Message(std::move(bytes));
}

}  // namespace spillway
