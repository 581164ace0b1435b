// Standard input as data. A run reads its data more than once, so standard input is read to its end when it is first needed, into
// a file without a name.
// Not here: a run directory's copy of it (trainer/keep/kept_input.h).
#pragma once

#include <string>

#include "trainer/data/data_name.h"
#include "trainer/data/hidden_file.h"

namespace spillway {

class StandardInput {
 public:
  // Reads it at the first call. Throws InputError if it is a terminal.
  static const StandardInput& get();

  // By the first bytes: gzip, Zstandard or neither; of what they hold: a token file by its header, rows if it begins with { or [,
  // else text.
  const DataName& name() const { return name_; }
  PosixFile open() const { return file_.open(); }  // as it came
  Bytes size() const { return file_.size(); }
  // The endings of a file of the same contents: ".jsonl.gz".
  std::string endings() const;

 private:
  StandardInput();
  HiddenFile file_;
  DataName name_;
};

}  // namespace spillway
