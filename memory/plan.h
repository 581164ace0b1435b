// The compiled training step: operations in issue order, and a fixed place for every byte on every tier.
// The planner makes it, the simulator predicts it, the executor runs it; a Plan is data and does nothing by itself.
// Not here: how it is found (search/planner.h) or built (passes/schedule.h), what the operations compute (models/).
//
// Legend: V vocabulary, N tokens of a step.
//
// Protocol. A lane runs its operations in program order, one after the other; an NVMe lane has up to kMovesUnderWay under way,
// so that the drive is busy across their borders, and completes them in order. An operation starts when every operation in its
// `waits` is complete. Waits are derived from the bytes that operations access (passes/waits.h), never written by hand. When one
// operation writes a byte that another touches, the two are always ordered, within a step and from one step to the next.
#pragma once

#include <algorithm>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "memory/block_state.h"
#include "memory/chain.h"
#include "memory/choice_names.h"
#include "memory/control_words.h"
#include "memory/sharding.h"
#include "memory/square_tree.h"
#include "memory/types.h"
#include "memory/unit.h"

namespace spillway {

// --- Buffers --------------------------------------------------------------------------------------------------------------

// The name of a buffer in two parts, which are put together only where somebody reads it: a search makes some hundred thousand
// buffers whose names nobody asks for.
struct BufferName {
  std::string_view whose;      // name of a block or value in the graph, which outlives its plans; or the whole name
  std::string_view what = {};  // ".weight"
  std::string text() const { return std::string(whose).append(what); }
};

// A named reservation of bytes on a tier. Resident buffers live as long as the executor; others live in one program, from the
// first to the last operation that touches them.
struct Buffer {
  BufferName name;
  Category category = Category::staging;
  Tier tier = Tier::device;
  Bytes bytes = 0;   // of one slot
  Bytes offset = 0;  // within the tier's arena or store
  int slots = 1;     // 2: new state on NVMe is written beside the state that it replaces (slot s at offset + s * bytes)
  int first_op = -1, last_op = -1;
  bool resident = false;
  // True: packed from the top of the tier down, the others from the bottom up. These buffers are apart: those that no operation
  // of the compute lane touches, so that compute hardly ever waits for a move of optimizer state to leave the bytes that it
  // writes next; and gradients that last long, which would lie above everything that a backward frees.
  bool apart = false;
};

// --- Operations -----------------------------------------------------------------------------------------------------------

enum class OpKind : std::uint8_t {
  move,  // from a tier to its neighbour, on the lane of the link between them
  forward,
  backward,         // where saved values are not kept, the forward runs again before it, and the forward's values come first
  loss,             // sums the micro-batches' losses; a loss that is not finite stops all updates of the step
  gradient_add,     // sum += addend (a tensor used twice)
  gradient_finish,  // after the last micro-batch: rounds to bf16 in compact form, then sums the squares of the result
                    // (see squares_with_update)
  norm,             // global norm and clip factor from the sums
  update,           // optimizer on elements [element_begin, element_end) of a block, or of this rank's part of it
  gather,           // every rank's part of an array -> the whole array, on every rank
  reduce,           // sums over ranks: the whole -> this rank's part of the sum (or the whole sum, in place)
  commit,           // makes durable the state that the step before left: once its updates are written, before any is written over
};

// A set of turns of a step, by their kind. The only turn of a step of one turn is both first and last. An operation names the
// turns that it is in. A run says which one it is going through (Run::set_of), and passes over operations that are not in it
// (LaneRunner::skipped):
//
//   in                           of a step                        a run for itself   for example
//   kEveryTurn                   each turn                        -                  passes, and moves for them alone
//   kWaitingUpdates              the same                         flush              their updates, and moves for them alone
//   kAlways                      each turn                        flush              what is fetched for both: a weight
//   kAfterFirst                  all but the first                -                  reads of sums of the turn before
//   kLastTurn                    the last of several (of one:     -                  gradient_finish, norm, updates of this step
//                                kEveryTurn)
//   kFirstTurn | kCommitAlone    the first                        commit alone       the commit
using TurnSet = std::uint8_t;
inline constexpr TurnSet kWaitingTurn = 1;  // the first, where the previous step left gradients whose update runs in this one
inline constexpr TurnSet kFirstTurn = 2 | kWaitingTurn, kMiddleTurns = 4, kLastTurn = 8, kAfterFirst = kMiddleTurns | kLastTurn,
                         kEveryTurn = kFirstTurn | kAfterFirst;
// These are no turns of a step: a run goes through the program for waiting updates alone (a flush), or for a commit alone.
inline constexpr TurnSet kFlush = 16, kCommitAlone = 32, kWaitingUpdates = kWaitingTurn | kFlush, kAlways = kEveryTurn | kFlush;
constexpr TurnSet turn_set(int turn, int turns, bool updates_wait) {
  const int first = turn > 0 ? 0 : updates_wait ? kFirstTurn : kFirstTurn & ~kWaitingTurn;
  const int last = turn + 1 == turns ? kLastTurn : 0;
  return static_cast<TurnSet>(first + last > 0 ? first | last : kMiddleTurns);
}
// How often a step runs an operation of these turns, where updates wait. A program of one turn has no kAfterFirst.
constexpr int times_in(TurnSet when, int turns) {
  if (turns == 1) return 1;
  return ((when & kFirstTurn) != 0 ? 1 : 0) + ((when & kMiddleTurns) != 0 ? turns - 2 : 0) + ((when & kLastTurn) != 0 ? 1 : 0);
}

// The role of an operand in its operation. Passes have lists of values, weights and gradients, in the order in which their unit
// names them; moves have pairs of from and to. An operation has one operand of each other role, except squares and state, which
// are told apart by block and kind.
enum class Role : std::uint8_t {
  value,
  weights,
  gradient,
  workspace,
  losses,  // MicroBatchWords [micro_batches]
  from,
  to,
  part,  // this rank's part in a collective
  whole,
  state,
  sum,           // a block's gradient in fp32
  addend,        // the gradient that is added to the sum
  waiting,       // a block's gradient as its update takes it, for which it may wait; in compact form it is rounded
  squares,       // sums of squares, of a block or of all blocks
  open_squares,  // open nodes of the tree of a block whose updates take its squares
  loss,          // the step's loss, only to be waited for: no update begins before it; its value is in the step's control block
  factor,        // the norm and the clip factor
};
inline constexpr int kRoles = static_cast<int>(Role::factor) + 1;

// The version of state on NVMe that an operand means: before or after the updates of this program, which are its own step's or
// those that waited. The run says which slot has which version in a turn (Run::slot_before_in, slot_after_in); behind the turn
// that updates, both are in one slot. Gradients and activations have one version.
enum class Version : std::uint8_t { before, after };

struct Operand {
  Role role = Role::to;
  Access access = Access::read;
  StateKind kind = StateKind::weight;  // where it is state
  Version version = Version::before;   // of state on NVMe
  int buffer = -1;                     // index into Plan::resident, from its size on into Program::buffers; -1: null
  Bytes begin = 0, bytes = 0;          // range within the buffer
};

// The most operations of an NVMe lane that have started and are not complete.
inline constexpr int kMovesUnderWay = 8;

struct Wait {
  int op = -1;
  int turn = 0;  // 0: in this turn; -1: in the turn before, which may be the last one of the step before
};

// An operation has a few of each, and a plan very many operations: those that the scheduler makes lie in Program::room.
using Operands = std::pmr::vector<Operand>;
using Waits = std::pmr::vector<Wait>;

// Micro-batches of a turn: `count` of them from `first` on.
struct Strip {
  int first = 0, count = 1;
};

// An operation without its operands and waits.
struct OpHead {
  OpKind kind = OpKind::move;
  Lane lane = Lane::compute;
  TurnSet when = kEveryTurn;
  int unit = -1, block = -1;
  Strip strip{.first = -1};                         // the micro-batches that it is for; first -1: for none in particular
  std::int64_t element_begin = 0, element_end = 0;  // update: range of the block
  Work work;                                        // compute and update lanes
  Bytes bytes = 0;                                  // bytes that it moves
};

// "read", "forward"
std::string_view name_of(const OpHead& op);

struct Op : OpHead {
  Operands operands{};
  Waits waits{};
};

// True when the operation applies the gradients that the step before left, with that step's factor and learning rate, or moves
// bytes for that. `when` says in which runs it has something to do.
constexpr bool applies_waiting_step(const OpHead& op) { return op.when == kWaitingUpdates; }

struct Program {
  Program() = default;
  Program(Program&&) noexcept = default;
  Program(const Program& other) : ops(other.ops), buffers(other.buffers) {}
  Program& operator=(Program other) noexcept {
    room.swap(other.room), ops.swap(other.ops), buffers.swap(other.buffers);
    return *this;
  }

