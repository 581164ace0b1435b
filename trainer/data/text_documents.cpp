#include "trainer/data/text_documents.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

#include "memory/base/error.h"
#include "trainer/data/array_rows.h"
#include "trainer/data/open_data.h"
#include "trainer/data/row_reader.h"
#include "trainer/text/resource_error.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

constexpr std::size_t kBatch = 4 << 20;         // bytes of text in memory, if it can be cut
constexpr std::size_t kPiece = 128 << 10;       // bytes of text that a thread takes at a time
constexpr std::size_t kLongest = kLongestLine;  // bytes of text in memory, even if it cannot be cut

// The work that a thread takes at a time: lines of JSONL, or a stretch of a text.
struct Piece {
  std::string_view text;
  std::int64_t first_line = 1;
  Stretch stretch = Stretch::first;
  bool ends_document = false;
  // Its result:
  struct Document {
    std::size_t end;          // in ids
    EncodedRow row;           // of a row
    std::int64_t number = 0;  // of a row, in the piece
  };
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> targets;  // [ids] of rows
  std::vector<Document> documents;
  std::int64_t rows = 0;  // bad ones included
  std::int64_t bad_lines = 0;
  std::string problem, help;   // the first one
  std::exception_ptr failure;  // the first one that is no fault of a row

  void clear() {
    failure = nullptr;
    ids.clear();
    targets.clear();
    documents.clear();
    rows = bad_lines = 0;
    problem.clear();
    help.clear();
  }
};

// What messages call the rows of a file: "x.jsonl line 3", "x.json row 3".
struct RowPlace {
  std::string file;
  std::string_view unit = "line";
  std::string at(std::int64_t number) const { return fmt::format("{} {} {}", file, unit, number); }
};

void encode_rows(Piece& piece, BadLines bad_lines, const RowPlace& place, RowEncoder& encoder) {
  std::string_view rest = piece.text;
  for (std::int64_t line = piece.first_line; !rest.empty(); ++line) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view row = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (is_blank(row)) continue;
    const std::int64_t number = piece.rows++;
    try {
      const EncodedRow encoded = encoder.encode(row, place.file, piece.ids, piece.targets);
      piece.documents.push_back({piece.ids.size(), encoded, number});
      continue;
    } catch (const ResourceError&) {
      piece.failure = std::current_exception();
      return;
    } catch (const InputError& error) {
      if (piece.bad_lines++ == 0) {
        piece.problem = fmt::format("{}: {}", place.at(line), error.what());
        piece.help = error.help();
      }
    } catch (const Error&) {
      piece.failure = std::current_exception();
      return;
    }
    if (bad_lines == BadLines::refuse) return;
  }
}

void encode_text(Piece& piece, const std::string& file, TokenEncoder& encoder) {
  try {
    encoder.encode(piece.text, piece.ids, piece.stretch);
    if (piece.ends_document) piece.documents.push_back({piece.ids.size(), {}});
  } catch (const Error& error) {
    piece.problem = fmt::format("{}: {}", file, error.what());
  }
}

// The part of a file's text that is in memory, with its offset in the text of the file.
class TextWindow {
 public:
  explicit TextWindow(std::unique_ptr<ByteStream> bytes) : bytes_(std::move(bytes)) {
    // A byte-order mark says that the text is UTF-8 and is no part of it.
    constexpr std::string_view kMark = "\xef\xbb\xbf";
    fill(kMark.size());
    if (!std::string_view(buffer_).starts_with(kMark)) return;
    take(kMark.size());
    begin_ = std::ssize(kMark);
  }

  std::string_view text() const { return std::string_view(buffer_).substr(taken_); }
  bool is_at_end() const { return has_ended_; }                          // all of it has been read
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
  // Reads until `bytes` of text are in memory and one more, which tells whether it goes on; or all that is left.
  void fill(std::size_t bytes) {
    buffer_.erase(0, taken_);
    offset_ += static_cast<Bytes>(taken_);
    taken_ = 0;
    const std::size_t before = buffer_.size();
    if (before > bytes || has_ended_) return;
    buffer_.resize(bytes + 1);
    buffer_.resize(before + read_fully(*bytes_, std::span(buffer_).subspan(before)));
    has_ended_ = buffer_.size() <= bytes;
  }

 private:
  std::unique_ptr<ByteStream> bytes_;
  std::string buffer_;
  Bytes begin_ = 0;        // offset of the text in the file, after a byte-order mark
  Bytes offset_ = 0;       // offset of the buffer in the file
  std::size_t taken_ = 0;  // bytes of the buffer that were taken
  bool has_ended_ = false;
};

// The lines of a file of rows.
std::unique_ptr<ByteStream> open_lines(const std::string& path, DataKind kind, RowPlace& place) {
  std::unique_ptr<ByteStream> bytes = open_bytes(path);
  if (kind != DataKind::array) return bytes;
  bool is_array = false;
  bytes = lines_of_json(std::move(bytes), place.file, is_array);
  if (is_array) place.unit = "row";
  return bytes;
}

}  // namespace

struct DocumentReader::Impl {
  Impl(const TextTools& text_tools, const RowRules& rules, const ThreadPool& threads, BadLines lines)
      : tools(text_tools), pool(threads), bad_lines(lines) {
    for (int i = 0; i < threads.threads(); ++i) row_encoders.emplace_back(tools, rules);
  }

