#include "trainer/data/open_data.h"

#include <vector>

#include "trainer/data/compressed_stream.h"
#include "trainer/data/hidden_file.h"
#include "trainer/data/standard_input.h"
#include "trainer/host/interrupt.h"

namespace spillway {

DataName data_name_of(const std::string& path) {
  return path == kStandardInput ? StandardInput::get().name() : data_name_in(path);
}

std::string shown_data_path(const std::string& path) { return path == kStandardInput ? "standard input" : path; }

PosixFile open_stored(const std::string& path) {
  return path == kStandardInput ? StandardInput::get().open() : PosixFile::open_to_read(path);
}

std::unique_ptr<ByteStream> open_bytes(const std::string& path) {
  return decompressed(bytes_of(open_stored(path)), data_name_of(path).compression, shown_data_path(path));
}

PosixFile open_for_random_access(const std::string& path) {
  if (data_name_of(path).compression == Compression::none) return open_stored(path);
  HiddenFile file("data files are decompressed into a temporary file");
  const std::unique_ptr<ByteStream> bytes = open_bytes(path);
  std::vector<char> block(1 << 20);
  for (std::size_t count = 0; (count = bytes->read(block)) > 0;) {
    InterruptHandler::stop_where_requested("the data were not decompressed to their end");
    file.write(std::as_bytes(std::span(block).first(count)));
  }
  return file.open();
}

}  // namespace spillway