  std::unique_ptr<std::pmr::monotonic_buffer_resource> room{};  // memory of operands and waits; null: each has its own
  std::vector<Op> ops;                                          // an operation's id is its index
  std::vector<Buffer> buffers;                                  // not resident
};

// --- Choices --------------------------------------------------------------------------------------------------------------

// The tiers on which a block's arrays rest between the operations that use them.
struct BlockPlace {
  Tier weight = Tier::device;
  Tier optimizer = Tier::device;  // low, m, v
  Tier gradient = Tier::device;   // while it waits for its update, or for the next micro-batch
  // yes, where updates run in the backward: this block's waits for the next forward instead. A drive that is busy all through the
  // backward has little to do in a forward that only reads weights. Not for blocks that are looked up, whose gradients come last
  // and whose weights are wanted first.
  Deferred deferred = Deferred::no;
  bool operator==(const BlockPlace&) const = default;
};

// The treatment of values that a unit writes in the forward, until its backward.
struct UnitPlace {
  Saved saved = Saved::keep;
  Boundary boundary = Boundary::keep;  // values that it hands to the next unit
  Tier spill = Tier::nvme;             // tier that spilled values go to
  bool operator==(const UnitPlace&) const = default;
};

// Set one member of all places, and count the places where it has a value.
template <typename Place, typename T>
void set_all(std::vector<Place>& places, T Place::* member, std::type_identity_t<T> value) {
  for (Place& place : places) place.*member = value;
}
template <typename Place, typename T>
std::ptrdiff_t count_of(const std::vector<Place>& places, T Place::* member, std::type_identity_t<T> value) {
  return std::ranges::count(places, value, member);
}

struct Choices {
  int graph = 0;  // index into the candidates given to the planner (head tiled or fused)
  Chain chain = Chain::device_nvme;
  UpdateTime update = UpdateTime::after;
  // The tier where the optimizer runs, host or device: gradients and state come there. Both give the same bits. Without a host
  // between device and NVMe: the device.
  Tier update_tier = Tier::device;
  int micro_batches = 1;
  // Micro-batches that go through all units together, one turn: a divisor of `micro_batches`. 1 is horizontal order, all of them
  // are vertical order.
  int group = 1;
  int strip = 1;              // micro-batches of a group that one operation computes or moves; the last strip may have fewer
  bool clip = true;           // the global norm scales the update
  bool gives_logits = false;  // evaluation is asked for the logits of a row, too
  StateForm form = StateForm::exact;
  Sharding sharding;
  int slots = 1;  // places of state on NVMe: 1 or 2
  // Steps from one durable step to the next, where steps can be durable (makes_durable()); 0: none is.
  std::int64_t durable_every = 0;
  // Bytes of a tier that are kept for reading ahead and writing behind (passes/reach.h). 0: nothing is read ahead, and the pieces
  // of an update are not dealt out among tasks before it is due.
  Bytes ahead = 0;
  std::int64_t update_chunk = 2 << 20;  // elements of a block that one update takes where the state rests elsewhere
  std::vector<BlockPlace> blocks;       // [blocks of the graph]
  std::vector<UnitPlace> units;         // [units of the graph]

