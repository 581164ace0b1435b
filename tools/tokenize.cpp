// The command `spillway tokenize`: text and JSONL to a token file, or to ids on standard output.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "memory/base/error.h"
#include "memory/base/parallel.h"
#include "tools/command_opening.h"
#include "tools/commands.h"
#include "tools/output_format.h"
#include "tools/tokenize_show.h"
#include "trainer/data/data_files.h"
#include "trainer/data/open_data.h"
#include "trainer/data/text_documents.h"
#include "trainer/data/token_file.h"
#include "trainer/host/host.h"
#include "trainer/host/interrupt.h"
#include "trainer/options/flag_choices.h"
#include "trainer/show/progress.h"
#include "trainer/text/tokenizer.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAllowedFiles =
    "text files, .jsonl, .ndjson and .json files, each also as .gz or .zst, - for standard input, directories";

struct TokenizeOptions {
  std::string tokenizer;
  std::string model;
  std::vector<std::string> data;
  std::string out;
  std::optional<std::string> format;
  std::string end_of_text;
  bool skip_bad_lines = false;
  std::string columns;
  std::optional<std::int64_t> threads;  // none: all cores
  std::optional<std::int64_t> show;     // documents to print in place of a file
  std::string train_on, text_ends;
  std::optional<std::int64_t> seq_length, global_batch_size;
  bool truncate = false, packing = false, split_rows = false;
};

struct Interrupted {};

// A live line on a terminal; shows nothing elsewhere.
class TokenizeProgress {
 public:
  explicit TokenizeProgress(std::optional<Bytes> total)
      : total_(total), is_live_(progress_style_of(STDERR_FILENO) != ProgressStyle::plain) {}
  ~TokenizeProgress() {
    if (is_open_) fmt::print(stderr, "\r\x1b[K");
  }
  TokenizeProgress(const TokenizeProgress&) = delete;
  TokenizeProgress& operator=(const TokenizeProgress&) = delete;

  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  void show(const DocumentCounts& counts) {
    if (!is_live_ || seconds() < shown_s_ + 0.1) return;
    shown_s_ = seconds();
    const double rate = static_cast<double>(counts.bytes) / seconds();
    fmt::print(stderr, "\r\x1b[K{}{} · {} · {} · {}/s", rounded_size(counts.bytes),
               total_ ? fmt::format(" of {}", rounded_size(*total_)) : "", counted(counts.documents, "document"),
               counted(counts.tokens, "token"), rounded_size(static_cast<Bytes>(rate)));
    if (total_) fmt::print(stderr, " · ETA {}", rounded_time(static_cast<double>(*total_ - counts.bytes) / rate));
    std::fflush(stderr);
    is_open_ = true;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<Bytes> total_;  // nothing: not known before the end
  double shown_s_ = 0;
  bool is_live_;
  bool is_open_ = false;
};

fs::path tokenizer_path(const TokenizeOptions& options) {
  if (options.tokenizer.empty() == options.model.empty()) {
    throw InputError(
        options.tokenizer.empty() ? "--tokenizer: not given" : "found both --tokenizer and --model, allowed: one of them",
        "give a tokenizer.json or a directory that has one");
  }
  if (options.tokenizer == "bytes")
    throw InputError("--tokenizer: found bytes, allowed: a tokenizer.json", "train reads text as bytes with no token file");
  const bool is_model = options.tokenizer.empty();
  const fs::path path = is_model ? options.model : options.tokenizer;
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw InputError(fmt::format("{}: found no file or directory {}", is_model ? "--model" : "--tokenizer", path.string()));
  if (is_model && !fs::is_directory(path, ignored)) return path.parent_path().empty() ? fs::path(".") : path.parent_path();
  return path;
}

std::optional<std::int32_t> separator_of(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  if (options.end_of_text == "none") return std::nullopt;
  if (!options.end_of_text.empty()) {
    const auto id = tokenizer.token_id(options.end_of_text);
    if (!id)
      throw InputError(fmt::format("--end-of-text: found {}, which {} does not have", options.end_of_text, tokenizer.path()));
    return id;
  }
  const auto id = tokenizer.end_of_text();
  if (!id) {
    throw InputError(fmt::format("{}: found none of the usual tokens for the end of a text", tokenizer.path()),
                     "name it with --end-of-text TOKEN, or put nothing between documents with --end-of-text none");
  }
  return id;
}

// Nothing, if files are compressed: then nobody knows before the end.
std::optional<Bytes> size_of_all(const std::vector<std::string>& files) {
  std::optional<Bytes> total = 0;
  for (const std::string& file : files) {
    std::error_code error;
    if (file != kStandardInput && !fs::exists(file, error))
      throw InputError(fmt::format("--data: found no file or directory {}", file));
    const DataName name = data_name_of(file);
    if (name.kind == DataKind::tokens)
      throw InputError(fmt::format("--data: found {}, allowed: {}", file, kAllowedFiles), "a .bin has tokens already");
    if (name.compression != Compression::none) total.reset();
    const Bytes size = open_stored(file).size();
    if (total) *total += size;
  }
  return total;
}

// Prints one JSON array for each document.
class IdPrinter {
 public:
  IdPrinter(std::FILE* file, std::string name) : file_(file), name_(std::move(name)) {}
  void add(std::span<const std::int32_t> tokens, bool ends_document) {
    for (const std::int32_t token : tokens) {
      text_ += is_first_ ? '[' : ',';
      is_first_ = false;
      fmt::format_to(std::back_inserter(text_), "{}", token);
    }
    if (ends_document) {
      text_ += is_first_ ? "[]\n" : "]\n";
      is_first_ = true;
    }
    if (text_.size() > (1 << 16)) flush();
  }
  void flush() {
    if (std::fwrite(text_.data(), 1, text_.size(), file_) != text_.size() || std::fflush(file_) != 0)
      throw IoError(fmt::format("{}: cannot be written: {}", name_, std::strerror(errno)));
    text_.clear();
  }

