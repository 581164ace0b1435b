// The compiled training step: operations in issue order, and a fixed place for every byte on every tier.
// The planner makes it, the simulator predicts it, the executor runs it; a Plan is data and does nothing by itself.
// Not here: how it is found (search/planner.h) or built (passes/schedule.h), what the operations compute (models/).
//
// Legend: V vocabulary, N tokens of a step.
//
// Protocol. A lane runs its operations in program order, one after the other; an NVMe lane has up to kMovesUnderWay under way,
// so that the drive is busy across their borders, and completes them in order. An operation starts when every operation in its
// `waits` is complete. Waits are derived from what operations access (passes/waits.h), never written by hand: two operations of
// which one writes a byte that the other touches are always ordered, within a step and from one step to the next.
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

// Names are put together where somebody reads them: a search makes some hundred thousand buffers
// that nobody asks for their names.
struct BufferName {
  std::string_view whose;      // of a block or value, in the graph, which outlives its plans; or all of the name
  std::string_view what = {};  // ".weight"
  std::string text() const { return std::string(whose).append(what); }
};

// A named reservation on a tier. Resident buffers live as long as the executor; others live in one program, from the first to the
// last operation that touches them.
struct Buffer {
  BufferName name;
  Category category = Category::staging;
  Tier tier = Tier::device;
  Bytes bytes = 0;   // of one slot
  Bytes offset = 0;  // within the tier's arena or store
  int slots = 1;     // 2: state on NVMe is written beside the state it replaces (slot s at offset + s * bytes)
  int first_op = -1, last_op = -1;
  bool resident = false;
  // Packed from the top down, the others from the bottom up: what no operation of the compute lane touches, so that compute
  // hardly ever waits for a move of optimizer state to leave the bytes that it writes next; and gradients that last long, which
  // would lie above all that a backward frees.
  bool apart = false;
};

// --- Operations -----------------------------------------------------------------------------------------------------------

enum class OpKind : std::uint8_t {
  move,  // from a tier to its neighbour, on the lane of the link between them
  forward,
  backward,         // where saved values are not kept, those of the forward come before its own: it runs again
  loss,             // sums the micro-batches' losses; a loss that is not finite stops all updates of the step
  gradient_add,     // sum += addend (a tensor used twice)
  gradient_finish,  // after the last micro-batch: in compact form rounds to bf16; sums of squares of what is then there
                    // (see squares_with_update)
  norm,             // global norm and clip factor from the sums
  update,           // optimizer on elements [element_begin, element_end) of a block, or of this rank's part of it
  gather,           // of an array, every rank's part -> all of it, on every rank
  reduce,           // sums over ranks: the whole -> this rank's part of the sum (or the whole sum, in place)
  commit,  // makes the state durable as the step before has left it: once its updates are written, before any is written over
};

// Turns of a step, by what they are. A step of one turn has one that is both the first and the last. An operation names those
// that it is in, a run says which it is going through (Run::set_of), and passes over what is not in it (LaneRunner::skipped):
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
// Nor are these of a step: the program is gone through for the updates that wait alone, or for a commit alone.
inline constexpr TurnSet kFlush = 16, kCommitAlone = 32, kWaitingUpdates = kWaitingTurn | kFlush, kAlways = kEveryTurn | kFlush;
constexpr TurnSet turn_set(int turn, int turns, bool updates_wait) {
  const int first = turn > 0 ? 0 : updates_wait ? kFirstTurn : kFirstTurn & ~kWaitingTurn;
  const int last = turn + 1 == turns ? kLastTurn : 0;
  return static_cast<TurnSet>(first + last > 0 ? first | last : kMiddleTurns);
}
// How often a step does what is done in these turns, with updates that wait. A program of one turn has no kAfterFirst.
constexpr int times_in(TurnSet when, int turns) {
  if (turns == 1) return 1;
  return ((when & kFirstTurn) != 0 ? 1 : 0) + ((when & kMiddleTurns) != 0 ? turns - 2 : 0) + ((when & kLastTurn) != 0 ? 1 : 0);
}

