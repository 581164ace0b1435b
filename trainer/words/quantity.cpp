#include "trainer/words/quantity.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace spillway {
namespace {

// Formats with three digits in all, before and after the point together.
std::string three_digits(double value) {
  const double size = std::abs(value);
  return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

}  // namespace

std::string with_commas(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::string counted(std::int64_t count, std::string_view what, std::string_view plural) {
  if (count == 1) return fmt::format("1 {}", what);
  return plural.empty() ? fmt::format("{} {}s", with_commas(count), what) : fmt::format("{} {}", with_commas(count), plural);
}

std::string rounded_count(double value) {
  if (!std::isfinite(value)) return "? ";
  constexpr std::string_view kPrefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < std::size(kPrefixes)) {
    value /= 1000;
    ++prefix;
  }
  return fmt::format("{} {}", three_digits(value), kPrefixes[prefix]);
}

std::string rounded_seconds(double seconds) {
  if (!std::isfinite(seconds) || std::abs(seconds) > 1e15) return "? s";
  const double size = std::abs(seconds);
  if (size >= 999.5) return with_commas(std::llround(seconds)) + " s";
  if (size >= 0.9995 || size == 0) return three_digits(seconds) + " s";
  if (size >= 0.9995e-3) return three_digits(seconds * 1e3) + " ms";
  return three_digits(seconds * 1e6) + " us";
}

std::string rounded_size(Bytes bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {  // 1023.95 would be shown as 1024.0
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string rounded_time(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h {:02}m", whole / 3600, whole % 3600 / 60);
  return fmt::format("{}d {:02}h", whole / 86400, whole % 86400 / 3600);
}

std::string wrapped(std::string_view text, int indent, int columns) {
  std::string lines;
  int used = indent;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  while (!text.empty()) {
    std::size_t end = text.find(' ');
    // A line never breaks between a number and its unit.
    while (end != text.npos && end > 0 && is_digit(text[end - 1]) && end + 1 < text.size() && is_letter(text[end + 1]))
      end = text.find(' ', end + 1);
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (used > indent && used + 1 + static_cast<int>(word.size()) > columns) {
      lines += "\n" + std::string(static_cast<std::size_t>(indent), ' ');
      used = indent;
    }
    if (used > indent) lines += ' ', ++used;
    lines += word;
    used += static_cast<int>(word.size());
  }
  return lines;
}

}  // namespace spillway