  void read(const std::string& path, FunctionRef<void(const DocumentPart&)> take,
            FunctionRef<void(const DocumentCounts&)> progress) {
    const DataKind kind = data_name_of(path).kind;
    const bool has_rows = spillway::has_rows(kind);
    RowPlace place{.file = shown_data_path(path)};
    if (!has_rows) load_encoders(place.file);
    TextWindow window(has_rows ? open_lines(path, kind, place) : open_bytes(path));
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
        is_open = !cut_text(window, place.file);
      if (pieces_ == 0) {  // nothing can be cut off yet
        if (wanted >= kLongest) {
          if (!has_rows || bad_lines == BadLines::refuse) refuse_long(place, has_rows, window.offset(), line);
          count_bad_line(long_line(place, line), 1);
          ++rows_;
          window.drop_line();
          counts_.bytes += window.offset() - before;
          ++line;
          wanted = kBatch;
          progress(counts_);
          continue;
        }
        wanted *= 2;
        continue;
      }
      wanted = kBatch;
      pool.parallel_for(static_cast<std::int64_t>(pieces_), [&](std::int64_t task, int worker) {
        Piece& piece = batch_[static_cast<std::size_t>(task)];
        if (has_rows)
          encode_rows(piece, bad_lines, place, row_encoders[static_cast<std::size_t>(worker)]);
        else
          encode_text(piece, place.file, text_encoders_[static_cast<std::size_t>(worker)]);
      });
      counts_.bytes += window.offset() - before;
      hand_over(take);
      progress(counts_);
      if (!has_rows && !is_open) break;
    }
  }

  const DocumentCounts& counts() const { return counts_; }
  std::int64_t rows() const { return rows_; }

 private:
  void load_encoders(const std::string& file) {
    tokenizer_ = &tools.tokenizer(file).tokenizer;
    while (std::ssize(text_encoders_) < pool.threads()) text_encoders_.emplace_back(*tokenizer_);
  }
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
      const std::size_t cut = tokenizer_->last_cut(rest.substr(0, end));
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

  static std::string long_line(const RowPlace& place, std::int64_t line) {
    return fmt::format("{}: longer than {} bytes, allowed: {}s up to that", place.at(line), kLongest, place.unit);
  }
  void count_bad_line(const std::string& problem, std::int64_t lines) {
    if (counts_.bad_lines == 0) counts_.first_bad_line = problem;
    counts_.bad_lines += lines;
  }
  [[noreturn]] void refuse_long(const RowPlace& place, bool has_rows, Bytes offset, std::int64_t line) const {
    if (has_rows) throw InputError(long_line(place, line), kSkipHelp);
    throw InputError(fmt::format("{}: more than {} bytes from byte {} on cannot be cut, allowed: text up to that", place.file,
                                 kLongest, offset),
                     "the tokenizer needs that text as one; break it into lines of words, or into several files");
  }

  void hand_over(FunctionRef<void(const DocumentPart&)> take) {
    for (std::size_t i = 0; i < pieces_; ++i) {
      const Piece& piece = batch_[i];
      if (piece.failure) std::rethrow_exception(piece.failure);
      if (!piece.problem.empty()) {
        const bool may_skip = bad_lines == BadLines::skip && piece.bad_lines > 0;
        if (!may_skip) throw InputError(piece.problem, piece.bad_lines > 0 && piece.help.empty() ? kSkipHelp : piece.help);
        count_bad_line(piece.problem, piece.bad_lines);
      }
      const std::span<const std::int32_t> ids(piece.ids), targets(piece.targets);
      std::size_t begin = 0;
      for (const auto& [end, row, number] : piece.documents) {
        const std::size_t length = end - begin;
        take({ids.subspan(begin, length), targets.empty() ? targets : targets.subspan(begin, length), true, rows_ + number});
        count_document(static_cast<std::int64_t>(length), targets.empty() ? nullptr : &row);
        begin = end;
      }
      rows_ += piece.rows;
      if (begin < ids.size()) take({ids.subspan(begin), {}, false});
      in_document_ += static_cast<std::int64_t>(ids.size() - begin);
      counts_.tokens += static_cast<std::int64_t>(ids.size());
    }
  }
  // `length`: of its last part, in tokens; `row`: null for a text.
  void count_document(std::int64_t length, const EncodedRow* row) {
    in_document_ += length;
    ++counts_.documents;
    counts_.empty_documents += in_document_ == 0 ? 1 : 0;
    counts_.with_loss += row != nullptr ? row->with_loss : std::max<std::int64_t>(in_document_ - 1, 0);
    counts_.longest_row = std::max(counts_.longest_row, row != nullptr ? row->tokens : 0);
    counts_.cut += row != nullptr && row->is_cut ? 1 : 0;
    in_document_ = 0;
  }

  const TextTools& tools;
  const ThreadPool& pool;
  const BadLines bad_lines;
  std::vector<RowEncoder> row_encoders;  // [threads]

 private:
  const Tokenizer* tokenizer_ = nullptr;     // of text
  std::vector<TokenEncoder> text_encoders_;  // [threads]
  std::vector<Piece> batch_;
  std::size_t pieces_ = 0;  // pieces in use
  std::int64_t in_document_ = 0;
  std::int64_t rows_ = 0;  // of all files so far, bad ones included
  DocumentCounts counts_;
};

DocumentReader::DocumentReader(const TextTools& tools, const RowRules& rules, const ThreadPool& pool, BadLines bad_lines)
    : impl_(std::make_unique<Impl>(tools, rules, pool, bad_lines)) {}
DocumentReader::~DocumentReader() = default;

void DocumentReader::read(const std::string& path, FunctionRef<void(const DocumentPart&)> take,
                          FunctionRef<void(const DocumentCounts&)> progress) {
  impl_->read(path, take, progress);
}

const DocumentCounts& DocumentReader::counts() const { return impl_->counts(); }
std::int64_t DocumentReader::rows() const { return impl_->rows(); }

}  // namespace spillway
