#include "trainer/show/log.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "files/json_place.h"
#include "files/json_text.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

using nlohmann::json;

void add_key(std::string& line, std::string_view key) { line += fmt::format("{}\"{}\":", line.size() == 1 ? "" : ",", key); }

void add(std::string& line, std::string_view key, double value) {
  add_key(line, key);
  if (std::isnan(value)) {
    line += "\"NaN\"";
  } else if (std::isinf(value)) {
    line += value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  } else {
    std::array<char, 32> digits;
    char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    const std::string_view text(digits.data(), static_cast<std::size_t>(end - digits.data()));
    line += text;
    // Without a point a reader would take it for an integer, and integers have no -0.
    if (text.find_first_of(".e") == text.npos) line += ".0";
  }
}

void add(std::string& line, std::string_view key, std::int64_t value) {
  add_key(line, key);
  line += std::to_string(value);
}

void add(std::string& line, std::string_view key, const std::string& value) {
  add_key(line, key);
  line += quoted_json(value);
}

template <typename T>
void add(std::string& line, std::string_view key, const std::optional<T>& value) {
  if (value) add(line, key, *value);
}

void read(const JsonPlace& place, double& into) {
  constexpr double most = std::numeric_limits<double>::max(), infinity = std::numeric_limits<double>::infinity();
  const json& value = place.json();
  into = value == "NaN"         ? std::numeric_limits<double>::quiet_NaN()
         : value == "Infinity"  ? infinity
         : value == "-Infinity" ? -infinity
                                : place.number(-most, most);
}

void read(const JsonPlace& place, std::int64_t& into) { into = place.integer(INT64_MIN, INT64_MAX); }

void read(const JsonPlace& place, std::string& into) { into = place.text(); }

template <typename T>
void read(const JsonPlace& place, std::optional<T>& into) {
  if (place.is_there()) read(place, into.emplace());
}

// Visits each field of a record with its key, in the order of a line.
template <typename Record, typename Visit>
void for_each_field(Record& record, const Visit& visit) {
  visit("step", record.step);
  visit("loss", record.loss);
  visit("grad_norm", record.grad_norm);
  visit("lr", record.lr);
  visit("tokens", record.tokens);
  visit("step_s", record.step_s);
  visit("tokens_per_s", record.tokens_per_s);
  for (const auto& [name, tier] : Names<Tier>::all) {
    if (in_memory(tier)) visit(fmt::format("{}_peak_bytes", name), record.peak_bytes[tier]);
  }
  visit("nvme_read_bytes", record.nvme_read_bytes);
  visit("nvme_written_bytes", record.nvme_written_bytes);
  visit("bound_s", record.bound_s);
  visit("binding_lane", record.binding_lane);
  visit("overlap_efficiency", record.overlap_efficiency);
  visit("lm_loss", record.lm_loss);
  visit("aux_loss", record.aux_loss);
  visit("router_z_loss", record.router_z_loss);
  visit("expert_load_most", record.expert_load_most);
  visit("expert_load_least", record.expert_load_least);
  visit("expert_entropy", record.expert_entropy);
  visit("loss_scale", record.loss_scale);
  visit("eval_loss", record.eval_loss);
  visit("eval_loss_before", record.eval_loss_before);
  visit("best", record.best);
  visit("network_bytes", record.network_bytes);
  visit("sample", record.sample);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// A device in place of the log might be read for ever.
void refuse_unless_regular(int fd, const std::string& path) {
  struct stat status = {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) throw IoError(fmt::format("{}: is not a regular file", path));
}

Descriptor opened_to_read(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw IoError(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  refuse_unless_regular(file.get(), path);
  return file;
}

// Visits whole lines with their numbers; stops when `visit` returns false. Returns the end of the last whole line visited.
template <typename Visit>
std::int64_t for_each_line(int fd, const std::string& path, const Visit& visit) {
  std::string pending;
  std::array<char, 1 << 16> block;
  std::int64_t read_to = 0;
  std::int64_t line_end = 0;
  std::int64_t line = 0;
  while (true) {
    const ssize_t count = ::pread(fd, block.data(), block.size(), read_to);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw IoError(fmt::format("{}: reading at {} failed: {}", path, read_to, std::strerror(errno)));
    if (count == 0) return line_end;
    read_to += count;
    pending.append(block.data(), static_cast<std::size_t>(count));
    std::size_t begin = 0;
    for (std::size_t end = pending.find('\n'); end != pending.npos; end = pending.find('\n', begin)) {
      if (!visit(std::string_view(pending).substr(begin, end - begin), ++line)) return line_end;
      line_end += static_cast<std::int64_t>(end - begin) + 1;
      begin = end + 1;
    }
    pending.erase(0, begin);
  }
}

// Offset after the record of `last_step`, or after the last one before it.
std::int64_t end_of_step(const std::string& path, std::int64_t last_step) {
  if (::access(path.c_str(), F_OK) != 0) return 0;
  const Descriptor file = opened_to_read(path);
  return for_each_line(file.get(), path, [&](std::string_view line, std::int64_t number) {
    return parse_log_line(line, fmt::format("{} line {}", path, number)).step <= last_step;
  });
}

}  // namespace

std::string to_log_line(const StepRecord& record) {
  std::string line = "{";
  for_each_field(record, [&](std::string_view key, const auto& value) { add(line, key, value); });
  return line + "}";
}

std::vector<std::string> log_keys() {
  std::vector<std::string> keys;
  const StepRecord any;
  for_each_field(any, [&](std::string_view key, const auto&) { keys.emplace_back(key); });
  return keys;
}

StepRecord parse_log_line(std::string_view line, const std::string& where) {
  const json object = parsed_json(line);
  const JsonPlace place(object, where, {}, FileOf::program);
  StepRecord record;
  for_each_field(record, [&](std::string_view key, auto& value) { read(place.at(key), value); });
  return record;
}

std::vector<StepRecord> read_log(const std::string& path) {
  const Descriptor file = opened_to_read(path);
  std::vector<StepRecord> records;
  for_each_line(file.get(), path, [&](std::string_view line, std::int64_t number) {
    records.push_back(parse_log_line(line, fmt::format("{} line {}", path, number)));
    return true;
  });
  return records;
}

LogWriter::LogWriter(const std::string& path, std::int64_t last_step)
    : file_(path, last_step == 0 ? 0 : end_of_step(path, last_step)) {}

}  // namespace spillway
