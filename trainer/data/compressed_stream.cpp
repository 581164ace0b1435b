#include "trainer/data/compressed_stream.h"

#include <fmt/core.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr std::size_t kBlock = 256 << 10;  // compressed bytes in memory
constexpr int kMostWindow = 27;            // log2 of the bytes that a frame of Zstandard may refer back to

[[noreturn]] void refuse(const std::string& path, std::string_view found, std::string_view help = {}) {
  throw InputError(fmt::format("{}: {}", path, found), std::string(help));
}

constexpr std::string_view kMakeAgain = "The file was cut short or is damaged: fetch it or make it again.";

// Compressed bytes, a block at a time.
class Blocks {
 public:
  explicit Blocks(std::unique_ptr<ByteStream> stored) : stored_(std::move(stored)), block_(kBlock) {}
  // Those that nobody has taken, at least one; empty only at the end.
  std::span<char> rest() {
    if (at_ == end_) at_ = 0, end_ = stored_->read(block_);
    return std::span(block_).subspan(at_, end_ - at_);
  }
  void take(std::size_t bytes) { at_ += bytes, taken_ += bytes; }
  std::size_t taken() const { return taken_; }

 private:
  std::unique_ptr<ByteStream> stored_;
  std::vector<char> block_;
  std::size_t at_ = 0, end_ = 0, taken_ = 0;
};

class GzipBytes final : public ByteStream {
 public:
  GzipBytes(std::unique_ptr<ByteStream> stored, std::string path) : blocks_(std::move(stored)), path_(std::move(path)) {
    constexpr int kGzipAlone = 16;
    SPILLWAY_CHECK(inflateInit2(&state_, MAX_WBITS + kGzipAlone) == Z_OK, "zlib cannot begin");
  }
  ~GzipBytes() override { inflateEnd(&state_); }
  GzipBytes(const GzipBytes&) = delete;
  GzipBytes& operator=(const GzipBytes&) = delete;

  std::size_t read(std::span<char> out) override {
    for (;;) {
      const std::span<char> rest = blocks_.rest();
      if (is_between_ && !begin_member(rest)) return 0;
      if (is_between_) continue;
      if (rest.empty()) refuse(path_, fmt::format("gzip data end within, after {} bytes", blocks_.taken()), kMakeAgain);
      if (const std::size_t filled = inflate_some(rest, out); filled > 0) return filled;
    }
  }

 private:
  // Between members there may be zero bytes, with which tapes and archives are filled. Returns false at the end.
  bool begin_member(std::span<char> rest) {
    if (rest.empty()) {
      if (members_ == 0) refuse(path_, "found nothing, allowed: gzip data", kMakeAgain);
      return false;
    }
    if (members_ > 0 && rest.front() == 0) {
      blocks_.take(1);
      return true;
    }
    inflateReset(&state_);
    is_between_ = false;
    return true;
  }

  std::size_t inflate_some(std::span<char> rest, std::span<char> out) {
    state_.next_in = reinterpret_cast<Bytef*>(rest.data());
    state_.avail_in = static_cast<uInt>(rest.size());
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    state_.avail_out = static_cast<uInt>(std::min<std::size_t>(out.size(), 1 << 30));
    const uInt room = state_.avail_out;
    const int result = inflate(&state_, Z_NO_FLUSH);
    blocks_.take(rest.size() - state_.avail_in);
    if (result == Z_STREAM_END) {
      is_between_ = true;
      ++members_;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      refuse_member(result);
    }
    return room - state_.avail_out;
  }
  [[noreturn]] void refuse_member(int result) const {
    const std::string_view why = state_.msg != nullptr ? state_.msg : result == Z_NEED_DICT ? "it needs a dictionary" : "damaged";
    const bool is_other = state_.total_out == 0 && why == "incorrect header check";
    if (is_other && members_ > 0)
      refuse(path_, fmt::format("found other bytes behind the gzip data, at byte {}", blocks_.taken()), kMakeAgain);
    if (is_other) refuse(path_, "found bytes that are no gzip data, as its name says", "Rename it if it is not compressed.");
    refuse(path_, fmt::format("the gzip data are damaged near byte {}: {}", blocks_.taken(), why), kMakeAgain);
  }

  Blocks blocks_;
  std::string path_;
  z_stream state_ = {};
  bool is_between_ = true;  // before, between and behind members
  std::size_t members_ = 0;
};

class ZstdBytes final : public ByteStream {
 public:
  ZstdBytes(std::unique_ptr<ByteStream> stored, std::string path)
      : blocks_(std::move(stored)), path_(std::move(path)), state_(ZSTD_createDStream()) {
    SPILLWAY_CHECK(state_ != nullptr, "zstd cannot begin");
    ZSTD_DCtx_setParameter(state_, ZSTD_d_windowLogMax, kMostWindow);
  }
  ~ZstdBytes() override { ZSTD_freeDStream(state_); }
  ZstdBytes(const ZstdBytes&) = delete;
  ZstdBytes& operator=(const ZstdBytes&) = delete;

  std::size_t read(std::span<char> out) override {
    for (;;) {
      const std::span<char> rest = blocks_.rest();
      if (rest.empty() && !is_within_) {
        if (blocks_.taken() == 0) refuse(path_, "found nothing, allowed: Zstandard data", kMakeAgain);
        return 0;
      }
      ZSTD_inBuffer in{rest.data(), rest.size(), 0};
      ZSTD_outBuffer to{out.data(), out.size(), 0};
      const std::size_t result = ZSTD_decompressStream(state_, &to, &in);
      if (ZSTD_isError(result) != 0) refuse_frame(result);
      blocks_.take(in.pos);
      is_within_ = result != 0;
      if (to.pos > 0) return to.pos;
      if (rest.empty()) refuse(path_, fmt::format("Zstandard data end within, after {} bytes", blocks_.taken()), kMakeAgain);
    }
  }

 private:
  [[noreturn]] void refuse_frame(std::size_t result) const {
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(result);
    if (code == ZSTD_error_frameParameter_windowTooLarge)
      refuse(path_, fmt::format("needs more than {} MiB to be read, allowed: up to that", (1 << kMostWindow) >> 20),
             "Compress it again without --long or --ultra.");
    if (code == ZSTD_error_prefix_unknown && blocks_.taken() == 0)
      refuse(path_, "found bytes that are no Zstandard data, as its name says", "Rename it if it is not compressed.");
    refuse(path_, fmt::format("the Zstandard data are damaged near byte {}: {}", blocks_.taken(), ZSTD_getErrorName(result)),
           kMakeAgain);
  }

  Blocks blocks_;
  std::string path_;
  ZSTD_DStream* state_;
  bool is_within_ = false;  // a frame
};

}  // namespace

std::unique_ptr<ByteStream> decompressed(std::unique_ptr<ByteStream> stored, Compression compression, const std::string& path) {
  switch (compression) {
    case Compression::none: break;
    case Compression::gzip: return std::make_unique<GzipBytes>(std::move(stored), path);
    case Compression::zstd: return std::make_unique<ZstdBytes>(std::move(stored), path);
  }
  return stored;
}

}  // namespace spillway
