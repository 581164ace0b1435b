#include "memory/passes/task_writer.h"

#include "memory/base/error.h"

namespace spillway {
namespace {

std::vector<Strip> strips_of_turn(const Choices& choices) {
  std::vector<Strip> strips;
  for (int first = 0; first < choices.group; first += choices.strip) strips.push_back(strip_from(choices, first));
  return strips;
}

}  // namespace

TaskWriter::TaskWriter(const UnitGraph& of_graph, const Plan& of_plan, Purpose of_purpose)
    : graph(of_graph),
      plan(of_plan),
      choices(of_plan.choices),
      purpose(of_purpose),
      strips(strips_of_turn(choices)),
      last_turn(turns_of(choices) > 1 ? kLastTurn : kEveryTurn),
      objects_(graph, plan, purpose, list_.objects),
      gradient_users_(graph.blocks.size()) {
  // The backward runs units from the last to the first: the first use of a gradient is that of the last unit.
  for (int unit = units() - 1; unit >= 0; --unit) {
    for (const int block : graph.units[unit].gradient_blocks) gradient_users_[block].push_back(unit);
  }
}

Task& TaskWriter::add(OpKind kind, Lane lane, Tier at) {
  Task& task = list_.tasks.emplace_back();
  task.op.kind = kind;
  task.op.lane = lane;
  task.at = at;
  task.phase = phase;
  task.first_operand = static_cast<int>(list_.operands.size());
  return task;
}

TaskOperand& TaskWriter::take(Task& task, const TaskOperand& operand) {
  SPILLWAY_CHECK(&task == &list_.tasks.back(), "a task of {} gets an operand after the next was added", name_of(task.op));
  list_.operands.push_back(operand);
  list_.operands.back().at = task.at;
  ++task.operand_count;
  return list_.operands.back();
}

TaskOperand& TaskWriter::use(Task& task, Role role, Access access, int object, Bytes begin, Bytes bytes) {
  return take(
      task,
      {.role = role, .access = access, .kind = this->object(object).kind, .object = object, .begin = begin, .bytes = bytes});
}

TaskOperand& TaskWriter::use(Task& task, Role role, Access access, int object) {
  return use(task, role, access, object, 0, this->object(object).bytes);
}

TaskOperand& TaskWriter::words(Task& task, Role role, Access access, int buffer, Bytes begin, Bytes bytes) {
  return use(task, role, access, objects_.resident(buffer), begin, bytes);
}

TaskOperand& TaskWriter::at_rest(Task& task, Role role, Access access, int buffer, Bytes begin, Bytes bytes) {
  TaskOperand& operand = use(task, role, access, objects_.resident(buffer), begin, bytes);
  operand.at = plan.resident[buffer].tier;
  return operand;
}

TaskOperand& TaskWriter::at_rest(Task& task, Role role, Access access, int buffer) {
  return at_rest(task, role, access, buffer, 0, plan.resident[buffer].bytes);
}

}  // namespace spillway
