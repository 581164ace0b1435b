#include "trainer/keep/run_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "files/json_place.h"
#include "files/json_text.h"
#include "files/posix_file.h"
#include "memory/base/error.h"
#include "nvme/content_hash.h"
#include "trainer/data/data_files.h"
#include "trainer/data/open_data.h"
#include "trainer/host/file_blocks.h"
#include "trainer/options/adapter_of.h"
#include "trainer/options/model_of.h"
#include "trainer/text/text_codec.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

// The last are of the images of a checkpoint whose text half is trained.
constexpr std::array kTokenizerFiles = {"tokenizer_config.json",
                                        "tokenizer.model",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "chat_template.jinja",
                                        "chat_template.json",
                                        "processor_config.json",
                                        "preprocessor_config.json",
                                        "video_preprocessor_config.json"};
constexpr const char *kTokenizer = "tokenizer.json", *kGeneration = "generation_config.json",
                     *kTemplates = "additional_chat_templates";
constexpr Bytes kLargestRecord = 64 * kMiB;

void copy_where_there(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (!fs::is_regular_file(from, error)) return;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  if (error) {
    throw IoError(fmt::format("{}: copying {} failed: {}", to.string(), from.string(), error.message()), help_for(error.value()));
  }
  PosixFile::open_to_read(to).sync();
}

fs::path directory_of(const fs::path& path) {
  std::error_code ignored;
  if (path.empty() || !fs::exists(path, ignored)) return {};
  return fs::is_directory(path, ignored) ? path : fs::absolute(path).parent_path();
}

// Directory of the tokenizer's files; empty for bytes and for a catalogue name.
fs::path tokenizer_directory(const RunOptions& options) {
  if (options.data.tokenizer == "bytes") return {};
  const std::string tokenizer = tokenizer_of(options);
  if (!tokenizer.empty()) return directory_of(tokenizer);
  return directory_of(options.model.kept_config.empty() ? options.model.model : options.model.kept_config);
}

bool have_equal_bytes(const fs::path& a, const fs::path& b) {
  const PosixFile of_a = PosixFile::open_to_read(a), of_b = PosixFile::open_to_read(b);
  if (of_a.size() != of_b.size()) return false;
  return read_text_file(a, of_a.size()) == read_text_file(b, of_b.size());
}

template <typename T>
std::string said(const T& value) {
  return fmt::format("{}", value);
}

std::string rope_words(const Rope& rope) {
  constexpr std::string_view kKinds[] = {"none", "linear", "llama3", "yarn", "longrope"};
  const RopeScaling& scaling = rope.scaling;
  const std::string_view kind = kKinds[std::min<std::size_t>(static_cast<std::size_t>(scaling.kind), std::size(kKinds) - 1)];
  std::string words = fmt::format("{} (scaling {}: {}, {}, {}, {})", rope.theta, kind, scaling.factor, scaling.low_freq_factor,
                                  scaling.high_freq_factor, scaling.original_max_positions);
  if (kind == "yarn" || kind == "longrope")
    words += fmt::format(" ({}, {}, {}, {}; {}; {})", scaling.attention_factor, scaling.beta_fast, scaling.beta_slow,
                         scaling.truncate, fmt::join(scaling.short_factors, " "), fmt::join(scaling.long_factors, " "));
  if (rope.rotated > 0 || rope.query_beta > 0) words += fmt::format(" ({}, {})", rope.rotated, rope.query_beta);
  return words;
}

std::string unrotated_words(const ModelConfig& config) {
  std::string words;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (!config.rotates(layer)) words += fmt::format("{}{}", words.empty() ? "" : " ", layer);
  }
  return words;
}

std::string experts_words(const ModelConfig& config) {
  std::string layers;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) layers += config.has_experts(layer) ? 'e' : '-';
  return config.dense_layers.empty() ? "all" : layers;
}

std::string windows_words(const ModelConfig& config) {
  std::string words;
  for (const std::int64_t window : config.windows) words += fmt::format("{}{}", words.empty() ? "" : " ", window);
  return words;
}

// The options as if the run began now.
RunOptions without_copies(RunOptions options) {
  options.model.kept_config.clear();
  options.model.kept_tokenizer.clear();
  options.checkpoint.load.clear();
  return options;
}

std::string change_of_config(const RunOptions& options) {
  const std::string& model = options.model.model;
  std::error_code ignored;
  if (!names_catalogue_model(model) && !fs::exists(model, ignored))
    return fmt::format("--model: {} is gone; the run goes on with the configuration and the tokenizer in its own directory",
                       model);
  try {
    const std::string difference = difference_of(read_model_config(options.model.kept_config), resolve_model(model).config);
    if (difference.empty()) return {};
    return fmt::format("--model: {} has changed since the run was begun ({}); the run goes on with what it was begun with", model,
                       difference);
  } catch (const InputError& error) {
    return fmt::format("--model: {}; the run goes on with the configuration in its own directory", error.what());
  }
}

}  // namespace