  bool operator==(const Choices&) const = default;
};

// Turns of a step; strips of a group, which are a unit's operations of one pass in each turn.
constexpr int turns_of(const Choices& choices) { return choices.micro_batches / choices.group; }
constexpr int strips_of(const Choices& choices) { return (choices.group + choices.strip - 1) / choices.strip; }
constexpr Strip strip_from(const Choices& choices, int first) { return {first, std::min(choices.strip, choices.group - first)}; }
// Sets the group, cut into at most so many strips.
inline constexpr int kMostStrips = 8;
inline void set_group(Choices& choices, int group, int most_strips = kMostStrips) {
  choices.group = group;
  choices.strip = (group + most_strips - 1) / most_strips;
}
// "horizontal", "vertical", "groups of 8"
std::string order_words(const Choices& choices);
// Bytes from one micro-batch's array of a strip to the next one's.
constexpr Bytes strip_stride(Bytes bytes) { return round_up(bytes, 64); }

// Turns whose times are kept: all up to three; of more, the first, the third and the last.
inline constexpr int kShownTurns = 3;
constexpr int shown_turns(int turns) { return std::min(turns, kShownTurns); }
constexpr int shown_turn(int index, int turns) { return turns <= kShownTurns ? index : index < 2 ? 2 * index : turns - 1; }

// True when updates run before the norm that scales them is known. Where the norm disagrees they are taken back, and the step is
// run again.
constexpr bool speculates(UpdateTime update, bool clip) { return update == UpdateTime::in_backward && clip; }
inline bool speculates(const Choices& choices) { return speculates(choices.update, choices.clip); }

// The lane that adds up, squares and rounds gradients, on the device that makes them, whoever updates. A device with memory of
// its own does it between passes on its compute lane; the CPU does it beside passes on the update lane.
constexpr Lane lane_of_gradients(Chain chain) { return has_host(chain) ? Lane::compute : Lane::update; }
inline Lane lane_of_updates(const Choices& choices) {
  return choices.update_tier == Tier::device ? lane_of_gradients(choices.chain) : Lane::update;
}

// True where updates run on memory that the host may read: they hash the state that they take and leave
// (offload/update_hashes.h). Elsewhere the lanes of NVMe hash what they move.
inline bool updates_see_state(const Choices& choices) { return !has_host(choices.chain) || choices.update_tier == Tier::host; }

// True when a unit's saved values last from its forward to its backward. In an evaluation, which has no backward, none do.
inline bool keeps_saved(const Choices& choices, int unit, bool evaluates) {
  return !evaluates && choices.units[static_cast<std::size_t>(unit)].saved != Saved::recompute;
}

// True when the unit's forward runs again right before its backward, for the saved values alone.
inline bool recomputes(const UnitGraph& graph, const Choices& choices, int unit) {
  const Unit& of = graph.units[static_cast<std::size_t>(unit)];
  return !keeps_saved(choices, unit, false) && !of.saved.empty() && of.saved_piece == 0;
}

// True when gradients wait for the next step: all of them, a block's, any.
constexpr bool defers_all(const Choices& choices) { return choices.update == UpdateTime::in_next_forward; }
inline bool defers(const Choices& choices, int block) {
  return defers_all(choices) || choices.blocks[static_cast<std::size_t>(block)].deferred == Deferred::yes;
}
inline bool defers_any(const Choices& choices) {
  return defers_all(choices) || count_of(choices.blocks, &BlockPlace::deferred, Deferred::yes) > 0;
}
// True when choices like these may have `deferred` blocks: the factor of an update must be known without the norm, and no step's
// state may have to be durable, as that of a step with deferred blocks is whole only in the next one.
constexpr bool may_defer_blocks(UpdateTime update, bool clip, int slots) {
  return update == UpdateTime::in_backward && !clip && slots == 1;
}

// The value of Choices::durable_every where nobody fixed it: each step is durable where that takes no copies; else durable steps
// are so rare that commits take no share of a step.
inline constexpr std::int64_t kSeldom = 1 << 20;
// Commits a step, on average.
constexpr double share_of_commits(const Choices& choices, const OpHead& commit) {
  if (choices.durable_every < kSeldom) return 1 / static_cast<double>(choices.durable_every);
  return commit.bytes > 0 ? 0 : 1;
}
// Average bytes that an operation moves in a step; a step has a share of the copies of a commit.
inline double bytes_a_step(const Choices& choices, const OpHead& op) {
  return static_cast<double>(op.bytes) * (op.kind == OpKind::commit ? share_of_commits(choices, op) : 1);
}

// True when a step has a commit: updates then leave the state of the step before untouched on NVMe, and write over it only in
// memory, which a commit copies.
bool makes_durable(const Choices& choices);

// True when a block's updates also sum the squares of its gradient, each stretch right before they use it: with a gradient_finish
// before them memory would be read twice. False where updates do not follow in the backward, where gradients are rounded or added
// up over ranks, where state has two slots (updates hash it), and where a device with memory of its own makes gradients.
bool squares_with_update(const Choices& choices, int block);

// The most bytes of weights that a unit takes; units that look up rows do not count.
Bytes largest_weights(const UnitGraph& graph, StateForm form);

// [blocks + 1] index of each block's first word in Plan::norm_buffer; last, that of the open nodes, kSquareNodesFromBegin words.
// A block has one word, its sum of squares; a frozen block has none. Where ranks have parts of blocks, a block has a word for
// each node of its tree that a part consists of; the nodes of all ranks make the sum. Open nodes are those of the block whose
// updates take its squares, from one of its updates to the next.
std::vector<std::int64_t> norm_words(const UnitGraph& graph, const Choices& choices);

// The resident buffers of a block, as indices into Plan::resident.
struct RestingArray : StateArray {
  int buffer = -1;
};
struct BlockBuffers {
  std::vector<RestingArray> state;  // all arrays of the block's list; in a plan that only evaluates, the weight
  int waiting_gradient = -1;        // -1: the gradient lives within a step
  // [users of the block] the gradient sum of each, from turn to turn; empty where a step is one turn. Where gradients are neither
  // rounded nor sharded, the first is the waiting gradient itself, if there is one.
  std::vector<int> sums;

