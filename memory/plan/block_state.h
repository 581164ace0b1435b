// The state of a block: a list of arrays, which belongs to the block and not to the plan. Code that goes through arrays, or sums
// their bytes, goes through this list. Not here: where they rest (choices.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "memory/base/types.h"
#include "memory/plan/choice_names.h"
#include "memory/plan/sharding.h"
#include "memory/plan/unit.h"

namespace spillway {

enum class StateKind : std::uint8_t { weight, low, m, v, master };
inline constexpr int kStateKinds = 5;
// The suffix of a buffer's name behind the block's: ".weight".
constexpr std::string_view suffix_of(StateKind kind) {
  constexpr std::string_view names[kStateKinds] = {".weight", ".low", ".m", ".v", ".master"};
  return names[static_cast<int>(kind)];
}
// The name that a block's array has in a checkpoint and in a commit record: "layer 3 mlp/low".
inline std::string state_array_name(const ParameterBlock& block, StateKind kind) {
  return std::string(block.name).append("/").append(suffix_of(kind).substr(1));
}
constexpr Category category_of(StateKind kind) { return kind == StateKind::weight ? Category::parameters : Category::optimizer; }

struct StateArray {
  StateKind kind = StateKind::weight;
  DType type = DType::bfloat16;                           // of low only the size counts: it has the bits that bf16 lacks of fp32
  constexpr Bytes each() const { return size_of(type); }  // bytes an element
};

// The weight is the first of every list.
using StateList = std::span<const StateArray>;
inline constexpr StateArray kExactState[] = {{StateKind::weight, DType::bfloat16},
                                             {StateKind::low, DType::bfloat16},
                                             {StateKind::m, DType::float32},
                                             {StateKind::v, DType::float32}};
inline constexpr StateArray kCompactState[] = {{StateKind::weight, DType::bfloat16},
                                               {StateKind::low, DType::bfloat16},
                                               {StateKind::m, DType::bfloat16},
                                               {StateKind::v, DType::bfloat16}};
inline constexpr StateArray kFp32State[] = {
    {StateKind::weight, DType::float32}, {StateKind::m, DType::float32}, {StateKind::v, DType::float32}};
// The weight is the rounded master (finite_float16()).
inline constexpr StateArray kFp16State[] = {{StateKind::weight, DType::float16},
                                            {StateKind::master, DType::float32},
                                            {StateKind::m, DType::float32},
                                            {StateKind::v, DType::float32}};

// The arrays of a block that is trained; of a frozen one: the weight alone.
constexpr StateList trained_state(StateForm form) {
  constexpr StateList lists[] = {kExactState, kCompactState, kFp32State, kFp16State};
  return lists[static_cast<int>(form)];
}
constexpr StateList state_of(const ParameterBlock& block, StateForm form) {
  return block.frozen ? trained_state(form).first(1) : trained_state(form);
}

// Bytes an element of all arrays together.
constexpr Bytes bytes_per_element(StateList state) {
  Bytes sum = 0;
  for (const StateArray& array : state) sum += array.each();
  return sum;
}
// True where gradients may overflow, so that no update may begin before all of them are known.
constexpr bool may_overflow(StateForm form) { return form == StateForm::fp16; }
// Bytes an element of a gradient that waits for its update: in compact form it is rounded to bf16.
constexpr Bytes gradient_bytes_per_element(StateForm form) { return form == StateForm::compact ? 2 : 4; }

// The elements of a block's array that rest on a rank.
inline Shard shard_at_rest(const Sharding& sharding, const ParameterBlock& block, StateKind kind, int rank) {
  const bool sharded = kind == StateKind::weight ? sharding.shards_weights() : sharding.shards_optimizer();
  return sharded ? part_of(block.elements, sharding, rank) : Shard{0, block.elements};
}
// Elements that a rank has room for, of an array and of a gradient that waits for its update: those of the longest part.
inline std::int64_t elements_at_rest(const Sharding& sharding, const ParameterBlock& block, StateKind kind) {
  return shard_at_rest(sharding, block, kind, 0).elements;
}
inline std::int64_t waiting_elements(const Sharding& sharding, const ParameterBlock& block) {
  if (block.frozen) return 0;
  return sharding.shards_optimizer() ? shard_elements(block.elements, sharding) : block.elements;
}
inline Bytes bytes_at_rest(const Sharding& sharding, const ParameterBlock& block, StateForm form) {  // of all its arrays
  Bytes sum = 0;
  for (const StateArray& array : state_of(block, form)) sum += elements_at_rest(sharding, block, array.kind) * array.each();
  return sum;
}

}  // namespace spillway
