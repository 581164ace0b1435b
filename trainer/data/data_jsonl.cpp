// JSONL: each row is a sequence. Rows are indexed once (the offset and the number of positions with loss are kept) and parsed
// again when they are read.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "memory/base/error.h"
#include "trainer/data/data.h"
#include "trainer/data/data_source.h"
#include "trainer/data/row_reader.h"
#include "trainer/host/file_blocks.h"
#include "trainer/text/resource_error.h"

namespace spillway {
namespace {

// The contents of a row. Vectors keep at most T + 1 elements, so that a hostile row costs no memory; `ids_found` counts all ids.
struct Row {
  std::vector<std::int32_t> ids;     // [at most T + 1]
  std::vector<std::int32_t> labels;  // [at most T + 1]
  std::int64_t ids_found = 0;
  std::int64_t labels_found = 0;
  bool has_ids = false;
  bool has_labels = false;
  bool has_text = false;
  bool has_messages = false;
};

// Numbers under keys that nobody reads are ignored.
class SequenceRow final : public RowReader<SequenceRow> {
 public:
  SequenceRow(Row& row, SequenceShape shape, TextRows text_rows, const RowEncoding& encoding)
      : row_(row), shape_(shape), text_rows_(text_rows), encoding_(encoding) {}

  bool enter(const std::string& name) {
    key_ = Key::other;
    if (name == "input_ids") {
      row_.ids.clear();  // it replaces a "text" before it
      return once(row_.has_ids, name) && (key_ = Key::input_ids, true);
    }
    if (name == "labels") return once(row_.has_labels, name) && (key_ = Key::labels, true);
    if (name == "text") return once(row_.has_text, name) && (key_ = Key::text, true);
    return name != "messages" || once(row_.has_messages, name);
  }
  bool take(std::string& text) {
    if (depth() != 1 || key_ != Key::text) return other("a string");
    key_ = Key::other;
    text_.swap(text);
    return true;
  }
  bool real(const std::string& text) { return other(text); }
  bool open(std::string_view found) {
    if (depth() == 0 || (depth() == 1 && key_ == Key::text)) return other(found);
    return (depth() == 1 && found == "an array") || inner(found);
  }
  // Refuses a value that is not a whole number in a list, if its key is read.
  bool other(std::string_view found) {
    if (depth() == 0) return refuse(found, "an object a line");
    if (depth() == 1 && is_list()) return refuse(fmt::format("\"{}\" is {}", list_name(), found), "an array of whole numbers");
    if (depth() == 1 && key_ == Key::text) return refuse(fmt::format("\"text\" is {}", found), "a string");
    return depth() == 1 || inner(found);
  }
  bool number(std::int64_t value) {
    if (depth() != 2 || !is_list()) return other(std::to_string(value));
    const bool is_label = key_ == Key::labels;
    std::vector<std::int32_t>& list = is_label ? row_.labels : row_.ids;
    std::int64_t& found = is_label ? row_.labels_found : row_.ids_found;
    const bool in_vocabulary = value >= 0 && value < shape_.vocabulary;
    if (!in_vocabulary && !(is_label && value == kNoLoss)) {
      const std::string shown = value == std::numeric_limits<std::int64_t>::max() ? "a number above 2^31" : std::to_string(value);
      return refuse(
          fmt::format("{} {} at position {}", is_label ? "label" : "token", shown, found),
          fmt::format("0 to {} (the vocabulary of the model){}", shape_.vocabulary - 1, is_label ? ", or -100 for no loss" : ""));
    }
    if (found <= shape_.seq_length) list.push_back(static_cast<std::int32_t>(value));
    ++found;
    return true;
  }
  static bool reads(std::string_view key, const std::vector<std::string_view>& keys) {
    const auto has = [&](std::string_view name) { return std::ranges::find(keys, name) != keys.end(); };
    if (key == "input_ids" || key == "labels") return true;
    if (has("input_ids")) return false;
    return has("text") ? key == "text" : key == "messages" || key == "tools";
  }
  void restart() {
    row_.ids.clear();
    row_.labels.clear();
    row_ = Row{std::move(row_.ids), std::move(row_.labels)};
    key_ = Key::other;
    text_.clear();
  }
  // Called after the last byte of `line`: the row is complete, or `problem` says why not.
  bool finish(std::string_view line) {
    if (row_.has_ids) {
      if (row_.has_labels && row_.labels_found != row_.ids_found) {
        return refuse(fmt::format("{} labels for {} input_ids", row_.labels_found, row_.ids_found),
                      "as many labels as input_ids");
      }
      return row_.ids_found > 0 || refuse("no input_ids", "at least one");
    }
    if (row_.has_labels) return refuse("\"labels\" without \"input_ids\"", "both");
    if (row_.has_text) {
      if (text_rows_ == TextRows::refuse) {
        return refuse("\"text\" without --tokenizer bytes or PATH, and the model has no tokenizer.json",
                      "either, or rows of \"input_ids\"");
      }
      return take_text([&] { return std::move(text_); }, "an empty \"text\"");
    }
    if (row_.has_messages) return finish_messages(line);
    return refuse("neither \"input_ids\" nor \"text\" nor \"messages\"", "one of them");
  }

