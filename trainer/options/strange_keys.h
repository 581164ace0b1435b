// The keys of a configuration file that are not ours: all of them are refused in one message, with ours for those of other
// trainers. Not here: the tables of other trainers' names (foreign_flags.h), the files themselves (config_file.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/options/flag.h"

namespace spillway {

struct FileKey {
  std::string name;
  std::string place;  // "line 3: ", or nothing
  std::string value;  // the word that it has; empty if that is no word
};

class StrangeKeys {
 public:
  explicit StrangeKeys(std::string origin) : origin_(std::move(origin)) {}

  // Null if the key is not ours, or is ours with another trainer's value; it is then remembered.
  const Flag* flag_of(const FileKey& key);

  // Throws an InputError if there are any.
  void refuse() const;

 private:
  std::string origin_;  // of the file, for messages
  std::vector<FileKey> strange_;
};

}  // namespace spillway
