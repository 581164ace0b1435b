// A configuration in YAML.
#include "files/strict_yaml.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  refuse_or_accept([&] { (void)shown(parse_strict_yaml(text_of(data, size), "c.yaml")); });
  return 0;
}
