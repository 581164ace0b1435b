// A machine profile.
#include "tests/fuzz/fuzz.h"
#include "trainer/known_machines.h"
#include "trainer/profile_file.h"

// Those that the program comes with are made for its own library, and are no untrusted bytes.
std::span<const spillway::KnownMachine> spillway::known_machines() { return {}; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  refuse_or_accept([&] { (void)to_json_text(profile_from_json(std::string(text_of(data, size)), "profile.json")); });
  return 0;
}
