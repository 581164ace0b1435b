#include "memory/base/error.h"

namespace spillway {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw Error(kExitBug, fmt::format("internal error at {}:{}: {} ({})", file, line, message, condition),
              "This is a bug in spillway; please report it with the command line.");
}

}  // namespace spillway
