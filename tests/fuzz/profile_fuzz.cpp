// A machine profile.
#include "tests/fuzz/fuzz.h"
#include "trainer/machine/known_machines.h"
#include "trainer/machine/profile_file.h"

// The profiles that the program comes with are made for its own library, and are not untrusted bytes.
std::span<const spillway::EmbeddedFile> spillway::known_machines() { return {}; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  refuse_or_accept([&] {
    const MeasuredProfile profile = profile_from_json(std::string(text_of(data, size)), "profile.json");
    (void)to_json_text(profile);
    (void)as_seen(profile);
    (void)drive_in_words(profile);
  });
  return 0;
}
