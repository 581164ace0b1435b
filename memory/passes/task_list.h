// The first pass of the schedule lists the tasks: what is computed, in which order, on which objects. The order alone fixes the
// numbers; later passes decide where objects are and when they move (residency.h, moves.h), and cannot change them.
// Forward and backward are written by task_list.cpp, updates by update_tasks.h, collectives by network_tasks.h, all by means of
// task_writer.h.
#pragma once

#include "memory/passes/tasks.h"

namespace spillway {

TaskList step_tasks(const UnitGraph& graph, const Plan& plan);
TaskList evaluation_tasks(const UnitGraph& graph, const Plan& plan);

}  // namespace spillway
