#include <cstdlib>

#include "tools/command_opening.h"
#include "tools/commands.h"
#include "trainer/chat/template_date.h"
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
  if (resolved->options.data.template_date.empty()) resolved->options.data.template_date = TemplateDate::today().text();
  return train(*resolved);
}

}  // namespace spillway
