// Stands in for libFuzzer where it is missing: runs each file of a corpus whole, cut short, and with a byte overwritten, alike on
// all machines. So every build checks that the targets compile, and that the parsers refuse or accept damaged bytes.
// Not here: the search for new inputs (tools/fuzz).
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

#include "files/posix_file.h"
#include "memory/base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void run(const std::string& input) { LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size()); }

void run_damaged(const std::string& input) {
  constexpr std::size_t beginnings = 64, flips = 256;
  for (std::size_t i = 0; i < beginnings; ++i) run(input.substr(0, input.size() * i / beginnings));
  for (std::size_t i = 0; i < flips; ++i) {
    std::string damaged = input;
    const std::uint64_t where = spillway::mix64(2 * i), how = spillway::mix64(2 * i + 1);
    damaged[where % damaged.size()] = static_cast<char>(how);
    run(damaged);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  int inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    try {
      const std::string input = spillway::read_text_file(entry.path(), spillway::kMiB);
      run(input);
      if (!input.empty()) run_damaged(input);
      ++inputs;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", entry.path().c_str(), error.what());
      return 1;
    }
  }
  std::printf("%d inputs\n", inputs);
  return inputs == 0 ? 1 : 0;
}
