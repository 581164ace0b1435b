// --data-columns: other people's names of the keys of rows and of their messages.
// Not here: what the keys mean (trainer/data/row_content.h, row_turns.h).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/options/flag_value.h"

namespace spillway {

class DataColumns {
 public:
  enum class Level : std::uint8_t { row, message };

  DataColumns() = default;
  // Reads "messages=chat,role=from": our key, and the name that it has in the file. Refuses an unknown key, one that comes twice,
  // and two keys of one name.
  explicit DataColumns(const FlagValue& value);

  bool empty() const { return columns_.empty(); }
  // Our key for a name in the file; empty if nobody reads a key of that name. A name that is not mentioned is its own key, unless
  // that key has another name.
  std::string_view key_of(std::string_view name, Level level) const;
  // The name in the file.
  std::string_view name_of(std::string_view key) const;
  bool renames(std::string_view key) const { return name_of(key) != key; }
  bool mentions(std::string_view key) const;
  std::string text() const;  // as it was given

 private:
  struct Column {
    std::string key, name;
    Level level;
  };
  const Column* column_of(std::string_view key) const;
  std::vector<Column> columns_;
};

}  // namespace spillway
