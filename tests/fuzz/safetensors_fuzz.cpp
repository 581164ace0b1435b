// The header of a safetensors file, and reads of what it names.
#include <algorithm>
#include <vector>

#include "files/safetensors.h"
#include "files/safetensors_header.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  const FuzzFile content(text_of(data, size));
  refuse_or_accept([&] {
    const PosixFile file = PosixFile::open_to_read(content.path());
    for (const StoredTensor& tensor : read_safetensors_header(file)) {
      // A tensor that passed the checks lies within the file.
      if (tensor.offset < 0 || tensor.bytes < 0 || tensor.bytes > static_cast<Bytes>(size) - tensor.offset) __builtin_trap();
      std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes));
      file.read(tensor.offset, bytes);
    }
  });
  return 0;
}
