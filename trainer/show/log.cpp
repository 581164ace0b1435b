#include "trainer/show/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "memory/error.h"

namespace spillway {
namespace {

using nlohmann::json;

void add_key(std::string& line, std::string_view key) { line += fmt::format("{}\"{}\":", line.size() == 1 ? "" : ",", key); }

void add_number(std::string& line, std::string_view key, double value) {
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
    // Without a point a reader takes it for an integer, and those have no -0.
    if (text.find_first_of(".e") == text.npos) line += ".0";
  }
}

void add_integer(std::string& line, std::string_view key, std::int64_t value) {
  add_key(line, key);
  line += std::to_string(value);
}

[[noreturn]] void damaged(const std::string& where, std::string_view what) { throw IoError(fmt::format("{}: {}", where, what)); }

double number(const json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) damaged(where, fmt::format("\"{}\" is missing", key));
  if (found->is_number()) return found->get<double>();
  if (found->is_string()) {
    const auto& text = found->get_ref<const std::string&>();
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
    if (text == "Infinity") return std::numeric_limits<double>::infinity();
    if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  }
  damaged(where, fmt::format("\"{}\" is not a number", key));
}

std::int64_t integer(const json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) damaged(where, fmt::format("\"{}\" is missing", key));
  if (!found->is_number_integer()) damaged(where, fmt::format("\"{}\" is not a whole number", key));
  return found->get<std::int64_t>();
}

std::optional<double> optional_number(const json& object, const char* key, const std::string& where) {
  if (!object.contains(key)) return std::nullopt;
  return number(object, key, where);
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

// A device in the place of the log may never end.
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

// Visits whole lines with the offset of their end; stops where `visit` says so. Returns the end of the last whole line visited.
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

// Where the record of `last_step`, or the last one before it, ends.
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
  add_integer(line, "step", record.step);
  add_number(line, "loss", record.loss);
  add_number(line, "grad_norm", record.grad_norm);
  add_number(line, "lr", record.lr);
  add_integer(line, "tokens", record.tokens);
  add_number(line, "step_s", record.step_s);
  add_number(line, "tokens_per_s", record.tokens_per_s);
  add_integer(line, "device_peak_bytes", record.device_peak_bytes);
  add_integer(line, "host_peak_bytes", record.host_peak_bytes);
  add_integer(line, "nvme_read_bytes", record.nvme_read_bytes);
  add_integer(line, "nvme_written_bytes", record.nvme_written_bytes);
  add_number(line, "bound_s", record.bound_s);
  add_key(line, "binding_lane");
  line += json(record.binding_lane).dump(-1, ' ', false, json::error_handler_t::replace);
  add_number(line, "overlap_efficiency", record.overlap_efficiency);
  if (record.loss_scale) add_number(line, "loss_scale", *record.loss_scale);
  if (record.eval_loss) add_number(line, "eval_loss", *record.eval_loss);
  if (record.sample) {
    add_key(line, "sample");
    line += json(*record.sample).dump(-1, ' ', false, json::error_handler_t::replace);
  }
  return line + "}";
}

StepRecord parse_log_line(std::string_view line, const std::string& where) {
  const json object = json::parse(line, nullptr, false);
  if (!object.is_object()) damaged(where, "not a JSON object");
  StepRecord record;
  record.step = integer(object, "step", where);
  record.loss = number(object, "loss", where);
  record.grad_norm = number(object, "grad_norm", where);
  record.lr = number(object, "lr", where);
  record.tokens = integer(object, "tokens", where);
  record.step_s = number(object, "step_s", where);
  record.tokens_per_s = number(object, "tokens_per_s", where);
  record.device_peak_bytes = integer(object, "device_peak_bytes", where);
  record.host_peak_bytes = integer(object, "host_peak_bytes", where);
  record.nvme_read_bytes = integer(object, "nvme_read_bytes", where);
  record.nvme_written_bytes = integer(object, "nvme_written_bytes", where);
  record.bound_s = number(object, "bound_s", where);
  const auto lane = object.find("binding_lane");
  if (lane == object.end() || !lane->is_string()) damaged(where, "\"binding_lane\" is not a string");
  record.binding_lane = lane->get<std::string>();
  record.overlap_efficiency = number(object, "overlap_efficiency", where);
  record.loss_scale = optional_number(object, "loss_scale", where);
  record.eval_loss = optional_number(object, "eval_loss", where);
  if (const auto sample = object.find("sample"); sample != object.end()) {
    if (!sample->is_string()) damaged(where, "\"sample\" is not a string");
    record.sample = sample->get<std::string>();
  }
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
