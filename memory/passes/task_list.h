// The first pass of the schedule: what is computed, in which order, on which objects. The order alone fixes the numbers;
// where objects are and when they move is for the passes after it (residency.h, moves.h), and cannot change them.
// Who writes which tasks: forward and backward task_list.cpp, updates update_tasks.h, collectives network_tasks.h, all by
// means of task_writer.h.
#pragma once

#include "memory/passes/tasks.h"

namespace spillway {

TaskList step_tasks(const UnitGraph& graph, const Plan& plan);
TaskList evaluation_tasks(const UnitGraph& graph, const Plan& plan);

}  // namespace spillway
