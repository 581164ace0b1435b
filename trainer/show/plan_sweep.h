// Plans one flag's values in turn, on the same machine and in the order given, to show what a plan costs as the flag grows.
// Not here: a single plan (plan_report.h, trainer/plan/plan_file.h, plan_page.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nvme/io_queue.h"
#include "trainer/options/raw_flags.h"
#include "trainer/plan/disk_figures.h"
#include "trainer/plan/plan_figures.h"
#include "trainer/plan/prepared_model.h"

namespace spillway {

// A run flag and its values, as the flag itself takes them: "device-memory=512MiB,1GiB".
struct Sweep {
  std::string flag;
  std::vector<std::string> values;
};
// Throws InputError for an unknown flag or one that cannot be swept, and for values that are bad, too many or empty.
Sweep parse_sweep(const std::string& text);

struct SweptPlan {
  std::string value;                   // as the flag has it
  std::optional<PlanFigures> figures;  // empty if it does not fit
  DiskFigures disk;
  By<Tier, Bytes> peak;
  PlanOutcome lacking;  // the outcome without a plan, if it does not fit
  std::string lacks;    // the same in words
};

struct PlanSweep {
  Sweep sweep;
  RunOptions options;  // with the first value
  std::string machine;
  std::int64_t parameters = 0;
  std::vector<SweptPlan> plans;
};

// Plans the typed flags with each value in the flag's place. Throws InputError if a value is refused or occurs twice. `say` hears
// of work that takes long.
PlanSweep plan_sweep(const Sweep& sweep, const RawFlags& typed, const LogSink& say);

// A table of 100 columns with a picture, an array of rows, or a page with the same picture.
std::string sweep_text(const PlanSweep& sweep, OutputFormat format);

// Throws BudgetError if no value fits.
void require_any_fit(const PlanSweep& sweep);

}  // namespace spillway
