#include "trainer/data/text_documents.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "files/posix_file.h"
#include "memory/base/error.h"
#include "trainer/chat/chat_template.h"
#include "trainer/data/row_reader.h"
#include "trainer/text/resource_error.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

constexpr std::size_t kBatch = 4 << 20;         // bytes of text in memory, if it can be cut
constexpr std::size_t kPiece = 128 << 10;       // bytes of text that a thread takes at a time
constexpr std::size_t kLongest = kLongestLine;  // bytes of text in memory, even if it cannot be cut

// Takes the "text" of the object on a line.
class TextRow final : public RowReader<TextRow> {
 public:
  std::string text;

  bool has_text() const { return has_text_; }

  bool enter(const std::string& name) {
    is_text_ = name == "text";
    if (is_text_) return once(has_text_, name);
    return name != "messages" || once(has_messages_, name);
  }
  bool take(std::string& value) {
    if (depth() != 1 || !is_text_) return other("a string");
    text.swap(value);
    is_text_ = false;
    return true;
  }
  bool number(std::int64_t) { return other("a number"); }
  bool real(const std::string&) { return other("a number"); }
  bool open(std::string_view found) { return other(found); }
  bool other(std::string_view found) {
    if (depth() == 0) return refuse(found, "an object with \"text\" or \"messages\" a line");
    return depth() != 1 || !is_text_ || refuse_saying(fmt::format("\"text\" is {}, allowed: a string", found));
  }
  static bool reads(std::string_view key, const std::vector<std::string_view>& keys) {
    if (std::ranges::find(keys, "text") != keys.end()) return key == "text";
    return key == "messages" || key == "tools";
  }
  void restart() { is_text_ = has_text_ = has_messages_ = false; }
  bool finish(std::string_view) {
    return has_text_ || has_messages_ || refuse("neither \"text\" nor \"messages\"", "an object with one of them a line");
  }

 private:
  bool is_text_ = false;
  bool has_text_ = false;
  bool has_messages_ = false;
};

// Loads the chat template at the first conversation: rows of text need none.
class Conversations {
 public:
  explicit Conversations(const Tokenizer& tokenizer) : tokenizer_(tokenizer.path()) {}
  std::string text_of(std::string_view row) const {
    std::call_once(is_loaded_, [&] {
      try {
        template_.emplace(loaded_resource([&] { return ChatTemplate::load(tokenizer_); }));
      } catch (...) {
        failed_ = std::current_exception();  // kept for all threads: the template is read once
      }
    });
    if (failed_) std::rethrow_exception(failed_);
    return template_->render(row);
  }

 private:
  std::string tokenizer_;
  mutable std::once_flag is_loaded_;
  mutable std::exception_ptr failed_;
  mutable std::optional<ChatTemplate> template_;
};

// The work that a thread takes at a time: lines of JSONL, or a stretch of a text.
struct Piece {
  std::string_view text;
  std::int64_t first_line = 1;
  Stretch stretch = Stretch::first;
  bool ends_document = false;
  // Its result:
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> ends;  // [documents] end of each in ids
  std::int64_t bad_lines = 0;
  std::string problem;         // the first one
  std::exception_ptr failure;  // the first one that is no fault of a row

  void clear() {
    failure = nullptr;
    ids.clear();
    ends.clear();
    bad_lines = 0;
    problem.clear();
  }
};

void encode_rows(Piece& piece, BadLines bad_lines, const std::string& file, const Conversations& conversations,
                 TokenEncoder& encoder) {
  std::string_view rest = piece.text;
  for (std::int64_t line = piece.first_line; !rest.empty(); ++line) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view row = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (is_blank(row)) continue;
    TextRow reader;
    std::string problem;
    const std::size_t before = piece.ids.size();
    if (reader.read(row)) {
      try {
        encoder.encode(reader.has_text() ? reader.text : conversations.text_of(reader.line()), piece.ids);
        piece.ends.push_back(piece.ids.size());
        continue;
      } catch (const ResourceError&) {
        piece.failure = std::current_exception();
        return;
      } catch (const InputError& error) {
        problem = error.what();
        piece.ids.resize(before);
      } catch (const Error&) {
        piece.failure = std::current_exception();
        return;
      }
    }
    if (piece.bad_lines++ == 0)
      piece.problem = fmt::format("{} line {}: {}", file, line, problem.empty() ? reader.problem() : problem);
    if (bad_lines == BadLines::refuse) return;
  }
}

void encode_text(Piece& piece, const std::string& file, TokenEncoder& encoder) {
  try {
    encoder.encode(piece.text, piece.ids, piece.stretch);
    if (piece.ends_document) piece.ends.push_back(piece.ids.size());
  } catch (const Error& error) {
    piece.problem = fmt::format("{}: {}", file, error.what());
  }
}

