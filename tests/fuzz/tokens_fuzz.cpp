// Token files: the first byte chooses the format, the second the length of a sequence.
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "trainer/data/data_source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  if (size < 2) return 0;
  const auto format = static_cast<TokenFileFormat>(data[0] % 4);
  const std::int64_t length = 1 + data[1] % 64;
  const FuzzFile content(text_of(data + 2, size - 2));
  refuse_or_accept([&] {
    const auto source = open_token_file(PosixFile::open_to_read(content.path()), "fuzz", format, {length, 1000});
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(length)), targets(tokens.size());
    for (std::int64_t i = 0; i < source->sequences(); ++i) source->read(i, {.tokens = tokens, .targets = targets});
  });
  return 0;
}
