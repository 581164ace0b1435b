// One turn of a training step, or of an evaluation, compiled: operations in issue order, their operands, and the buffers that
// come and go with them.
// Not here: what the operations compute (models/), how they are made (passes/), who runs them (offload/executor.h).
//
// All ranks have the same program. Where a rank has a part of a block, element_begin and element_end of its updates count from
// the part's first element, and go up to the longest part: elements beyond a rank's own part are padding (sharding.h).
//
// Protocol. A lane runs its operations in program order, one after the other; an NVMe lane has up to kMovesUnderWay under way,
// so that the drive is busy across their borders, and completes them in order. An operation starts when every operation in its
// `waits` is complete. Waits are derived from the bytes that operations access (passes/waits.h), never written by hand. When one
// operation writes a byte that another touches, the two are always ordered, within a step and from one step to the next.
#pragma once

#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "memory/base/types.h"
#include "memory/plan/block_state.h"
#include "memory/plan/choices.h"
#include "memory/plan/unit.h"

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
  gather,           // every rank's part of an array, or its control words, -> the whole array, on every rank
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

}  // namespace spillway