// What an operand is to its operation. Passes have lists of values, weights and gradients, in the order in which their unit names
// them; moves have pairs; of the others an operation has one, but of squares and state, which are told apart by block and kind.
enum class Role : std::uint8_t {
  value,
  weights,
  gradient,
  workspace,
  losses,  // MicroBatchWords [micro_batches]
  from,
  to,
  part,  // of a collective: this rank's
  whole,
  state,
  sum,           // fp32: of a block's gradient
  addend,        // what is added to it
  waiting,       // a block's gradient as its update takes it, which may wait for that; in compact form it is rounded
  squares,       // sums of them: of a block, or of all
  open_squares,  // of the block whose updates take its squares: open nodes of its tree
  loss,          // of the step, without which no update begins: a wait; what it said is in the step's control block
  factor,        // the norm and the clip factor
};
inline constexpr int kRoles = static_cast<int>(Role::factor) + 1;

// Which version of state on NVMe an operand means: that before the updates of this program, its own step's or those that waited,
// or that after them. In which slot each is in a turn, the run says (Run::slot_before_in, slot_after_in): behind the turn that
// updates, both are in one. Gradients and activations have one version.
enum class Version : std::uint8_t { before, after };

struct Operand {
  Role role = Role::to;
  Access access = Access::read;
  StateKind kind = StateKind::weight;  // of state
  Version version = Version::before;   // of state on NVMe
  int buffer = -1;                     // of Plan::resident, and from its size on of Program::buffers; -1: null
  Bytes begin = 0, bytes = 0;          // range within the buffer
};

// Operations of an NVMe lane that have started and are not complete, at most.
inline constexpr int kMovesUnderWay = 8;

struct Wait {
  int op = -1;
  int turn = 0;  // 0: of this turn; -1: of the turn before, or of the last one of the step before
};

// An operation has a few of each, and a plan very many operations: what the scheduler makes lies in Program::room.
using Operands = std::pmr::vector<Operand>;
using Waits = std::pmr::vector<Wait>;

// Micro-batches of a turn: `count` of them from `first` on.
struct Strip {
  int first = 0, count = 1;
};

// What an operation does, but for what it touches and waits for.
struct OpHead {
  OpKind kind = OpKind::move;
  Lane lane = Lane::compute;
  TurnSet when = kEveryTurn;
  int unit = -1, block = -1;
  Strip strip{.first = -1};                         // the micro-batches that it is for; first -1: of none alone
  std::int64_t element_begin = 0, element_end = 0;  // update: range of the block
  Work work;                                        // compute and update lanes
  Bytes bytes = 0;                                  // that it moves
};

// "read", "forward"
std::string_view name_of(const OpHead& op);

struct Op : OpHead {
  Operands operands{};
  Waits waits{};
};

// Whether it works on what the step before left: applies that one's gradients, with its factor and its learning rate, or moves
// for that. Whether it has something to do in a run, `when` says.
constexpr bool applies_waiting_step(const OpHead& op) { return op.when == kWaitingUpdates; }

struct Program {
  Program() = default;
  Program(Program&&) noexcept = default;
  Program(const Program& other) : ops(other.ops), buffers(other.buffers) {}
  Program& operator=(Program other) noexcept {
    room.swap(other.room), ops.swap(other.ops), buffers.swap(other.buffers);
    return *this;
  }

  std::unique_ptr<std::pmr::monotonic_buffer_resource> room{};  // of operands and waits; null where each has memory of its own
  std::vector<Op> ops;                                          // an operation's id is its index
  std::vector<Buffer> buffers;                                  // not resident
};

// --- Choices --------------------------------------------------------------------------------------------------------------

// Where a block's arrays rest between the operations that use them.
struct BlockPlace {
  Tier weight = Tier::device;
  Tier optimizer = Tier::device;  // low, m, v
  Tier gradient = Tier::device;   // while it waits for its update, or for the next micro-batch
  // Updates in the backward: this block's waits for the next forward instead. A drive that is busy all through the backward has
  // little to do in a forward that only reads weights. Not for blocks that are looked up, whose gradients come last and whose
  // weights are wanted first.
  Deferred deferred = Deferred::no;
  bool operator==(const BlockPlace&) const = default;
};

// What happens to the values that a unit writes in the forward until its backward.
struct UnitPlace {
  Saved saved = Saved::keep;
  Boundary boundary = Boundary::keep;  // those that it hands to the next unit
  Tier spill = Tier::nvme;             // where spilled ones go
  bool operator==(const UnitPlace&) const = default;
};