 private:
  std::FILE* file_;
  std::string name_;
  std::string text_;
  bool is_first_ = true;
};

// The file of --out for ids: it has another name until it is complete.
class IdFile {
 public:
  explicit IdFile(const std::string& path)
      : path_(path),
        partial_(fmt::format("{}.partial.{}", path, ::getpid())),
        file_((refuse_to_replace(path), std::fopen(partial_.c_str(), "w"))) {
    if (!file_) throw IoError(fmt::format("{}: cannot be created: {}", partial_, std::strerror(errno)));
  }
  ~IdFile() {
    if (!file_) return;
    std::fclose(file_);
    std::remove(partial_.c_str());
  }
  IdFile(const IdFile&) = delete;
  IdFile& operator=(const IdFile&) = delete;

  std::FILE* get() const { return file_; }
  void finish() {
    const bool is_closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    if (is_closed && std::rename(partial_.c_str(), path_.c_str()) == 0) return;
    const int error = errno;
    std::remove(partial_.c_str());
    throw IoError(fmt::format("{}: cannot be written: {}", path_, std::strerror(error)));
  }

 private:
  std::string path_;
  std::string partial_;
  std::FILE* file_;
};

// Writes the separator between documents and nowhere else; documents without tokens do not count.
class DocumentWriter {
 public:
  DocumentWriter(TokenFileWriter& file, std::optional<std::int32_t> separator) : file_(file), separator_(separator) {}
  void add(std::span<const std::int32_t> tokens, bool ends_document) {
    if (!tokens.empty()) {
      if (is_between_ && separator_) pending_.push_back(*separator_);
      is_between_ = false;
      pending_.insert(pending_.end(), tokens.begin(), tokens.end());
      is_filled_ = true;
    }
    if (ends_document && is_filled_) {
      is_between_ = true;
      is_filled_ = false;
    }
    if (pending_.size() > (1 << 18)) flush();
  }
  void flush() {
    file_.write(pending_);
    pending_.clear();
  }

