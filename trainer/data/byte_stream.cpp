#include "trainer/data/byte_stream.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

class StoredBytes final : public ByteStream {
 public:
  explicit StoredBytes(PosixFile file) : file_(std::move(file)), size_(file_.size()) {}
  std::size_t read(std::span<char> out) override {
    const auto count = static_cast<std::size_t>(std::min<Bytes>(size_ - at_, static_cast<Bytes>(out.size())));
    file_.read(at_, std::as_writable_bytes(out.first(count)));
    at_ += static_cast<Bytes>(count);
    return count;
  }

 private:
  PosixFile file_;
  Bytes size_, at_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> bytes_of(PosixFile file) { return std::make_unique<StoredBytes>(std::move(file)); }

std::size_t read_fully(ByteStream& stream, std::span<char> out) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const std::size_t count = stream.read(out.subspan(filled));
    if (count == 0) break;
    filled += count;
  }
  return filled;
}

}  // namespace spillway
