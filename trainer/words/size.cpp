#include "trainer/words/size.h"

#include <fmt/core.h>

#include <array>
#include <limits>

#include "memory/base/error.h"

namespace spillway {
namespace {

struct SizeUnit {
  std::string_view name;
  Bytes bytes;
};
constexpr std::array<SizeUnit, 4> kUnits = {{{"KiB", kKiB}, {"MiB", kMiB}, {"GiB", kGiB}, {"TiB", 1024 * kGiB}}};
// Drives are sold in decimal units.
constexpr std::array<SizeUnit, 5> kDecimalUnits = {
    {{"KB", 1000}, {"MB", 1'000'000}, {"GB", 1'000'000'000}, {"TB", 1'000'000'000'000}, {"PB", 1'000'000'000'000'000}}};
constexpr Bytes kMaximum = std::numeric_limits<Bytes>::max();
constexpr int kMaximumFractionDigits = 9;  // keeps fraction × TiB within 128 bits with room to spare

bool is_digit(char c) { return c >= '0' && c <= '9'; }

enum class Reading : std::uint8_t { read, malformed, too_large };

// Removes the unit at the end of `text` and returns its bytes; 1 if there is no unit.
template <std::size_t N>
Bytes take_unit(std::string_view& text, const std::array<SizeUnit, N>& units) {
  for (const SizeUnit& candidate : units) {
    if (!text.ends_with(candidate.name)) continue;
    text.remove_suffix(candidate.name.size());
    return candidate.bytes;
  }
  return 1;
}

Reading read_size(std::string_view text, SizeUnits units, Bytes& bytes) {
  Bytes unit = take_unit(text, kUnits);
  if (unit == 1 && units == SizeUnits::binary_and_decimal) unit = take_unit(text, kDecimalUnits);
  std::size_t at = 0;
  __int128 whole = 0;
  bool too_large = false;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    whole = whole * 10 + (text[at] - '0');
    if (whole > kMaximum) {
      too_large = true;
      whole = kMaximum;
    }
  }
  if (at == 0) return Reading::malformed;
  __int128 fraction = 0;
  __int128 scale = 1;
  if (at < text.size() && text[at] == '.' && unit > 1) {
    const std::size_t first = ++at;
    for (; at < text.size() && is_digit(text[at]); ++at) {
      fraction = fraction * 10 + (text[at] - '0');
      scale *= 10;
      if (at - first >= kMaximumFractionDigits) return Reading::malformed;
    }
    if (at == first) return Reading::malformed;
  }
  if (at != text.size()) return Reading::malformed;
  const __int128 total = whole * unit + fraction * unit / scale;
  if (too_large || total > kMaximum) return Reading::too_large;
  bytes = static_cast<Bytes>(total);
  return Reading::read;
}

// People write "2GB" or "2g", which could mean two different numbers: the message offers the spelling instead of guessing.
std::string did_you_mean(std::string_view text) {
  std::size_t digits = 0;
  while (digits < text.size() && (is_digit(text[digits]) || text[digits] == '.')) ++digits;
  std::string_view unit = text.substr(digits);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (digits == 0 || unit.empty()) return {};
  for (const SizeUnit& candidate : kUnits) {
    if ((unit[0] | 0x20) == (candidate.name[0] | 0x20)) {
      return fmt::format("write {}{}", text.substr(0, digits), candidate.name);
    }
  }
  return {};
}

}  // namespace

std::optional<Bytes> try_parse_size(std::string_view text, SizeUnits units) {
  Bytes bytes = 0;
  if (read_size(text, units, bytes) != Reading::read) return std::nullopt;
  return bytes;
}

Bytes parse_size(std::string_view text, std::string_view what, SizeUnits units) {
  Bytes bytes = 0;
  switch (read_size(text, units, bytes)) {
    case Reading::read: return bytes;
    case Reading::too_large: throw InputError(fmt::format("{}: found \"{}\", allowed: sizes below 2^63 bytes", what, text));
    case Reading::malformed: break;
  }
  if (units == SizeUnits::binary_and_decimal) {
    throw InputError(
        fmt::format("{}: found \"{}\", allowed: bytes, or a number with GB, TB, PB, GiB, TiB, ..., as in 600TB", what, text));
  }
  throw InputError(
      fmt::format("{}: found \"{}\", allowed: bytes, or a number with KiB, MiB, GiB or TiB, as in 512MiB", what, text),
      did_you_mean(text));
}

std::string exact_size(Bytes bytes) {
  for (auto unit = kUnits.rbegin(); unit != kUnits.rend(); ++unit) {
    if (bytes != 0 && bytes % unit->bytes == 0) return fmt::format("{}{}", bytes / unit->bytes, unit->name);
  }
  return fmt::format("{}", bytes);
}

}  // namespace spillway