 private:
  enum class Key : std::uint8_t { other, input_ids, labels, text };

  // Rows of conversations are short and have few bytes for each token, so it is cheap to parse the row once more, as a tree.
  bool finish_messages(std::string_view line) {
    if (text_rows_ != TextRows::tokenizer) {
      return refuse("\"messages\" without a tokenizer.json, with which their chat template comes",
                    "--tokenizer PATH, or rows of \"text\" or \"input_ids\"");
    }
    return take_text([&] { return encoding_.text_of_messages(line); }, "\"messages\" without text");
  }

  bool is_list() const { return key_ == Key::input_ids || key_ == Key::labels; }
  std::string_view list_name() const { return key_ == Key::labels ? "labels" : "input_ids"; }
  // Refuses a value other than a whole number in a list of numbers.
  bool inner(std::string_view found) {
    return !is_list() || refuse(fmt::format("{} in \"{}\"", found, list_name()), "whole numbers");
  }
  // Encodes the row's text. A wrong tokenizer or template is no fault of the row.
  template <typename Text>
  bool take_text(const Text& text, std::string_view found_where_empty) {
    row_.ids.clear();
    try {
      encode(text());
    } catch (const ResourceError&) {
      throw;
    } catch (const InputError& error) {
      return refuse_saying(error.what());
    }
    if (beyond_ >= 0) {
      return refuse(fmt::format("{} {} in \"{}\"", text_rows_ == TextRows::bytes ? "byte" : "token", beyond_,
                                row_.has_text ? "text" : "messages"),
                    fmt::format("below {}, the vocabulary of the model", shape_.vocabulary));
    }
    return row_.ids_found > 0 || refuse(found_where_empty, "at least one token");
  }
  void encode(const std::string& text) {
    const auto kept = static_cast<std::size_t>(shape_.seq_length + 1);
    if (text_rows_ == TextRows::tokenizer) {
      encoding_.encode(text, row_.ids);
      for (const std::int32_t id : row_.ids) note_id(id);
      row_.ids_found = static_cast<std::int64_t>(row_.ids.size());
      row_.ids.resize(std::min(row_.ids.size(), kept));
      return;
    }
    for (const char c : text) {
      const auto token = static_cast<std::int32_t>(static_cast<unsigned char>(c));
      note_id(token);
      if (row_.ids.size() < kept) row_.ids.push_back(token);
    }
    row_.ids_found = static_cast<std::int64_t>(text.size());
  }
  void note_id(std::int32_t id) {
    if (beyond_ < 0 && id >= shape_.vocabulary) beyond_ = id;
  }

  Row& row_;
  SequenceShape shape_;
  TextRows text_rows_;
  const RowEncoding& encoding_;
  Key key_ = Key::other;
  std::string text_;
  std::int32_t beyond_ = -1;  // first id of the text that is beyond the vocabulary
};

class JsonlFile final : public SequenceSource {
 public:
  JsonlFile(PosixFile file, LongRows long_rows, TextRows text_rows, SequenceShape shape, RowEncoding encoding, BadLines bad_lines)
      : file_(std::move(file)),
        long_rows_(long_rows),
        text_rows_(text_rows),
        bad_lines_(bad_lines),
        encoding_(std::move(encoding)),
        shape_(shape) {
    row_.ids.reserve(static_cast<std::size_t>(shape.seq_length + 1));
    row_.labels.reserve(static_cast<std::size_t>(shape.seq_length + 1));
    index_rows();
  }

  std::int64_t sequences() const override { return static_cast<std::int64_t>(counted_.size()); }
  std::int64_t counted(std::int64_t index) const override { return counted_[static_cast<std::size_t>(index)]; }
  bool has_sequences_without_loss() const override { return without_loss_; }
  SkippedLines skipped() const override { return skipped_; }

