#include "memory/passes/schedule.h"

#include "memory/base/error.h"
#include "memory/passes/early_reads.h"
#include "memory/passes/moves.h"
#include "memory/passes/resident_buffers.h"
#include "memory/passes/task_list.h"

// The compilation goes in passes: first the tasks, everything that computes, in an order that alone fixes the numbers
// (task_list.h); then where each object is and when (residency.h); then early reads into the room that this leaves
// (early_reads.h); then the operations that move objects there (moves.h).

namespace spillway {
namespace {

Program compile(const Plan& plan, const TaskList& list) {
  const Choices& choices = plan.choices;
  Residencies residencies(list, choices);
  // No early reads where all updates come behind the backward: the next step's forward would wait for the room that they take.
  if (choices.ahead > 0 && choices.update != UpdateTime::after) read_early(list, choices.chain, residencies);
  return issue(plan, list, residencies);
}

}  // namespace

Plan build_schedule(const UnitGraph& graph, const Choices& choices) {
  Plan plan;
  plan.choices = choices;
  add_resident_buffers(graph, plan);
  plan.step = compile(plan, step_tasks(graph, plan));
  return plan;
}

Plan build_inference(const UnitGraph& graph, const Choices& choices) {
  Plan plan;
  plan.choices = choices;
  add_inference_buffers(graph, plan);
  plan.evaluate = build_evaluation(graph, plan);
  return plan;
}

Program build_evaluation(const UnitGraph& graph, const Plan& plan) { return compile(plan, evaluation_tasks(graph, plan)); }

}  // namespace spillway
