// The subcommands, one file for each. `argv[0]` is the subcommand's name; the result is the exit code; failures are thrown as
// Error.
#pragma once

namespace spillway {

int plan_command(int argc, const char* const* argv);
int probe_command(int argc, const char* const* argv);
int train_command(int argc, const char* const* argv);
int verify_command(int argc, const char* const* argv);
int eval_command(int argc, const char* const* argv);
int generate_command(int argc, const char* const* argv);
int export_command(int argc, const char* const* argv);
int report_command(int argc, const char* const* argv);
int tokenize_command(int argc, const char* const* argv);

}  // namespace spillway
