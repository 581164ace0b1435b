#include <cstdlib>

#include "tools/command_opening.h"
#include "tools/commands.h"
#include "trainer/options/help_text.h"
#include "trainer/run/trainer.h"

namespace spillway {

int train_command(int argc, const char* const* argv) {
  CommandLine command("spillway train", "Plan, then train.");
  command.add_footer(words_of_plans());
  auto resolved =
      resolve_run_flags(command, argc, argv, {.launch = launch_in([](const char* name) { return std::getenv(name); })});
  if (!resolved) return 0;
  settle_device_of(*resolved);
  return train(*resolved);
}

}  // namespace spillway
