// log.jsonl.
#include "tests/fuzz/fuzz.h"
#include "trainer/show/log.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  const FuzzFile content(text_of(data, size));
  refuse_or_accept([&] {
    for (const StepRecord& record : read_log(content.path())) {
      // A record that was read can be written, and reads back the same.
      const std::string line = to_log_line(record);
      if (to_log_line(parse_log_line(line, "log.jsonl")) != line) __builtin_trap();
    }
  });
  return 0;
}
