// Rows of JSON lines of every shape: the first byte chooses how many ids are kept.
#include "tests/fuzz/fuzz.h"
#include "trainer/data/row_content.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  if (size < 1) return 0;
  const RowLimits limits{.most = data[0] % 32, .vocabulary = 1000};
  RowContent content;
  (void)read_row(text_of(data + 1, size - 1), limits, content);
  if (static_cast<std::int64_t>(content.ids.size()) > limits.most) __builtin_trap();
  return 0;
}
