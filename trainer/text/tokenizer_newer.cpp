#include "trainer/text/tokenizer_newer.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "trainer/text/utf8.h"

namespace spillway {
namespace {

enum class Kind : std::uint8_t { letter, mark, digit, other };

// An older character of the same category and the same number of bytes.
struct StandIn {
  const char* utf8;
  Kind kind;
};
constexpr StandIn kLu3 = {"\xe1\xb8\x80", Kind::letter};      // U+1E00
constexpr StandIn kLl3 = {"\xe1\xb8\x81", Kind::letter};      // U+1E01
constexpr StandIn kMn3 = {"\xe0\xa4\x80", Kind::mark};        // U+0900
constexpr StandIn kMc3 = {"\xe0\xa4\x83", Kind::mark};        // U+0903
constexpr StandIn kPo3 = {"\xe1\xad\x9a", Kind::other};       // U+1B5A
constexpr StandIn kSo3 = {"\xe2\x90\xa6", Kind::other};       // U+2426
constexpr StandIn kLu4 = {"\xf0\x90\x90\x80", Kind::letter};  // U+10400
constexpr StandIn kLl4 = {"\xf0\x90\x90\xa8", Kind::letter};  // U+10428
constexpr StandIn kLm4 = {"\xf0\x96\xad\x80", Kind::letter};  // U+16B40
constexpr StandIn kLo4 = {"\xf0\x90\x91\x90", Kind::letter};  // U+10450
constexpr StandIn kHan = {"\xf0\xa0\x80\x80", Kind::letter};  // U+20000
constexpr StandIn kMn4 = {"\xf0\x91\x80\x81", Kind::mark};    // U+11001
constexpr StandIn kMc4 = {"\xf0\x91\x80\x80", Kind::mark};    // U+11000
constexpr StandIn kNd4 = {"\xf0\x90\x92\xa0", Kind::digit};   // U+104A0
constexpr StandIn kNo4 = {"\xf0\x90\x84\x87", Kind::other};   // U+10107
constexpr StandIn kPd4 = {"\xf0\x90\xba\xad", Kind::other};   // U+10EAD
constexpr StandIn kPo4 = {"\xf0\x91\x81\x87", Kind::other};   // U+11047
constexpr StandIn kSm4 = {"\xf0\x9d\x9b\x81", Kind::other};   // U+1D6C1
constexpr StandIn kSo4 = {"\xf0\x9d\x84\x80", Kind::other};   // U+1D100
constexpr StandIn kCf4 = {"\xf0\x93\x90\xb0", Kind::other};   // U+13430

struct Range {
  std::int32_t first;
  std::int32_t last;
  const StandIn* stand_in;
};
struct Interval {
  std::int32_t first;
  std::int32_t last;
};
// Both tables are printed by tools/reference/newer_characters.py.
constexpr Range kNewer[] = {
    {0x897, 0x897, &kMn3},     {0xcf3, 0xcf3, &kMc3},     {0xece, 0xece, &kMn3},     {0x1b4e, 0x1b4f, &kPo3},
    {0x1b7f, 0x1b7f, &kPo3},   {0x1c89, 0x1c89, &kLu3},   {0x1c8a, 0x1c8a, &kLl3},   {0x2427, 0x2429, &kSo3},
    {0x2ffc, 0x2fff, &kSo3},   {0x31e4, 0x31e5, &kSo3},   {0x31ef, 0x31ef, &kSo3},   {0xa7cb, 0xa7cc, &kLu3},
    {0xa7cd, 0xa7cd, &kLl3},   {0xa7da, 0xa7da, &kLu3},   {0xa7db, 0xa7db, &kLl3},   {0xa7dc, 0xa7dc, &kLu3},
    {0x105c0, 0x105f3, &kLo4}, {0x10d40, 0x10d49, &kNd4}, {0x10d4a, 0x10d4d, &kLo4}, {0x10d4e, 0x10d4e, &kLm4},
    {0x10d4f, 0x10d4f, &kLo4}, {0x10d50, 0x10d65, &kLu4}, {0x10d69, 0x10d6d, &kMn4}, {0x10d6e, 0x10d6e, &kPd4},
    {0x10d6f, 0x10d6f, &kLm4}, {0x10d70, 0x10d85, &kLl4}, {0x10d8e, 0x10d8f, &kSm4}, {0x10ec2, 0x10ec4, &kLo4},
    {0x10efc, 0x10eff, &kMn4}, {0x1123f, 0x11240, &kLo4}, {0x11241, 0x11241, &kMn4}, {0x11380, 0x11389, &kLo4},
    {0x1138b, 0x1138b, &kLo4}, {0x1138e, 0x1138e, &kLo4}, {0x11390, 0x113b5, &kLo4}, {0x113b7, 0x113b7, &kLo4},
    {0x113b8, 0x113ba, &kMc4}, {0x113bb, 0x113c0, &kMn4}, {0x113c2, 0x113c2, &kMc4}, {0x113c5, 0x113c5, &kMc4},
    {0x113c7, 0x113ca, &kMc4}, {0x113cc, 0x113cd, &kMc4}, {0x113ce, 0x113ce, &kMn4}, {0x113cf, 0x113cf, &kMc4},
    {0x113d0, 0x113d0, &kMn4}, {0x113d1, 0x113d1, &kLo4}, {0x113d2, 0x113d2, &kMn4}, {0x113d3, 0x113d3, &kLo4},
    {0x113d4, 0x113d5, &kPo4}, {0x113d7, 0x113d8, &kPo4}, {0x113e1, 0x113e2, &kMn4}, {0x116d0, 0x116e3, &kNd4},
    {0x11b00, 0x11b09, &kPo4}, {0x11bc0, 0x11be0, &kLo4}, {0x11be1, 0x11be1, &kPo4}, {0x11bf0, 0x11bf9, &kNd4},
    {0x11f00, 0x11f01, &kMn4}, {0x11f02, 0x11f02, &kLo4}, {0x11f03, 0x11f03, &kMc4}, {0x11f04, 0x11f10, &kLo4},
    {0x11f12, 0x11f33, &kLo4}, {0x11f34, 0x11f35, &kMc4}, {0x11f36, 0x11f3a, &kMn4}, {0x11f3e, 0x11f3f, &kMc4},
    {0x11f40, 0x11f40, &kMn4}, {0x11f41, 0x11f41, &kMc4}, {0x11f42, 0x11f42, &kMn4}, {0x11f43, 0x11f4f, &kPo4},
    {0x11f50, 0x11f59, &kNd4}, {0x11f5a, 0x11f5a, &kMn4}, {0x1342f, 0x1342f, &kLo4}, {0x13439, 0x1343f, &kCf4},
    {0x13440, 0x13440, &kMn4}, {0x13441, 0x13446, &kLo4}, {0x13447, 0x13455, &kMn4}, {0x13460, 0x143fa, &kLo4},
    {0x16100, 0x1611d, &kLo4}, {0x1611e, 0x16129, &kMn4}, {0x1612a, 0x1612c, &kMc4}, {0x1612d, 0x1612f, &kMn4},
    {0x16130, 0x16139, &kNd4}, {0x16d40, 0x16d42, &kLm4}, {0x16d43, 0x16d6a, &kLo4}, {0x16d6b, 0x16d6c, &kLm4},
    {0x16d6d, 0x16d6f, &kPo4}, {0x16d70, 0x16d79, &kNd4}, {0x18cff, 0x18cff, &kLo4}, {0x1b132, 0x1b132, &kLo4},
    {0x1b155, 0x1b155, &kLo4}, {0x1cc00, 0x1ccef, &kSo4}, {0x1ccf0, 0x1ccf9, &kNd4}, {0x1cd00, 0x1ceb3, &kSo4},
    {0x1d2c0, 0x1d2d3, &kNo4}, {0x1df25, 0x1df2a, &kLl4}, {0x1e030, 0x1e06d, &kLm4}, {0x1e08f, 0x1e08f, &kMn4},
    {0x1e4d0, 0x1e4ea, &kLo4}, {0x1e4eb, 0x1e4eb, &kLm4}, {0x1e4ec, 0x1e4ef, &kMn4}, {0x1e4f0, 0x1e4f9, &kNd4},
    {0x1e5d0, 0x1e5ed, &kLo4}, {0x1e5ee, 0x1e5ef, &kMn4}, {0x1e5f0, 0x1e5f0, &kLo4}, {0x1e5f1, 0x1e5fa, &kNd4},
    {0x1e5ff, 0x1e5ff, &kPo4}, {0x1f6dc, 0x1f6dc, &kSo4}, {0x1f774, 0x1f776, &kSo4}, {0x1f77b, 0x1f77f, &kSo4},
    {0x1f7d9, 0x1f7d9, &kSo4}, {0x1f8b2, 0x1f8bb, &kSo4}, {0x1f8c0, 0x1f8c1, &kSo4}, {0x1fa75, 0x1fa77, &kSo4},
    {0x1fa87, 0x1fa89, &kSo4}, {0x1fa8f, 0x1fa8f, &kSo4}, {0x1faad, 0x1faaf, &kSo4}, {0x1fabb, 0x1fabf, &kSo4},
    {0x1fac6, 0x1fac6, &kSo4}, {0x1face, 0x1facf, &kSo4}, {0x1fada, 0x1fadc, &kSo4}, {0x1fadf, 0x1fadf, &kSo4},
    {0x1fae8, 0x1fae9, &kSo4}, {0x1faf7, 0x1faf8, &kSo4}, {0x1fbcb, 0x1fbef, &kSo4}, {0x2b739, 0x2b739, &kHan},
    {0x2ebf0, 0x2ee5d, &kHan}, {0x31350, 0x323af, &kHan},
};
constexpr Interval kNotNormalized[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},     {0xd3b, 0xd3c},
    {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0x10d24, 0x10d27},
    {0x10eab, 0x10eac}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34},
    {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x16ff0, 0x16ff1},
    {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
};

// The entry that contains `code_point`, or null.
template <typename Entry, std::size_t kEntries>
const Entry* find_in(const Entry (&entries)[kEntries], std::int32_t code_point) {
  const Entry* const found = std::ranges::lower_bound(entries, code_point, {}, &Entry::last);
  return found != std::end(entries) && code_point >= found->first ? found : nullptr;
}

// Blocks of 64 code points that contain a newer character: a quick test, because characters of three bytes are nearly always old.
constexpr int kLastByteBits = 6;
constexpr std::size_t kBlocks = (std::size_t{1} << 16) >> kLastByteBits;
constexpr auto kNewerBlocks = [] {
  std::array<bool, kBlocks> blocks = {};
  for (const Range& range : kNewer) {
    for (std::int32_t c = range.first; c <= range.last && c < (1 << 16); ++c)
      blocks[static_cast<std::size_t>(c >> kLastByteBits)] = true;
  }
  return blocks;
}();

}  // namespace

bool replace_newer_characters(std::string_view text, std::string& buffer) {
  constexpr unsigned char kFirstOfThree = 0xe0;
  constexpr unsigned char kFirstOfFour = 0xf0;
  bool is_changed = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < kFirstOfThree) continue;
    const CodePoint c = decode_utf8(text.data() + i);
    if (lead < kFirstOfFour && !kNewerBlocks[static_cast<std::size_t>(c.value >> kLastByteBits)]) continue;
    if (const Range* const range = find_in(kNewer, c.value)) {
      if (!is_changed) buffer.assign(text);
      is_changed = true;
      std::copy_n(range->stand_in->utf8, c.bytes, buffer.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return is_changed;
}

bool is_newer_word_character(std::int32_t code_point) {
  const Range* const range = find_in(kNewer, code_point);
  return range != nullptr && range->stand_in->kind != Kind::other;
}

bool is_mark_without_normalization(std::int32_t code_point) {
  if (find_in(kNotNormalized, code_point) != nullptr) return true;
  const Range* const range = find_in(kNewer, code_point);
  return range != nullptr && range->stand_in->kind == Kind::mark;
}

}  // namespace spillway