// One member of all places: set, and counted.
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
  // Where the optimizer runs, host or device: there come gradients and state, and both give the same bits. Without a host between
  // device and NVMe: the device.
  Tier update_tier = Tier::device;
  int micro_batches = 1;
  // Micro-batches that go through all units together, one turn: a divisor of `micro_batches`. 1 is horizontal order, all of them
  // are vertical order.
  int group = 1;
  int strip = 1;              // of a group, so many are computed and moved by one operation; the last may be fewer
  bool clip = true;           // the global norm scales the update
  bool gives_logits = false;  // evaluation is asked for the logits of a row, too
  StateForm form = StateForm::exact;
  Sharding sharding;
  int slots = 1;  // of state on NVMe
  // Steps from one that is made durable to the next, where they can be (makes_durable()); 0: none is.
  std::int64_t durable_every = 0;
  // What is kept of a tier for reading ahead and writing behind (passes/reach.h). 0: nor are an update's pieces dealt out among
  // tasks before it is due.
  Bytes ahead = 0;
  std::int64_t update_chunk = 2 << 20;  // elements of a block that one update takes where the state rests elsewhere
  std::vector<BlockPlace> blocks;       // [blocks of the graph]
  std::vector<UnitPlace> units;         // [units of the graph]

  bool operator==(const Choices&) const = default;
};

// Turns of a step, and operations that a pass of a unit is in each.
constexpr int turns_of(const Choices& choices) { return choices.micro_batches / choices.group; }
constexpr int strips_of(const Choices& choices) { return (choices.group + choices.strip - 1) / choices.strip; }
constexpr Strip strip_from(const Choices& choices, int first) { return {first, std::min(choices.strip, choices.group - first)}; }
// Groups of so many, cut into so many strips at most.
inline constexpr int kMostStrips = 8;
inline void set_group(Choices& choices, int group, int most_strips = kMostStrips) {
  choices.group = group;
  choices.strip = (group + most_strips - 1) / most_strips;
}
// "horizontal", "vertical", "groups of 8"
std::string order_words(const Choices& choices);
// Where an array of a micro-batch's bytes begins in that of a strip: behind those of the ones before it.
constexpr Bytes strip_stride(Bytes bytes) { return round_up(bytes, 64); }

// Turns whose times are kept: all, or of more than three the first, the third and the last.
inline constexpr int kShownTurns = 3;
constexpr int shown_turns(int turns) { return std::min(turns, kShownTurns); }
constexpr int shown_turn(int index, int turns) { return turns <= kShownTurns ? index : index < 2 ? 2 * index : turns - 1; }

// Whether updates run before the norm is known that scales them: they are taken back, and the step
// is run again, where it says so.
constexpr bool speculates(UpdateTime update, bool clip) { return update == UpdateTime::in_backward && clip; }
inline bool speculates(const Choices& choices) { return speculates(choices.update, choices.clip); }

// Gradients are added up, squared and rounded where they are made: by a device of its own between passes, whoever updates;
// on the CPU by the update lane, beside them.
constexpr Lane lane_of_gradients(Chain chain) { return has_host(chain) ? Lane::compute : Lane::update; }
inline Lane lane_of_updates(const Choices& choices) {
  return choices.update_tier == Tier::device ? lane_of_gradients(choices.chain) : Lane::update;
}

// True where updates run on memory that the host may read: they hash the state that they take and leave
// (offload/update_hashes.h). Elsewhere the lanes of NVMe hash what they move.
inline bool updates_see_state(const Choices& choices) { return !has_host(choices.chain) || choices.update_tier == Tier::host; }

// Whether a unit's saved values last from its forward to its backward; in an evaluation, which has no backward, none do.
inline bool keeps_saved(const Choices& choices, int unit, bool evaluates) {
  return !evaluates && choices.units[static_cast<std::size_t>(unit)].saved != Saved::recompute;
}

// Whether the forward runs again right before the backward, for the saved values alone.
inline bool recomputes(const UnitGraph& graph, const Choices& choices, int unit) {
  const Unit& of = graph.units[static_cast<std::size_t>(unit)];
  return !keeps_saved(choices, unit, false) && !of.saved.empty() && of.saved_piece == 0;
}

