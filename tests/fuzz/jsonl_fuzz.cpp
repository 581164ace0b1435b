// Rows of JSON lines: the first byte chooses what is done with long rows and with text.
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "trainer/data/data_source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  if (size < 1) return 0;
  const auto long_rows = data[0] % 2 == 0 ? LongRows::refuse : LongRows::truncate;
  const auto text_rows = data[0] % 4 < 2 ? TextRows::refuse : TextRows::bytes;
  constexpr std::int64_t length = 16;
  const FuzzFile content(text_of(data + 1, size - 1));
  refuse_or_accept([&] {
    const auto source = open_jsonl_file(PosixFile::open_to_read(content.path()), long_rows, text_rows, {length, 1000});
    std::vector<std::int32_t> tokens(length), targets(length);
    for (std::int64_t i = 0; i < source->sequences(); ++i) source->read(i, tokens, targets);
  });
  return 0;
}