 private:
  TokenFileWriter& file_;
  std::optional<std::int32_t> separator_;
  std::vector<std::int32_t> pending_;
  bool is_filled_ = false;   // the current document has tokens
  bool is_between_ = false;  // a document has ended, and the next one has not begun
};

void report(const DocumentCounts& counts, std::int64_t written, const std::string& out, double seconds) {
  std::string line = fmt::format("{}, {} from {} in {} ({:.1f} MB/s)", counted(counts.documents, "document"),
                                 counted(written, "token"), rounded_size(counts.bytes), rounded_time(seconds),
                                 static_cast<double>(counts.bytes) / 1e6 / std::max(seconds, 1e-9));
  if (!out.empty()) line += fmt::format(" -> {}", out);
  if (counts.longest_row > 0) line += fmt::format("; longest row {}", counted(counts.longest_row, "token"));
  if (counts.empty_documents > 0) line += fmt::format("; {} empty", with_commas(counts.empty_documents));
  fmt::print(stderr, "{}\n", line);
  if (counts.bad_lines > 0)
    fmt::print(stderr, "{} left out; the first: {}\n", counted(counts.bad_lines, "bad line"), counts.first_bad_line);
}

void check_range(const char* flag, const std::optional<std::int64_t>& value, std::int64_t least, std::int64_t most) {
  if (value && (*value < least || *value > most))
    throw InputError(fmt::format("{}: found {}, allowed: {} to {}", flag, *value, least, most));
}

int threads_of(const TokenizeOptions& options) {
  check_range("--threads", options.threads, 1, 1024);
  return options.threads ? static_cast<int>(*options.threads) : usable_threads();
}

DataColumns columns_of(const TokenizeOptions& options) {
  return options.columns.empty() ? DataColumns() : DataColumns(FlagValue("--data-columns", {options.columns}));
}

ShowOptions shown_of(const TokenizeOptions& options) {
  constexpr std::int64_t kMost = 1 << 30;
  check_range("--show", options.show, 0, kMost);
  check_range("--seq-length", options.seq_length, 1, kMost);
  check_range("--global-batch-size", options.global_batch_size, 1, kMost);
  ShowOptions shown{.documents = *options.show,
                    .seq_length = options.seq_length,
                    .global_batch_size = options.global_batch_size,
                    .truncate = options.truncate,
                    .packing = options.packing,
                    .split_rows = options.split_rows,
                    .columns = columns_of(options)};
  if (options.packing && !options.seq_length)
    throw InputError("--packing: found without --seq-length, allowed: together with --seq-length N");
  if (options.split_rows && (!options.packing || options.truncate))
    throw InputError("--split-rows: allowed: with --packing and without --truncate");
  if (!options.train_on.empty()) set_choice(shown.train_on, FlagValue("--train-on", {options.train_on}));
  if (!options.text_ends.empty()) set_choice(shown.text_ends, FlagValue("--text-ends", {options.text_ends}));
  return shown;
}

// These say what train would make of rows; files and ids have the rows' tokens alone.
void refuse_flags_of_show(const CommandLine& command) {
  for (const char* flag :
       {"--train-on", "--text-ends", "--seq-length", "--global-batch-size", "--truncate", "--packing", "--split-rows"}) {
    if (command.was_given(flag))
      throw InputError(fmt::format("{}: found without --show, allowed: together with --show N", flag),
                       "a token file and --format ids have the tokens of each row, without special tokens added");
  }
}

int run(const TokenizeOptions& options, const CommandLine& command) {
  constexpr std::string_view kFormats[] = {"bin", "ids"};
  const bool prints_ids = format_of_output(options.format, options.out, kFormats) == "ids";
  if (options.data.empty()) throw InputError("--data: not given", fmt::format("allowed: {}", kAllowedFiles));
  if (options.show && (command.was_given("--format") || !options.out.empty()))
    throw InputError("--show: found together with --out or --format, allowed: alone", "it prints, and writes no file");
  if (!options.show) refuse_flags_of_show(command);
  if (!options.show && !prints_ids && options.out.empty())
    throw InputError("--out: not given", "name the .bin file to write, or print ids with --format ids");
  const std::vector<std::string> files =
      files_of(options.data, [](DataKind kind) { return kind != DataKind::tokens; }, "--data", kAllowedFiles);
  const std::optional<Bytes> total = size_of_all(files);
  const TextTools tools(tokenizer_path(options).string());
  const Tokenizer& tokenizer = tools.tokenizer(files.front()).tokenizer;
  const ThreadPool pool(threads_of(options));
  const BadLines bad_lines = options.skip_bad_lines ? BadLines::skip : BadLines::refuse;
  const InterruptHandler interrupt;
  TokenizeProgress progress(total);
  const auto show = [&](const DocumentCounts& counts) {
    if (interrupt.requested()) throw Interrupted();
    progress.show(counts);
  };
  if (options.show) {
    show_documents(files, tools, pool, bad_lines, shown_of(options), show);
    return 0;
  }
  DocumentReader reader(tools, RowRules{.columns = columns_of(options)}, pool, bad_lines);
  if (prints_ids) {
    std::optional<IdFile> file;
    if (!options.out.empty()) file.emplace(options.out);
    IdPrinter printer(file ? file->get() : stdout, file ? options.out : "standard output");
    for (const std::string& path : files) {
      reader.read(path, [&](const DocumentPart& part) { printer.add(part.tokens, part.ends_document); }, show);
    }
    printer.flush();
    if (file) file->finish();
    const DocumentCounts& counts = reader.counts();
    if (counts.bad_lines > 0) report(counts, counts.tokens, options.out, progress.seconds());
    return 0;
  }
  const auto separator = separator_of(options, tokenizer);
  TokenFileWriter file(options.out, token_width_for(tokenizer.vocab_size()));
  DocumentWriter writer(file, separator);
  for (const std::string& path : files)
    reader.read(path, [&](const DocumentPart& part) { writer.add(part.tokens, part.ends_document); }, show);
  writer.flush();
  file.finish();
  report(reader.counts(), file.tokens(), options.out, progress.seconds());
  return 0;
}

}  // namespace