  void read(std::int64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override {
    const std::int64_t first = offsets_[static_cast<std::size_t>(index)];
    const std::int64_t behind = offsets_[static_cast<std::size_t>(index) + 1] - first;  // bytes, with skipped lines
    line_.resize(std::min(static_cast<std::size_t>(behind), longest_ + 1));
    file_.read(first, std::as_writable_bytes(std::span(line_)));
    line_.resize(std::min(line_.find('\n'), line_.size()));
    parse(line_, [&] { return describe(index); });
    const std::size_t used = row_.ids.size() - 1;
    const std::vector<std::int32_t>& following = row_.has_labels ? row_.labels : row_.ids;
    std::copy_n(row_.ids.begin(), used, tokens.begin());
    std::copy_n(following.begin() + 1, used, targets.begin());
    std::ranges::fill(tokens.subspan(used), 0);
    std::ranges::fill(targets.subspan(used), kNoLoss);
  }

  // Counts lines only now, because only a message needs the number.
  std::string describe(std::int64_t index) const override {
    std::int64_t line = 1;
    for_each_block(file_, 0, offsets_[static_cast<std::size_t>(index)],
                   [&](Bytes, std::span<const std::byte> block) { line += std::ranges::count(block, std::byte{'\n'}); });
    return fmt::format("{} line {}", file_.path().string(), line);
  }

 private:
  template <typename Where>
  void parse(std::string_view line, const Where& where) {
    row_.ids.clear();
    row_.labels.clear();
    row_ = Row{std::move(row_.ids), std::move(row_.labels)};
    SequenceRow reader(row_, shape_, text_rows_, encoding_);
    if (!reader.read(line)) throw InputError(fmt::format("{}: {}", where(), reader.problem()));
    if (row_.ids_found > shape_.seq_length + 1 && long_rows_ == LongRows::refuse) {
      throw InputError(fmt::format("{}: found {} tokens, allowed: at most {} (--seq-length + 1)", where(), row_.ids_found,
                                   shape_.seq_length + 1),
                       "lengthen --seq-length, or cut such rows with --truncate");
    }
  }

  void refuse_or_skip(const std::string& problem, const std::string& help) {
    if (bad_lines_ == BadLines::refuse) throw InputError(problem, help.empty() ? kSkipHelp : help);
    if (skipped_.count++ == 0) skipped_.first = problem;
  }

  void index_row(std::string_view line, std::int64_t offset, std::int64_t number) {
    if (is_blank(line)) return;
    try {
      parse(line, [&] { return fmt::format("{} line {}", file_.path().string(), number); });
    } catch (const ResourceError&) {
      throw;
    } catch (const InputError& error) {
      return refuse_or_skip(error.what(), error.help());
    }
    std::int64_t counted = static_cast<std::int64_t>(row_.ids.size()) - 1;
    if (row_.has_labels) counted -= std::count(row_.labels.begin() + 1, row_.labels.end(), kNoLoss);
    offsets_.push_back(offset);
    counted_.push_back(static_cast<std::int32_t>(counted));
    without_loss_ = without_loss_ || counted == 0;
    longest_ = std::max(longest_, line.size());
  }

  void index_rows() {
    std::string pending;  // a line that began in an earlier block
    std::int64_t pending_offset = 0;
    std::int64_t number = 1;
    bool is_dropped = false;  // the pending line was too long
    const Bytes size = file_.size();
    for_each_block(file_, 0, size, [&](Bytes offset, std::span<const std::byte> block) {
      std::string_view text(reinterpret_cast<const char*>(block.data()), block.size());
      for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n'), ++number) {
        if (is_dropped) {
          is_dropped = false;
        } else if (pending.empty()) {
          index_row(text.substr(0, end), offset, number);
        } else {
          pending.append(text.substr(0, end));
          index_row(pending, pending_offset, number);
          pending.clear();
        }
        text.remove_prefix(end + 1);
        offset += static_cast<std::int64_t>(end) + 1;
      }
      if (is_dropped) return;
      if (pending.empty()) pending_offset = offset;
      pending.append(text);
      if (pending.size() > kLongestLine) {
        refuse_or_skip(fmt::format("{} line {}: longer than {} bytes, allowed: lines up to that", file_.path().string(), number,
                                   kLongestLine),
                       "");
        is_dropped = true;
        pending.clear();
      }
    });
    if (!pending.empty()) index_row(pending, pending_offset, number);
    offsets_.push_back(size);
    offsets_.shrink_to_fit();
    counted_.shrink_to_fit();
    line_.reserve(longest_ + 1);
  }

  PosixFile file_;
  LongRows long_rows_;
  TextRows text_rows_;
  BadLines bad_lines_;
  RowEncoding encoding_;
  SequenceShape shape_;
  std::vector<std::int64_t> offsets_;  // [rows + 1] offset of each row; blank lines belong to the row before
  std::vector<std::int32_t> counted_;  // [rows] positions with loss
  bool without_loss_ = false;
  SkippedLines skipped_;
  std::size_t longest_ = 0;
  Row row_;
  std::string line_;
};

}  // namespace

std::unique_ptr<SequenceSource> open_jsonl_file(PosixFile file, LongRows long_rows, TextRows text_rows, SequenceShape shape,
                                                RowEncoding encoding, BadLines bad_lines) {
  return std::make_unique<JsonlFile>(std::move(file), long_rows, text_rows, shape, std::move(encoding), bad_lines);
}

}  // namespace spillway
