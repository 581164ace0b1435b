#include "trainer/text/tokenizer_unicode.h"

#include <utf8proc.h>

#include <array>
#include <vector>

#include "memory/base/error.h"
#include "trainer/text/tokenizer_newer.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

utf8proc_category_t category_of(std::int32_t code_point) { return utf8proc_category(code_point); }

// Code points below this one have no other form in NFC, do not compose with the character before them and are not reordered.
constexpr std::int32_t kFirstUnstable = 0x300;
constexpr unsigned char kFirstUnstableLead = 0xcc;

// Composing the longest canonical decomposition of one character takes four code points (U+1F82 and its kind).
constexpr int kLongestDecomposition = 18;

bool is_nfc_alone(std::int32_t code_point) {
  std::array<utf8proc_int32_t, kLongestDecomposition> form;
  int boundary = 0;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  const utf8proc_ssize_t length = utf8proc_decompose_char(code_point, form.data(), form.size(), options, &boundary);
  if (length == 1) return form[0] == code_point;
  const auto compose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  return utf8proc_normalize_utf32(form.data(), length, compose) == 1 && form[0] == code_point;
}

// Returns true if the character is in NFC and text may be cut before it and both parts normalized alone.
bool is_stable(std::int32_t code_point) {
  if (code_point < kFirstUnstable) return true;
  if (code_point >= 0x1100 && code_point <= 0x11ff) return false;  // Hangul jamo compose by rule
  if (code_point >= 0x3400 && code_point <= 0xd7a3) {
    // Han, Yi and Hangul syllables: the most frequent of all, and almost all plain.
    if (code_point <= 0x9fff || code_point >= 0xac00) return true;
  }
  const utf8proc_property_t* property = utf8proc_get_property(code_point);
  if (property->combining_class != 0 || property->category == UTF8PROC_CATEGORY_MN ||
      property->category == UTF8PROC_CATEGORY_MC || property->category == UTF8PROC_CATEGORY_ME) {
    return false;
  }
  return property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0 || is_nfc_alone(code_point);
}

void append_nfc(std::string_view text, std::string& out) {
  utf8proc_uint8_t* form = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                               static_cast<utf8proc_ssize_t>(text.size()), &form, options);
  if (length < 0)
    throw InputError(fmt::format("text of {} bytes cannot be normalised: {}", text.size(), utf8proc_errmsg(length)));
  out.append(reinterpret_cast<const char*>(form), static_cast<std::size_t>(length));
  std::free(form);
}

}  // namespace

bool is_letter(std::int32_t code_point) {
  const utf8proc_category_t category = category_of(code_point);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_number(std::int32_t code_point) {
  const utf8proc_category_t category = category_of(code_point);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_graphic(std::int32_t code_point) {
  const utf8proc_category_t category = category_of(code_point);
  return is_letter(code_point) || (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_SO);
}

bool is_white_space(std::int32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_word(std::int32_t c) {
  const utf8proc_category_t category = category_of(c);
  if (c == 0x200c || c == 0x200d) return true;  // the joiners
  if ((c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
      (c >= 0x1f170 && c <= 0x1f189)) {
    return true;  // alphabetic symbols
  }
  return is_letter(c) || category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME || category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC || is_newer_word_character(c);
}

std::string_view to_nfc(std::string_view text, std::string& buffer, TextMap* map) {
  if (map != nullptr) map->clear();
  std::size_t copied = 0;       // text up to here is in the buffer
  std::size_t last_stable = 0;  // start of the text that may take part with the character at position i
  std::size_t i = 0;
  bool is_changed = false;
  while (i < text.size()) {
    if (static_cast<unsigned char>(text[i]) < kFirstUnstableLead) {
      last_stable = i;
      i += static_cast<unsigned char>(text[i]) < 0x80 ? 1 : 2;
      continue;
    }
    const CodePoint c = decode_utf8(text.data() + i);
    if (is_stable(c.value)) {
      last_stable = i;
      i += static_cast<std::size_t>(c.bytes);
      continue;
    }
    if (is_mark_without_normalization(c.value)) {
      i += static_cast<std::size_t>(c.bytes);
      last_stable = i;
      continue;
    }
    // Normalizes from the last stable character to the next one: no character outside this span can take part.
    if (!is_changed) buffer.clear();
    is_changed = true;
    buffer.append(text.substr(copied, last_stable - copied));
    i += static_cast<std::size_t>(c.bytes);
    while (i < text.size()) {
      const CodePoint next = decode_utf8(text.data() + i);
      if (is_stable(next.value) || is_mark_without_normalization(next.value)) break;
      i += static_cast<std::size_t>(next.bytes);
    }
    const std::size_t to_begin = buffer.size();
    append_nfc(text.substr(last_stable, i - last_stable), buffer);
    if (map != nullptr) map->add({to_begin, buffer.size(), last_stable, i});
    copied = last_stable = i;
  }
  if (!is_changed) return text;
  buffer.append(text.substr(copied));
  return buffer;
}

}  // namespace spillway
