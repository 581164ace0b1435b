// Messages to a rank before the ranks have met: each from its bytes, and whole from a socket, as it is and with the
// head set right, which random bytes never have.
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstring>
#include <vector>

#include "collectives/hello.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace spillway;

// The parser, and that what it took is said and taken again as it was. An IoError is the refusal.
template <typename Parse>
void take_and_say(const std::vector<std::byte>& bytes, Parse&& parse) {
  refuse_or_accept([&] {
    Message message(bytes);
    const Message said = message_of(parse(message));
    Message again(said.bytes());
    if (message_of(parse(again)).bytes() != said.bytes()) __builtin_trap();
  });
}

void receive_from_socket(const std::vector<std::byte>& bytes) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) __builtin_trap();
  Socket from(ends[0], "a stranger"), to(ends[1], "a rank");
  const Deadline soon = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  to.send(bytes, soon);
  to.shut_down();
  refuse_or_accept([&] {
    Message message = receive_message(from, kMiB, soon);
    (void)hello_in(message);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMost = 64 << 10, kHead = 16;  // what a socket holds; magic and length
  if (size > kMost) return 0;
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  take_and_say(bytes, hello_in);
  take_and_say(bytes, caller_in);
  for (const int ranks : {2, 5, 1 << 16}) take_and_say(bytes, [ranks](Message& message) { return roster_in(message, ranks); });
  refuse_or_accept([&] {
    Message message(bytes);
    (void)disagreement({{"--lr", "1e-5"}, {"--seed", ""}}, 1, hello_in(message).agreed);
  });
  receive_from_socket(bytes);
  if (size < kHead) return 0;
  const std::array<std::uint64_t, 2> head = {0x3153'4B4E'4152'5053, size - kHead};
  std::memcpy(bytes.data(), head.data(), sizeof head);
  receive_from_socket(bytes);
  return 0;
}
