// What a plan costs as one flag grows: each value is planned on the same machine, in the order given.
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

// "device-memory=512MiB,1GiB": a run flag, and values as the flag itself takes them.
struct Sweep {
  std::string flag;
  std::vector<std::string> values;
};
// InputError for a flag that is none or cannot be swept, and for values that are none, too many or empty.
Sweep parse_sweep(const std::string& text);

struct SweptPlan {
  std::string value;                   // as the flag has it
  std::optional<PlanFigures> figures;  // nothing where it does not fit
  DiskFigures disk;
  By<Tier, Bytes> peak;
  PlanOutcome lacking;  // where it does not fit, without its plan
  std::string lacks;    // the same in words
};

struct PlanSweep {
  Sweep sweep;
  RunOptions options;  // with the first value
  std::string machine;
  std::int64_t parameters = 0;
  std::vector<SweptPlan> plans;
};

// Plans for what was typed with each of the values in the flag's place. InputError where one of them is refused, or is there
// twice. `say` is told what takes long.
PlanSweep plan_sweep(const Sweep& sweep, const RawFlags& typed, const LogSink& say);

// A table of 100 columns with a picture; an array of rows; a page with the same picture.
std::string sweep_text(const PlanSweep& sweep, OutputFormat format);

// BudgetError where no value fits.
void require_any_fit(const PlanSweep& sweep);

}  // namespace spillway
