// Text as Python's str has it: by characters, with Unicode's white space and letters. All text is valid UTF-8.
// Not here: which calls templates may make (template_call.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

// White space by str.isspace(), and by \s of a regular expression.
bool is_python_space(std::int32_t code_point);

enum class TextSide : std::uint8_t { both, left, right };
std::string_view strip_space(std::string_view text, TextSide side);
std::string_view strip_characters(std::string_view text, TextSide side, std::string_view characters);

// Return parts of `text` itself, after at most `most` cuts; a negative `most` is no limit. `by` is not empty.
std::vector<std::string_view> split_at(std::string_view text, std::string_view by, std::int64_t most);
std::vector<std::string_view> split_at_space(std::string_view text, std::int64_t most);

// Offset of the first occurrence, or npos, in time linear in both lengths.
std::size_t find_text(std::string_view text, std::string_view part);
// `most` as in split_at. An empty `from` matches before each character and at the end. Returns nothing if the result would be
// longer than `longest`.
std::optional<std::string> replace_text(std::string_view text, std::string_view from, std::string_view to, std::int64_t most,
                                        std::size_t longest);

std::vector<std::string_view> characters_of(std::string_view text);
std::int64_t count_characters(std::string_view text);
// The characters from `first` up to, not including, `last`: both not negative and not beyond the end.
std::string_view text_between(std::string_view text, std::int64_t first, std::int64_t last);

// Include characters that become several ("ß" is "SS"). Throw a TemplateProblem if the neighbours of a capital sigma leave its
// small form open.
std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);
std::string capitalized(std::string_view text);
std::string titled(std::string_view text);           // as str.title(): a word is a run of letters that have a case
std::string titled_by_space(std::string_view text);  // as Jinja's filter: a word begins behind white space and - ( { [ <

// Escapes text that is added to markup, as MarkupSafe does.
std::string escaped_markup(std::string_view text);

void append_utf8(std::string& text, std::int32_t code_point);

}  // namespace spillway
