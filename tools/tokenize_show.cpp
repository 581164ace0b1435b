#include "tools/tokenize_show.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "memory/base/error.h"
#include "tools/standard_output.h"
#include "trainer/data/data_figures.h"
#include "trainer/data/packing.h"
#include "trainer/options/options.h"
#include "trainer/text/text_codec.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

constexpr std::string_view kBegin = "\xe2\x9f\xa6", kEnd = "\xe2\x9f\xa7";  // U+27E6 and U+27E7 around tokens with loss
constexpr std::size_t kMostOfText = 1000;                                   // tokens of a text; rows are shown whole

// Bytes that are no UTF-8 become U+FFFD, and characters that would move the cursor are spelled.
std::string readable(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.add(bytes);
  text += stream.finish();
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f)
      shown += fmt::format("\\x{:02x}", byte);
    else
      shown += c;
  }
  return shown;
}

class Shower {
 public:
  Shower(const TextTools& tools, std::int64_t documents) : tools_(tools), left_(documents) {}

  void take(const std::string& file, const DocumentPart& part) {
    if (left_ <= 0) return;
    const std::size_t room = part.targets.empty() ? kMostOfText - std::min(kMostOfText, tokens_.size()) : part.tokens.size();
    const std::size_t kept = std::min(room, part.tokens.size());
    tokens_.insert(tokens_.end(), part.tokens.begin(), part.tokens.begin() + static_cast<std::ptrdiff_t>(kept));
    const auto& targets = part.targets.empty() ? part.tokens : part.targets;
    targets_.insert(targets_.end(), targets.begin(), targets.begin() + static_cast<std::ptrdiff_t>(kept));
    length_ += part.tokens.size();
    if (!part.ends_document) return;
    print(file);
    tokens_.clear();
    targets_.clear();
    length_ = 0;
    --left_;
  }

 private:
  // The first token follows no other, so it never has loss.
  bool has_loss(std::size_t t) const { return t > 0 && targets_[t] != kNoLoss; }

  void print(const std::string& file) {
    const Tokenizer& tokenizer = tools_.tokenizer(file).tokenizer;
    std::string text;
    std::size_t with_loss = 0;
    for (std::size_t begin = 0, end = 0; begin < tokens_.size(); begin = end) {
      for (end = begin + 1; end < tokens_.size() && has_loss(end) == has_loss(begin);) ++end;
      const std::string run = readable(tokenizer.decode(std::span(tokens_).subspan(begin, end - begin)));
      if (has_loss(begin)) with_loss += end - begin;
      text += has_loss(begin) ? fmt::format("{}{}{}", kBegin, run, kEnd) : run;
    }
    const bool is_cut = length_ > tokens_.size();
    say("document {}: {}, {} with loss\n{}{}\n\n", ++shown_, counted(static_cast<std::int64_t>(length_), "token"),
        is_cut ? std::string("all but the first") : with_commas(static_cast<std::int64_t>(with_loss)), text, is_cut ? "..." : "");
  }

  const TextTools& tools_;
  std::int64_t left_;
  std::int64_t shown_ = 0;
  std::vector<std::int32_t> tokens_, targets_;  // of the open document, its beginning
  std::size_t length_ = 0;                      // tokens of all of it
};

}  // namespace

void show_documents(const std::vector<std::string>& files, const TextTools& tools, const ThreadPool& pool, BadLines bad_lines,
                    const ShowOptions& options, FunctionRef<void(const DocumentCounts&)> progress) {
  const std::int64_t seq_length = options.seq_length.value_or(0);
  const RowRules rules{.train_on = options.train_on,
                       .text_ends = options.text_ends,
                       .longest = seq_length > 0 ? seq_length + 1 : std::numeric_limits<std::int64_t>::max(),
                       .long_rows = long_rows_of(options.split_rows, options.truncate),
                       .columns = options.columns,
                       .needs_loss = true};
  DocumentReader reader(tools, rules, pool, bad_lines);
  Shower shower(tools, options.documents);
  DataFigures figures;
  TokenRows rows;  // filled where they are packed
  std::int64_t sequences = 0, of_text = 0;
  for (const std::string& file : files) {
    reader.read(
        file,
        [&](const DocumentPart& part) {
          shower.take(file, part);
          const auto length = static_cast<std::int64_t>(part.tokens.size());
          if (part.targets.empty()) {
            of_text += length;
          } else if (options.packing) {
            rows.add(part.tokens, part.targets);
          } else {
            ++sequences;
            figures.padding += seq_length > 0 ? seq_length + 1 - length : 0;
          }
        },
        progress);
    if (of_text > 0 && seq_length > 0) sequences += (of_text - 1) / seq_length;
    of_text = 0;
  }
  if (options.packing) {
    rows.finish();
    const RunOptions defaults;
    const Packs packs(rows, {.seq_length = seq_length, .order = defaults.data.order, .seed = defaults.model.seed});
    figures.packs = packs.packs(), figures.split = packs.split_rows(), figures.pieces_left_out = packs.pieces_left_out();
    for (std::int64_t pack = 0; pack < packs.packs(); ++pack) figures.padding += seq_length - packs.positions(pack);
    sequences += packs.packs();
  }
  const DocumentCounts& counts = reader.counts();
  figures.documents = counts.documents;
  figures.tokens = counts.tokens;
  figures.with_loss = counts.with_loss;
  figures.positions = sequences * seq_length;
  figures.longest_row = counts.longest_row;
  figures.cut = counts.cut;
  std::string line = words_of(figures);
  if (options.global_batch_size) line += "; " + words_of_epoch(sequences, *options.global_batch_size);
  if (counts.bad_lines > 0)
    line += fmt::format("; {} left out, the first: {}", counted(counts.bad_lines, "bad line"), counts.first_bad_line);
  fmt::print(stderr, "{}\n", line);
}

}  // namespace spillway