  const RestingArray& weight() const { return state.front(); }
  // Null where there is none.
  const RestingArray* find(StateKind kind) const {
    const auto found = std::ranges::find(state, kind, &RestingArray::kind);
    return found == state.end() ? nullptr : &*found;
  }
};

struct Plan {
  Choices choices;
  std::vector<Buffer> resident;
  std::vector<BlockBuffers> blocks;
  // Buffers of control words, resident on the device tier.
  int loss_buffer = -1;                   // MicroBatchWords [micro_batches]; a double to wait for the loss by (control_words.h)
  int norm_buffer = -1;                   // double: sums of squares, as norm_words() says
  int factor_buffer = -1;                 // double [2]: global norm, clip factor
  int token_buffer = -1;                  // int32 [2, 2, micro_batches, n]: inputs and targets of this step and the next
  int constant_buffer = -1;               // UnitGraph::constant_bytes; -1 where there are none
  int logits_buffer = -1;                 // float [V]: the logits of one row; -1 where nobody asks for them
  std::vector<int> value_buffer;          // [values of the graph] its resident buffer where it lasts, else -1
  Program step;                           // one turn of a training step
  Program evaluate;                       // forward of one micro-batch; its units are those of the graph with a tiled head
  By<Tier, Bytes> peak;                   // exact bytes of each tier's arena or store
  By<Tier, By<Category, Bytes>> at_rest;  // of `peak`, by category at the moment of the peak
};

const Buffer& buffer_of(const Plan& plan, const Program& program, int index);

// The operation, and the turn, of one of a timeline's spans.
struct OpInTurn {
  const Op& op;
  int turn = 0;
};
inline OpInTurn op_of_span(const Plan& plan, std::size_t span) {
  const std::size_t ops = plan.step.ops.size();
  return {plan.step.ops[span % ops], shown_turn(static_cast<int>(span / ops), turns_of(plan.choices))};
}

}  // namespace spillway
