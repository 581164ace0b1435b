#include "trainer/tokenizer_newer.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "trainer/tokenizer_unicode.h"

namespace spillway {
namespace {

// One old character of each category, of as many bytes.
constexpr const char* kUpper3 = "\xe1\xb8\x80";        // U+1E00
constexpr const char* kLower3 = "\xe1\xb8\x81";        // U+1E01
constexpr const char* kUpper = "\xf0\x90\x90\x80";     // U+10400
constexpr const char* kLower = "\xf0\x90\x90\xa8";     // U+10428
constexpr const char* kModifier = "\xf0\x96\xad\x80";  // U+16B40
constexpr const char* kLetter = "\xf0\x90\x91\x90";    // U+10450
constexpr const char* kHan = "\xf0\xa0\x80\x80";       // U+20000
constexpr const char* kDigit = "\xf0\x90\x92\xa0";     // U+104A0
constexpr const char* kNumber = "\xf0\x90\x84\x87";    // U+10107

struct Range {
  std::int32_t first;
  std::int32_t last;
  const char* stand_in;
};
constexpr Range kNewer[] = {
    {0x1c89, 0x1c89, kUpper3},     {0x1c8a, 0x1c8a, kLower3},     {0xa7cb, 0xa7cc, kUpper3},     {0xa7cd, 0xa7cd, kLower3},
    {0xa7da, 0xa7da, kUpper3},     {0xa7db, 0xa7db, kLower3},     {0xa7dc, 0xa7dc, kUpper3},     {0x105c0, 0x105f3, kLetter},
    {0x10d40, 0x10d49, kDigit},    {0x10d4a, 0x10d4d, kLetter},   {0x10d4e, 0x10d4e, kModifier}, {0x10d4f, 0x10d4f, kLetter},
    {0x10d50, 0x10d65, kUpper},    {0x10d6f, 0x10d6f, kModifier}, {0x10d70, 0x10d85, kLower},    {0x10ec2, 0x10ec4, kLetter},
    {0x1123f, 0x11240, kLetter},   {0x11380, 0x11389, kLetter},   {0x1138b, 0x1138b, kLetter},   {0x1138e, 0x1138e, kLetter},
    {0x11390, 0x113b5, kLetter},   {0x113b7, 0x113b7, kLetter},   {0x113d1, 0x113d1, kLetter},   {0x113d3, 0x113d3, kLetter},
    {0x116d0, 0x116e3, kDigit},    {0x11bc0, 0x11be0, kLetter},   {0x11bf0, 0x11bf9, kDigit},    {0x11f02, 0x11f02, kLetter},
    {0x11f04, 0x11f10, kLetter},   {0x11f12, 0x11f33, kLetter},   {0x11f50, 0x11f59, kDigit},    {0x1342f, 0x1342f, kLetter},
    {0x13441, 0x13446, kLetter},   {0x13460, 0x143fa, kLetter},   {0x16100, 0x1611d, kLetter},   {0x16130, 0x16139, kDigit},
    {0x16d40, 0x16d42, kModifier}, {0x16d43, 0x16d6a, kLetter},   {0x16d6b, 0x16d6c, kModifier}, {0x16d70, 0x16d79, kDigit},
    {0x18cff, 0x18cff, kLetter},   {0x1b132, 0x1b132, kLetter},   {0x1b155, 0x1b155, kLetter},   {0x1ccf0, 0x1ccf9, kDigit},
    {0x1d2c0, 0x1d2d3, kNumber},   {0x1df25, 0x1df2a, kLower},    {0x1e030, 0x1e06d, kModifier}, {0x1e4d0, 0x1e4ea, kLetter},
    {0x1e4eb, 0x1e4eb, kModifier}, {0x1e4f0, 0x1e4f9, kDigit},    {0x1e5d0, 0x1e5ed, kLetter},   {0x1e5f0, 0x1e5f0, kLetter},
    {0x1e5f1, 0x1e5fa, kDigit},    {0x2b739, 0x2b739, kHan},      {0x2ebf0, 0x2ee5d, kHan},      {0x31350, 0x323af, kHan},
};

const char* stand_in_of(std::int32_t code_point) {
  const auto* range = std::ranges::lower_bound(kNewer, code_point, {}, &Range::last);
  return range != std::end(kNewer) && code_point >= range->first ? range->stand_in : nullptr;
}

}  // namespace

bool replace_newer_characters(std::string_view text, std::string& buffer) {
  bool is_changed = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0xe1) continue;
    // Of three bytes there are few: two after U+1C88, and Latin letters after U+A7CA.
    if (lead != 0xe1 && lead != 0xea && lead < 0xf0) continue;
    const CodePoint c = decode_utf8(text.data() + i);
    if (const char* const stand_in = stand_in_of(c.value)) {
      if (!is_changed) buffer.assign(text);
      is_changed = true;
      std::copy_n(stand_in, c.bytes, buffer.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return is_changed;
}

}  // namespace spillway