// The part of a file's text that is in memory, with its offset in the file.
class TextWindow {
 public:
  explicit TextWindow(const std::string& path) : file_(PosixFile::open_to_read(path)), size_(file_.size()) {
    // A byte-order mark says that the text is UTF-8 and is no part of it.
    constexpr std::string_view kMark = "\xef\xbb\xbf";
    std::array<char, kMark.size()> head{};
    if (size_ < std::ssize(kMark)) return;
    file_.read(0, std::as_writable_bytes(std::span(head)));
    if (std::string_view(head.data(), head.size()) == kMark) begin_ = offset_ = std::ssize(kMark);
  }

  std::string_view text() const { return std::string_view(buffer_).substr(taken_); }
  bool is_at_end() const { return offset_ + static_cast<Bytes>(buffer_.size()) >= size_; }
  Bytes offset() const { return offset_ + static_cast<Bytes>(taken_); }  // offset of text() in the file
  bool is_at_begin() const { return offset() == begin_; }
  void take(std::size_t bytes) { taken_ += bytes; }
  // Drops the text in memory, then reads and drops up to the end of the line.
  void drop_line() {
    for (;;) {
      take(text().size());
      fill(kBatch);
      const std::size_t newline = text().find('\n');
      if (newline != text().npos) return take(newline + 1);
      if (is_at_end()) return take(text().size());
    }
  }
  // Reads until `bytes` of text are in memory, or all that is left.
  void fill(std::size_t bytes) {
    buffer_.erase(0, taken_);
    offset_ += static_cast<Bytes>(taken_);
    taken_ = 0;
    const std::size_t before = buffer_.size();
    const Bytes left = size_ - offset_ - static_cast<Bytes>(before);
    if (before >= bytes || left <= 0) return;
    buffer_.resize(before + static_cast<std::size_t>(std::min<Bytes>(left, static_cast<Bytes>(bytes - before))));
    file_.read(offset_ + static_cast<Bytes>(before), std::as_writable_bytes(std::span(buffer_).subspan(before)));
  }

 private:
  PosixFile file_;
  Bytes size_;
  std::string buffer_;
  Bytes begin_ = 0;        // offset of the text in the file, after a byte-order mark
  Bytes offset_ = 0;       // offset of the buffer in the file
  std::size_t taken_ = 0;  // bytes of the buffer that were taken
};

class DocumentReader {
 public:
  DocumentReader(const Tokenizer& tokenizer, const ThreadPool& pool, BadLines bad_lines,
                 FunctionRef<void(std::span<const std::int32_t>, bool)> tokens, FunctionRef<void(const DocumentCounts&)> progress)
      : tokenizer_(tokenizer),
        conversations_(tokenizer),
        pool_(pool),
        bad_lines_(bad_lines),
        tokens_(tokens),
        progress_(progress) {
    for (int i = 0; i < pool.threads(); ++i) encoders_.emplace_back(tokenizer);
  }

  void read(const std::string& path) {
    const bool has_rows = std::filesystem::path(path).extension() == ".jsonl";
    TextWindow window(path);
    std::size_t wanted = kBatch;
    bool is_open = !has_rows;  // a text is a document even if it is empty
    std::int64_t line = 1;
    for (;;) {
      window.fill(wanted);
      if (window.text().empty() && !is_open) break;
      const Bytes before = window.offset();
      pieces_ = 0;
      if (has_rows)
        cut_rows(window, line);
      else
        is_open = !cut_text(window, path);
      if (pieces_ == 0) {  // nothing can be cut off yet
        if (wanted >= kLongest) {
          if (!has_rows || bad_lines_ == BadLines::refuse) refuse_long(path, has_rows, window.offset(), line);
          count_bad_line(long_line(path, line), 1);
          window.drop_line();
          counts_.bytes += window.offset() - before;
          ++line;
          wanted = kBatch;
          progress_(counts_);
          continue;
        }
        wanted *= 2;
        continue;
      }
      wanted = kBatch;
      pool_.parallel_for(static_cast<std::int64_t>(pieces_), [&](std::int64_t task, int worker) {
        Piece& piece = batch_[static_cast<std::size_t>(task)];
        TokenEncoder& encoder = encoders_[static_cast<std::size_t>(worker)];
        if (has_rows)
          encode_rows(piece, bad_lines_, path, conversations_, encoder);
        else
          encode_text(piece, path, encoder);
      });
      counts_.bytes += window.offset() - before;
      hand_over();
      progress_(counts_);
      if (!has_rows && !is_open) break;
    }
  }

  DocumentCounts& counts() { return counts_; }

 private:
  Piece& next_piece() {
    if (pieces_ == batch_.size()) batch_.emplace_back();
    Piece& piece = batch_[pieces_++];
    piece.clear();
    return piece;
  }

  // Makes pieces of the whole lines in memory.
  void cut_rows(TextWindow& window, std::int64_t& line) {
    const std::string_view text = window.text();
    std::size_t end = text.size();
    if (!window.is_at_end()) {
      end = text.rfind('\n');
      if (end == text.npos) return;
      ++end;
    }
    std::size_t at = 0;
    while (at < end) {
      const std::size_t newline = text.find('\n', std::min(at + kPiece, end - 1));
      const std::size_t stop = newline == text.npos ? end : newline + 1;
      Piece& piece = next_piece();
      piece.text = text.substr(at, stop - at);
      piece.first_line = line;
      line += std::count(piece.text.begin(), piece.text.end(), '\n');
      at = stop;
    }
    window.take(end);
  }

