// A machine profile.
#include "tests/fuzz/fuzz.h"
#include "trainer/profile_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  refuse_or_accept([&] { (void)to_json_text(profile_from_json(std::string(text_of(data, size)), "profile.json")); });
  return 0;
}
