#include "trainer/host/file_blocks.h"

#include <algorithm>
#include <vector>

#include "trainer/host/interrupt.h"

namespace spillway {

void for_each_block(const PosixFile& file, Bytes offset, Bytes end,
                    FunctionRef<void(Bytes offset, std::span<const std::byte> block)> visit) {
  constexpr Bytes kBlock = kMiB;
  std::vector<std::byte> block(static_cast<std::size_t>(std::clamp<Bytes>(end - offset, 0, kBlock)));
  for (; offset < end; offset += kBlock) {
    InterruptHandler::stop_where_requested("the data were not read to their end");
    const std::span<std::byte> bytes(block.data(), static_cast<std::size_t>(std::min(kBlock, end - offset)));
    file.read(offset, bytes);
    visit(offset, bytes);
  }
}

}  // namespace spillway