void copy_companions(const RunOptions& options, const fs::path& to) {
  const fs::path model = directory_of(options.model.kept_config.empty() ? options.model.model : options.model.kept_config);
  if (!model.empty()) copy_where_there(model / kGeneration, to / kGeneration);
  const fs::path from = tokenizer_directory(options);
  if (from.empty()) return;
  const fs::path given = tokenizer_of(options);
  std::error_code error;
  copy_where_there(fs::is_regular_file(given, error) ? given : from / kTokenizer, to / kTokenizer);
  for (const char* name : kTokenizerFiles) copy_where_there(from / name, to / name);
  if (!fs::is_directory(from / kTemplates, error)) return;
  fs::create_directories(to / kTemplates, error);
  for (const fs::directory_entry& entry : fs::directory_iterator(from / kTemplates, error))
    copy_where_there(entry.path(), to / kTemplates / entry.path().filename());
  sync_directory(to / kTemplates);
}

void keep_model_files(const std::string& run_directory, const RunOptions& options, const ModelConfig& config) {
  const std::optional<AdapterConfig> adapter = adapter_of(options);  // perhaps of the copy that is replaced
  const fs::path place = fs::path(run_directory + std::string(kKeptConfig)).parent_path();
  const fs::path unfinished = place.string() + ".partial";
  std::error_code error;
  fs::remove_all(unfinished, error);
  if (!error) fs::create_directories(unfinished, error);
  if (error) throw IoError(fmt::format("{}: cannot be made: {}", unfinished.string(), error.message()), help_for(error.value()));
  write_text_file(unfinished / "config.json", config.json_text);
  if (adapter) write_text_file(unfinished / fs::path(kKeptAdapter).filename(), adapter_config_json(*adapter));
  copy_companions(options, unfinished);
  sync_directory(unfinished);
  fs::remove_all(place, error);
  if (!error) fs::rename(unfinished, place, error);
  if (error) throw IoError(fmt::format("{}: cannot be written: {}", place.string(), error.message()), help_for(error.value()));
  sync_directory(run_directory);
}

std::vector<std::pair<std::string, std::string>> properties_of(const ModelConfig& c) {
  return {{"model_type", std::string(c.family->model_type)},
          {"checkpoint around it", std::string(c.wrapper)},
          {"hidden size", said(c.hidden)},
          {"layers", said(c.layers)},
          {"heads", said(c.heads)},
          {"key-value heads", said(c.kv_heads)},
          {"head_dim", said(c.head_dim)},
          {"MLP width", said(c.mlp_width)},
          {"experts", said(c.experts)},
          {"experts a token", fmt::format("{} of width {}, {}", c.experts_per_token, c.expert_width,
                                          c.normalised_experts ? "normalised" : "as they are")},
          {"layers with experts", experts_words(c)},
          {"width of the shared expert", said(c.shared_expert_width)},
          {"losses of routers", fmt::format("{} {}", c.balance_coefficient, c.router_z_coefficient)},
          {"vocabulary", said(c.vocab)},
          {"tie_word_embeddings", said(c.tied_embeddings)},
          {"biases", fmt::format("{} {} {}", c.qkv_bias, c.attention_output_bias, c.mlp_bias)},
          {"rope theta", rope_words(c.rope)},
          {"rope theta of layers with a window", c.window_rope ? rope_words(*c.window_rope) : "none"},
          {"norm epsilon", said(c.norm_eps)},
          {"activation", said(static_cast<int>(c.activation))},
          {"windows of layers", windows_words(c)},
          {"layers without rotation", unrotated_words(c)},
          {"attention scale",
           fmt::format("{} {} {} {}", c.scale_attention, c.scale_by_inverse_layer, c.query_scalar, c.attention_multiplier)},
          {"factors of residuals and logits", fmt::format("{} {}", c.residual_factor, c.logit_factor)},
          {"softcaps", fmt::format("{} {}", c.attention_softcap, c.logit_softcap)},
          {"padding token", said(c.padding_token)},
          {"embedding factor", said(c.embedding_factor)}};
}

std::string difference_of(const ModelConfig& before, const ModelConfig& now) {
  const auto then = properties_of(before), here = properties_of(now);
  for (std::size_t i = 0; i < then.size(); ++i) {
    if (then[i] != here[i]) return fmt::format("{} {}, now {}", then[i].first, then[i].second, here[i].second);
  }
  return {};
}

void refuse_other_model(const RunOptions& options, const ModelConfig& config) {
  const std::string& run = options.checkpoint.load;
  const std::string kept = run + std::string(kKeptConfig);
  std::error_code ignored;
  if (run.empty() || !options.model.kept_config.empty() || !fs::exists(kept, ignored)) return;
  const std::string difference = difference_of(read_model_config(kept), config);
  if (difference.empty()) return;
  throw InputError(
      fmt::format("--model: {} is another model than that of the run in {}: {}", options.model.model, run, difference),
      "Leave --model out: the run goes on with the configuration that it was begun with, which it has itself.");
}