// Whether gradients wait for the next step: all, a block's, any.
constexpr bool defers_all(const Choices& choices) { return choices.update == UpdateTime::in_next_forward; }
inline bool defers(const Choices& choices, int block) {
  return defers_all(choices) || choices.blocks[static_cast<std::size_t>(block)].deferred == Deferred::yes;
}
inline bool defers_any(const Choices& choices) {
  return defers_all(choices) || count_of(choices.blocks, &BlockPlace::deferred, Deferred::yes) > 0;
}
// Whether these choices may have blocks that are `deferred`: the factor of an update is known before the norm, and a step that is
// durable is so before the next one begins.
constexpr bool may_defer_blocks(UpdateTime update, bool clip, int slots) {
  return update == UpdateTime::in_backward && !clip && slots == 1;
}

// Of Choices::durable_every, where that is left open: each step is durable where that takes no copies; else so seldom that
// commits take no share of a step.
inline constexpr std::int64_t kSeldom = 1 << 20;
// Commits a step, on average.
constexpr double share_of_commits(const Choices& choices, const OpHead& commit) {
  if (choices.durable_every < kSeldom) return 1 / static_cast<double>(choices.durable_every);
  return commit.bytes > 0 ? 0 : 1;
}
// Bytes that an operation moves a step: of the copies of a commit, a step has its share.
inline double bytes_a_step(const Choices& choices, const OpHead& op) {
  return static_cast<double>(op.bytes) * (op.kind == OpKind::commit ? share_of_commits(choices, op) : 1);
}

// Whether a step has a commit: no update writes over what the step before left, but in memory, of which a commit makes copies.
bool makes_durable(const Choices& choices);

// Whether a block's updates also take the sums of squares of its gradient, each stretch right before it is used: where a
// gradient_finish came before them, memory would be read twice. None do where updates do not follow in the backward, or
// gradients are rounded, or added up over ranks, or where state is hashed, or where a device of its own makes them.
bool squares_with_update(const Choices& choices, int block);

// Of the units that take whole weights, those of the one that has the most.
Bytes largest_weights(const UnitGraph& graph, StateForm form);

// The words of Plan::norm_buffer: where each block's begin, and at last the open nodes, kSquareNodesFromBegin of them. A block
// has one, its sum of squares, and a frozen one none; where ranks have parts of it, the nodes of its tree that a part is, of
// which all ranks' make the sum. Open are the nodes of the block whose updates take its squares, from one of its updates to the
// next.
std::vector<std::int64_t> norm_words(const UnitGraph& graph, const Choices& choices);

// What of a block lasts, by its buffers in Plan::resident.
struct RestingArray : StateArray {
  int buffer = -1;
};
struct BlockBuffers {
  std::vector<RestingArray> state;  // all of the block's list; in a plan that only evaluates, the weight
  int waiting_gradient = -1;        // -1: it lives within a step
  // Of each of its users' gradient, from turn to turn; none where a step is one turn. In exact form with one rank the first is
  // the waiting gradient itself, where there is one.
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
  int loss_buffer = -1;                   // MicroBatchWords [micro_batches]; double: that there is a loss (control_words.h)
  int norm_buffer = -1;                   // double: sums of squares, as norm_words() says
  int factor_buffer = -1;                 // double [2]: global norm, clip factor
  int token_buffer = -1;                  // int32 [2, 2, micro_batches, n]: inputs and targets of this step and the next
  int constant_buffer = -1;               // UnitGraph::constant_bytes; -1 where there are none
  int logits_buffer = -1;                 // float [V]: the logits of one row; -1 where nobody asks for them
  std::vector<int> value_buffer;          // a value of the graph: its resident buffer where it lasts, else -1
  Program step;                           // one turn of a training step
  Program evaluate;                       // forward of one micro-batch; its units are those of the graph with a tiled head
  By<Tier, Bytes> peak;                   // exact bytes of each tier's arena or store
  By<Tier, By<Category, Bytes>> at_rest;  // of `peak`, by category at the moment of the peak
};

const Buffer& buffer_of(const Plan& plan, const Program& program, int index);

// What one of a timeline's spans is of.
struct OpInTurn {
  const Op& op;
  int turn = 0;
};
inline OpInTurn op_of_span(const Plan& plan, std::size_t span) {
  const std::size_t ops = plan.step.ops.size();
  return {plan.step.ops[span % ops], shown_turn(static_cast<int>(span / ops), turns_of(plan.choices))};
}

}  // namespace spillway