  // Makes pieces that together have the tokens of the whole text; returns true when the document has ended.
  bool cut_text(TextWindow& window, const std::string& path) {
    std::string_view text = window.text();
    const std::size_t invalid = find_invalid_utf8(text);
    if (invalid != kValidUtf8) {
      // The end of the text in memory may cut a character in two.
      if (window.is_at_end() || invalid + 3 < text.size())
        throw InputError(fmt::format("{}: {}", path, invalid_utf8_message(text, invalid, window.offset())),
                         "convert the file to UTF-8");
      text = text.substr(0, invalid);
    }
    std::size_t at = 0;
    const bool is_whole = window.is_at_end();
    for (std::size_t length = kPiece;;) {
      const std::string_view rest = text.substr(at);
      const Stretch stretch = window.is_at_begin() && at == 0 ? Stretch::first : Stretch::continued;
      if (is_whole && length >= rest.size()) {
        add_stretch(rest, stretch, true);
        window.take(at + rest.size());
        return true;
      }
      std::size_t end = std::min(length, rest.size());
      while (end < rest.size() && (static_cast<unsigned char>(rest[end]) & 0xc0U) == 0x80) --end;
      const std::size_t cut = tokenizer_.last_cut(rest.substr(0, end));
      if (cut != rest.npos) {
        add_stretch(rest.substr(0, cut), stretch, false);
        at += cut;
        length = kPiece;
      } else if (length >= rest.size()) {
        window.take(at);
        return false;
      } else {
        length *= 2;
      }
    }
  }
  void add_stretch(std::string_view text, Stretch stretch, bool ends_document) {
    Piece& piece = next_piece();
    piece.text = text;
    piece.stretch = stretch;
    piece.ends_document = ends_document;
  }

  static std::string long_line(const std::string& path, std::int64_t line) {
    return fmt::format("{} line {}: longer than {} bytes, allowed: lines up to that", path, line, kLongest);
  }
  void count_bad_line(const std::string& problem, std::int64_t lines) {
    if (counts_.bad_lines == 0) counts_.first_bad_line = problem;
    counts_.bad_lines += lines;
  }
  [[noreturn]] void refuse_long(const std::string& path, bool has_rows, Bytes offset, std::int64_t line) const {
    if (has_rows) throw InputError(long_line(path, line), kSkipHelp);
    throw InputError(
        fmt::format("{}: more than {} bytes from byte {} on cannot be cut, allowed: text up to that", path, kLongest, offset),
        "the tokenizer needs that text as one; break it into lines of words, or into several files");
  }

  void hand_over() {
    for (std::size_t i = 0; i < pieces_; ++i) {
      const Piece& piece = batch_[i];
      if (piece.failure) std::rethrow_exception(piece.failure);
      if (!piece.problem.empty()) {
        const bool may_skip = bad_lines_ == BadLines::skip && piece.bad_lines > 0;
        if (!may_skip) {
          throw InputError(piece.problem, piece.bad_lines > 0 ? kSkipHelp : "");
        }
        count_bad_line(piece.problem, piece.bad_lines);
      }
      const std::span<const std::int32_t> ids(piece.ids);
      std::size_t begin = 0;
      for (const std::size_t end : piece.ends) {
        in_document_ += static_cast<std::int64_t>(end - begin);
        tokens_(ids.subspan(begin, end - begin), true);
        ++counts_.documents;
        counts_.empty_documents += in_document_ == 0 ? 1 : 0;
        in_document_ = 0;
        begin = end;
      }
      if (begin < ids.size()) tokens_(ids.subspan(begin), false);
      in_document_ += static_cast<std::int64_t>(ids.size() - begin);
      counts_.tokens += static_cast<std::int64_t>(ids.size());
    }
  }

  const Tokenizer& tokenizer_;
  Conversations conversations_;
  const ThreadPool& pool_;
  BadLines bad_lines_;
  FunctionRef<void(std::span<const std::int32_t>, bool)> tokens_;
  FunctionRef<void(const DocumentCounts&)> progress_;
  std::vector<TokenEncoder> encoders_;  // [threads]
  std::vector<Piece> batch_;
  std::size_t pieces_ = 0;  // pieces in use
  std::int64_t in_document_ = 0;
  DocumentCounts counts_;
};

}  // namespace

DocumentCounts encode_documents(const std::vector<std::string>& files, const Tokenizer& tokenizer, const ThreadPool& pool,
                                BadLines bad_lines, FunctionRef<void(std::span<const std::int32_t>, bool)> tokens,
                                FunctionRef<void(const DocumentCounts&)> progress) {
  DocumentReader reader(tokenizer, pool, bad_lines, tokens, progress);
  for (const std::string& file : files) reader.read(file);
  return reader.counts();
}

}  // namespace spillway