int tokenize_command(int argc, const char* const* argv) {
  CommandLine command("spillway tokenize", "Text and JSONL to a token file.");
  TokenizeOptions options;
  command.add("--tokenizer", options.tokenizer, "PATH", "a tokenizer.json, or a directory that has one");
  command.add("--model", options.model, "PATH", "instead: a Hugging Face directory, whose tokenizer.json is taken");
  command.add_list("--data,data", options.data, "PATH...",
                   "text files, .jsonl, .ndjson and .json files of the rows that train takes, each also as .gz or .zst, - for "
                   "standard input, directories");
  command.add("--data-columns", options.columns, "K=V,...", "as of train: names that keys of rows have in the files");
  command.add("--out", options.out, "FILE", "the file to write; whole or not at all");
  command.add("--format", options.format, "bin|ids",
              "bin: llm.c's token file, 16 or 32 bits by vocabulary; ids: a JSON array of ids for each document "
              "(as the ending of --out says, else bin)");
  command.add("--end-of-text", options.end_of_text, "TOKEN|none",
              "what stands between documents in a .bin (the tokenizer's usual one)");
  command.add_switch("--skip-bad-lines", options.skip_bad_lines, "leave out rows of JSONL that are not right, and count them");
  command.add_number("--threads", options.threads, "N", "that encode (all cores)");
  command.add_number("--show", options.show, "N",
                     "instead of a file: print N documents with the tokens that have loss marked, and the figures of all");
  command.add("--train-on", options.train_on, names_of<TrainOn>("|"), "of --show, as of train: what has loss (assistant)");
  command.add("--text-ends", options.text_ends, names_of<TextEnds>("|"),
              "of --show, as of train: leading tokens and end token of rows of text (auto)");
  command.add_number("--seq-length", options.seq_length, "N", "of --show, as of train: rows that are longer are refused");
  command.add_switch("--truncate", options.truncate, "of --show, as of train: cut them instead");
  command.add_switch("--packing", options.packing, "of --show, as of train: put rows together in sequences");
  command.add_switch("--split-rows", options.split_rows,
                     "of --show, as of train: rows that are longer go on in another sequence");
  command.add_number("--global-batch-size", options.global_batch_size, "N", "of --show: also say the steps of an epoch");
  if (help_was_asked(command, argc, argv)) return 0;
  try {
    return run(options, command);
  } catch (const Interrupted&) {
    fmt::print(stderr, "interrupted: nothing was written\n");
    return kExitInterrupted;
  }
}

}  // namespace spillway