std::vector<std::string> changes_of_model_files(const RunOptions& options) {
  std::vector<std::string> changes;
  const std::string& run = options.checkpoint.load;
  if (run.empty()) return changes;
  if (!options.model.kept_config.empty()) {
    if (std::string change = change_of_config(options); !change.empty()) changes.push_back(std::move(change));
  }
  const std::string kept = run + std::string(kKeptTokenizer), now = tokenizer_of(without_copies(options));
  std::error_code ignored;
  const fs::path file = fs::is_directory(now, ignored) ? fs::path(now) / kTokenizer : fs::path(now);
  if (now == "bytes" || !fs::is_regular_file(file, ignored) || !fs::is_regular_file(kept, ignored)) return changes;
  if (have_equal_bytes(file, kept)) return changes;
  changes.push_back(
      options.model.kept_tokenizer.empty()
          ? fmt::format("--tokenizer: {} is another than the run was begun with: the same text has other tokens "
                        "from here on",
                        file.string())
          : fmt::format("--tokenizer: {} has changed since the run was begun; the run goes on with its own copy", file.string()));
  return changes;
}

std::vector<DataFile> data_files_of(const RunOptions& options) {
  std::vector<DataFile> files;
  const auto add = [&](const char* flag, const std::vector<std::string>& paths) {
    for (const std::string& path : paths_of_data(paths, flag)) {
      const PosixFile file = open_stored(path);
      const bool is_file = path != kStandardInput;
      DataFile known{.flag = flag, .path = is_file ? fs::absolute(path).lexically_normal().string() : path, .bytes = file.size()};
      ContentHasher hasher;
      for_each_block(file, 0, known.bytes, [&](Bytes, std::span<const std::byte> block) { hasher.add(block); });
      known.digest = hasher.take();
      files.push_back(std::move(known));
    }
  };
  add("--data", options.data.data);
  add("--eval-data", options.data.eval_data);
  return files;
}

void keep_data_files(const std::string& run_directory, const std::vector<DataFile>& files) {
  auto list = nlohmann::ordered_json::array();
  for (const DataFile& file : files) {
    list.push_back(
        {{"flag", file.flag}, {"path", file.path}, {"bytes", file.bytes}, {"xxh3", fmt::format("{:016x}", file.digest)}});
  }
  write_text_file(run_directory + "/data-files.json", json_text(nlohmann::ordered_json{{"files", list}}));
}

std::uint64_t hash_of_evaluated(const std::vector<DataFile>& files, const RunOptions& options) {
  const bool splits = options.data.eval_data.empty() && options.data.eval_split;
  std::string words = splits ? fmt::format("{} {}", options.data.eval_split->text(), options.model.seed) : "";
  for (const DataFile& file : files) {
    if (file.flag == (splits ? "--data" : "--eval-data")) words += fmt::format(" {:016x}", file.digest);
  }
  ContentHasher hasher;
  hasher.add(std::as_bytes(std::span(words)));
  return hasher.take();
}

namespace {

std::vector<DataFile> kept_data_files(const std::string& path) {
  const auto json = parsed_json(read_text_file(path, kLargestRecord));
  const JsonPlace list = JsonPlace(json, path, "Remove the file: the run then knows nothing of the data it had.").at("files");
  std::vector<DataFile> files;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonPlace file = list.at(i);
    files.push_back({.flag = file.at("flag").text(),
                     .path = file.at("path").text(),
                     .bytes = file.at("bytes").integer(0, std::int64_t{1} << 60),
                     .digest = file.at("xxh3").hash()});
  }
  return files;
}

}  // namespace

std::vector<std::string> changes_of_data(const std::string& run_directory, const std::vector<DataFile>& now) {
  std::vector<std::string> changes;
  const std::string record = run_directory + "/data-files.json";
  std::error_code ignored;
  if (!fs::exists(record, ignored)) return changes;
  const std::vector<DataFile> before = kept_data_files(record);
  for (const std::string flag : {"--data", "--eval-data"}) {
    const std::string_view means = flag == "--data" ? "steps from here on take other tokens than the run would have taken"
                                                    : "evaluations from here on are of other text";
    std::vector<DataFile> then, here;
    std::ranges::copy_if(before, std::back_inserter(then), [&](const DataFile& file) { return file.flag == flag; });
    std::ranges::copy_if(now, std::back_inserter(here), [&](const DataFile& file) { return file.flag == flag; });
    // A file that was only moved counts as the same.
    const auto is_same = [](const DataFile& a, const DataFile& b) { return a.bytes == b.bytes && a.digest == b.digest; };
    if (std::ranges::equal(then, here, is_same) || then.empty()) continue;
    const auto [was, is] = std::ranges::mismatch(then, here, is_same);
    if (was != then.end() && is != here.end() && was->path == is->path && then.size() == here.size()) {
      changes.push_back(fmt::format("{}: {} has changed since the run was begun ({}, before {}): {}", flag, is->path,
                                    counted(is->bytes, "byte"), counted(was->bytes, "byte"), means));
    } else {
      changes.push_back(fmt::format("{}: {}, not the {} that the run was begun with: {}", flag,
                                    here.empty() ? "no files" : counted(std::ssize(here), "file") + " with other content",
                                    with_commas(std::ssize(then)), means));
    }
  }
  return changes;
}

}  // namespace spillway
