// Reads DeepSpeed's JSON: what it says in our flags, and notes on what has no meaning here.
// What trains the same without a key is noted; what would train something else is refused, all of it in one message.
// Not here: the order in which files and flags win (resolve_options.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/options/deepspeed/deepspeed_meaning.h"

namespace spillway {

struct DeepSpeedFile {
  std::vector<DeepSpeedSays> says;  // each flag once; none that a flag or --config wins over
  std::vector<std::string> notes;   // sentences for people, one for each reason
};

// Refuses text that is no JSON object, keys that are there twice, unknown keys where DeepSpeed forbids them, values of another
// type, contradictions, and what disagrees with a flag that was given. `origin` is for messages.
DeepSpeedFile parse_deepspeed_text(std::string_view text, const std::string& origin, const BesideDeepSpeed& beside);

// Reads the text from a file. If the file does not exist, throws an InputError that names --deepspeed-config.
DeepSpeedFile read_deepspeed_file(const std::string& path, const BesideDeepSpeed& beside);

}  // namespace spillway
