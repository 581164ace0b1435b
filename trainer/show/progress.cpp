#include "trainer/show/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "trainer/words/quantity.h"

namespace spillway {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kReset = "\x1b[0m";
constexpr std::string_view kEraseLine = "\r\x1b[K";

std::string rate(double per_second) {
  if (!std::isfinite(per_second) || per_second < 0 || per_second > 1e15) return "?";
  return per_second < 100 ? fmt::format("{:.1f}", per_second) : with_commas(std::llround(per_second));
}

int terminal_columns(int fd) {
  winsize size = {};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// A live line that wraps cannot be erased, so it is cut to the columns of the terminal; escape sequences and continuation bytes
// do not count.
std::string cut_to_columns(std::string_view line, int columns) {
  std::string cut;
  int used = 0;
  bool in_escape = false;
  for (const char c : line) {
    if (c == '\x1b') in_escape = true;
    const bool is_continuation = (static_cast<unsigned char>(c) & 0xc0U) == 0x80U;
    if (!in_escape && !is_continuation) ++used;
    if (in_escape || used < columns) cut += c;
    if (in_escape && c == 'm') in_escape = false;
  }
  return cut;
}

}  // namespace

ProgressStyle progress_style_of(int fd) {
  const char* term = std::getenv("TERM");
  if (::isatty(fd) == 0 || term == nullptr || std::string_view(term) == "dumb") return ProgressStyle::plain;
  const char* no_colour = std::getenv("NO_COLOR");
  return no_colour != nullptr && *no_colour != '\0' ? ProgressStyle::live : ProgressStyle::live_with_colour;
}

std::string progress_line(const ProgressState& state, ProgressStyle style) {
  const bool colour = style == ProgressStyle::live_with_colour;
  const std::string gap = colour ? fmt::format(" {}·{} ", kDim, kReset) : " · ";
  const StepRecord& record = state.record;
  std::string line = fmt::format("step {}/{}", record.step, state.train_iters);
  line += fmt::format("{}loss {}{:.4f}{}", gap, colour ? kBold : "", record.loss, colour ? kReset : "");
  line += fmt::format("{}{} tokens/s", gap, rate(record.tokens_per_s));
  if (state.seconds_left >= 0) line += fmt::format("{}ETA {}", gap, rounded_time(state.seconds_left));
  for (const auto& [name, tier] : Names<Tier>::all) {
    const TierUse& use = state.tiers[tier];
    if (use.budget > 0) line += fmt::format("{}{} {} of {}", gap, name, rounded_size(use.used), rounded_size(use.budget));
  }
  if (!record.binding_lane.empty()) {
    line += fmt::format("{}bound by {}", gap, record.binding_lane);
    if (std::isfinite(record.overlap_efficiency)) line += fmt::format(" ({:.0f} %)", record.overlap_efficiency * 100);
  }
  if (record.eval_loss) line += fmt::format("{}eval loss {:.4f}", gap, *record.eval_loss);
  return line;
}

Progress::Progress(int fd, ProgressStyle style, std::int64_t train_iters, std::int64_t log_interval)
    : fd_(fd), style_(style), train_iters_(train_iters), log_interval_(log_interval) {}

Progress::~Progress() {
  if (line_open_) write("\n");
}

void Progress::set_tiers(const By<Tier, TierUse>& tiers) { tiers_ = tiers; }

void Progress::step(const StepRecord& record) {
  // Recent steps predict the remaining ones better than the first did, which is often slow and fades within a few steps.
  constexpr double kWeight = 0.2;
  mean_step_s_ = mean_step_s_ == 0 ? record.step_s : mean_step_s_ + kWeight * (record.step_s - mean_step_s_);
  const auto left = static_cast<double>(train_iters_ - record.step);
  const std::lock_guard lock(mutex_);
  const ProgressState state{record, train_iters_, mean_step_s_ > 0 ? mean_step_s_ * left : -1, tiers_};
  if (style_ == ProgressStyle::plain) {
    if (record.step % log_interval_ == 0 || record.step == train_iters_ || record.eval_loss)
      write(progress_line(state, style_) + "\n");
    return;
  }
  write(fmt::format("{}{}", kEraseLine, cut_to_columns(progress_line(state, style_), terminal_columns(fd_))));
  line_open_ = true;
}

void Progress::message(std::string_view text) {
  const std::lock_guard lock(mutex_);
  write(fmt::format("{}{}\n", line_open_ ? kEraseLine : "", text));
  line_open_ = false;
}

// A reader that went away (a closed pipe) must not end the training: text that cannot be shown is dropped.
void Progress::write(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t count = ::write(fd_, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace spillway
