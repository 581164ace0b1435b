// The operations of a plan as plan.json has them: columns with an entry an operation, so that those of a large model stay small,
// and a digest of all that the plan is made of in place of it.
// Not here: the rest of the file (plan_file.h), reading it for a report (trainer/show/run_record.h).
#pragma once

#include <string>
#include <vector>

#include "memory/plan.h"
#include "memory/search/simulate.h"
#include "trainer/plan/tier_picture.h"

namespace spillway {

// An object of columns. Of one turn: `class` is a place in `classes` [{kind, lane, when, micro_batches, bytes}], where `when`
// says in which turns of a step it does its work; `of` is one in `names`, of a unit or a block, or -1. `waits`: so many
// operations before; -1 - id: that of the turn before. Where times are given, `begin_delta`, from where the operation before
// begins, and `duration` are lists for each of `shown_turns`, in so many seconds as `time_unit_s`.
std::string operations_text(const Plan& plan, const UnitGraph& graph, const Prediction* times);
// What of the tiers the operations use: `class` is a place in `classes` [{tier, category, bytes}]. `ops` of a buffer: the first
// that touches it, and how far from it those are that are the last of their lanes.
std::string buffers_text(const StepUse& use);

// The numbers of the turns whose times there are.
std::vector<int> turns_shown(int turns);
// "every", "first", "waiting", "last", "middle, last"
std::string turn_words(TurnSet when);

}  // namespace spillway
