#include "memory/passes/task_objects.h"

#include <utility>

namespace spillway {

TaskObjects::TaskObjects(const UnitGraph& graph, const Plan& plan, Purpose purpose, std::vector<Object>& objects)
    : graph_(graph), plan_(plan), choices_(plan.choices), purpose_(purpose), objects_(objects) {
  weight_object_.assign(graph.blocks.size(), -1);
  reduced_object_.assign(graph.blocks.size(), -1);
  rounded_object_.assign(graph.blocks.size(), -1);
  gradient_objects_.resize(graph.blocks.size());
  value_object_.assign(graph.values.size() * static_cast<std::size_t>(strips_of(choices_)), -1);
  resident_object_.assign(plan.resident.size(), -1);
  producer_.assign(graph.values.size(), -1);
  for (int unit = static_cast<int>(graph.units.size()) - 1; unit >= 0; --unit) {
    for (const ValueUse& wanted : graph.units[unit].forward) {
      if (wanted.access != Access::read) producer_[wanted.value] = unit;
    }
  }
}

int TaskObjects::add(Object object) {
  objects_.push_back(std::move(object));
  return static_cast<int>(objects_.size()) - 1;
}

int TaskObjects::state(int block, const RestingArray& array, std::int64_t begin, std::int64_t elements) {
  return add({.name = {graph_.blocks[block].name, suffix_of(array.kind)},
              .category = category_of(array.kind),
              .staged_category = Category::staging,
              .kind = array.kind,
              .home = plan_.resident[array.buffer].tier,
              .bytes = elements * array.each(),
              .block = block,
              .lasts = kAlways,
              .home_buffer = array.buffer,
              .home_begin = begin * array.each()});
}

int TaskObjects::weight(int block) {
  int& object = weight_object_[block];
  if (object < 0)
    object = state(block, plan_.blocks[block].weight(), 0,
                   elements_at_rest(choices_.sharding, graph_.blocks[block], StateKind::weight));
  return object;
}

int TaskObjects::gradient(int block, int use) {
  auto& objects = gradient_objects_[block];
  while (static_cast<int>(objects.size()) <= use) {
    const int index = static_cast<int>(objects.size());
    const bool waits_as_is = index == 0 && choices_.form != StateForm::compact && !choices_.sharding.shards_optimizer();
    Object object{.name = {graph_.blocks[block].name, index == 0 ? ".gradient" : ".gradient_of_second_use"},
                  .category = Category::gradients,
                  .staged_category = Category::gradients,
                  .home = choices_.blocks[block].gradient,
                  .bytes = graph_.blocks[block].elements * 4,
                  .block = block};
    if (waits_as_is) place_waiting_gradient(block, object);
    place_sum(block, objects.size(), object);
    objects.push_back(add(std::move(object)));
  }
  return objects[use];
}

int TaskObjects::reduced_gradient(int block) {
  if (!choices_.sharding.shards_optimizer()) return gradient(block, 0);
  int& reduced = reduced_object_[block];
  if (reduced < 0) {
    Object object{.name = {graph_.blocks[block].name, ".reduced_gradient"},
                  .category = Category::gradients,
                  .staged_category = Category::gradients,
                  .home = choices_.blocks[block].gradient,
                  .bytes = waiting_elements(choices_.sharding, graph_.blocks[block]) * 4,
                  .block = block};
    if (choices_.form != StateForm::compact) place_waiting_gradient(block, object);
    reduced = add(std::move(object));
  }
  return reduced;
}

int TaskObjects::gradient_for_update(int block) {
  if (choices_.form != StateForm::compact) return reduced_gradient(block);
  int& rounded = rounded_object_[block];
  if (rounded < 0) {
    Object object{.name = {graph_.blocks[block].name, ".rounded_gradient"},
                  .category = Category::gradients,
                  .staged_category = Category::gradients,
                  .home = choices_.blocks[block].gradient,
                  .bytes = waiting_elements(choices_.sharding, graph_.blocks[block]) * 2,
                  .block = block};
    place_waiting_gradient(block, object);
    rounded = add(std::move(object));
  }
  return rounded;
}

int TaskObjects::piece_that_waited(int block, std::int64_t begin, std::int64_t elements) {
  const Bytes each = gradient_bytes_per_element(choices_.form);
  return add({.name = {graph_.blocks[block].name, ".waiting_gradient"},
              .category = Category::gradients,
              .staged_category = Category::staging,
              .home = choices_.blocks[block].gradient,
              .bytes = elements * each,
              .block = block,
              .lasts = kAlways,
              .home_buffer = plan_.blocks[block].waiting_gradient,
              .home_begin = begin * each});
}

void TaskObjects::place_waiting_gradient(int block, Object& object) const {
  const int resident = plan_.blocks[block].waiting_gradient;
  if (resident < 0) return;
  object.lasts = kAlways;  // this step writes it; the next one reads it in pieces (piece_that_waited)
  object.home_buffer = resident;
}

// Each turn goes on with the sum of the one before; after the last turn the sum is used up.
void TaskObjects::place_sum(int block, std::size_t use, Object& object) const {
  const std::vector<int>& sums = plan_.blocks[block].sums;
  if (sums.empty() || object.home_buffer >= 0) return;
  object.lasts = kEveryTurn & ~kLastTurn;
  object.home_buffer = sums[use];
}

int TaskObjects::value(int index, const Strip& strip) {
  int& object = value_object_[static_cast<std::size_t>(index * strips_of(choices_) + strip.first / choices_.strip)];
  if (object >= 0) return object;
  const int producer = producer_[index];
  Tier home = Tier::device;
  if (producer >= 0 && purpose_ == Purpose::training) {
    const bool is_saved = graph_.units[producer].saves(index);
    if (is_saved ? choices_.units[producer].saved == Saved::spill : choices_.units[producer].boundary == Boundary::spill)
      home = choices_.units[producer].spill;
  }
  const Bytes bytes = graph_.values[index].bytes;
  object = add({.name = {graph_.values[index].name},
                .category = Category::activations,
                .staged_category = Category::staging,
                .home = home,
                .bytes = strip.count == 1 ? bytes : strip.count * strip_stride(bytes),
                .unit = producer,
                .micro_batch = strip.first});
  if (graph_.values[index].lasts) {
    objects_.back().lasts = kAlways;
    objects_.back().home_buffer = plan_.value_buffer[index];
  }
  return object;
}

int TaskObjects::resident(int buffer) {
  int& object = resident_object_[buffer];
  if (object < 0) {
    object = add({.name = plan_.resident[buffer].name,
                  .home = plan_.resident[buffer].tier,
                  .bytes = plan_.resident[buffer].bytes,
                  .lasts = kAlways,
                  .home_buffer = buffer});
  }
  return object;
}

}  // namespace spillway
