// Writes the operations of a plan to plan.json: columns with one entry for each operation, so that the file of a large model
// stays small, and a digest of all their fields.
// Not here: the rest of the file (plan_file.h), reading it for a report (trainer/show/run_record.h).
#pragma once

#include <string>
#include <vector>

#include "memory/plan/plan.h"
#include "memory/search/simulate.h"
#include "trainer/plan/tier_picture.h"

namespace spillway {

// An object of columns, for the operations of one turn. `class`: index into `classes` [{kind, lane, when, micro_batches, bytes}],
// where `when` names the turns of a step that it works in. `of`: index into `names` of its unit or block, or -1. `waits`: how
// many operations before it is the one that it waits for, or -1 - id for an operation of the turn before. With times:
// `begin_delta`, from the begin of the operation before, and `duration`, lists for each of `shown_turns`, in units of
// `time_unit_s` seconds.
std::string operations_text(const Plan& plan, const UnitGraph& graph, const Prediction* times);
// The memory that operations use on the tiers. `class`: index into `classes` [{tier, category, bytes}]. `ops` of a buffer: the
// first operation that touches it, then the distances from it to the last operation of each lane.
std::string buffers_text(const StepUse& use);

// The numbers of the turns that have times.
std::vector<int> turns_shown(int turns);
// "every", "first", "waiting", "last", "middle, last"
std::string turn_words(TurnSet when);

}  // namespace spillway
