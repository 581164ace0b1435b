// Kernel calls as data: the passes of units are lists of them. Each kernel is a struct with its shape, its types and the places
// of its operands; the same call gives the bytes that a plan counts, the room that it needs, and what a backend runs.
// A kernel returns nothing: what it has to say goes to a control word. It is as large as a fused kernel, never finer.
// Not here: what a call computes (models/reference says it in plain loops), how lists are made (unit_draft.h), how they run
// (backend.h).
//
// Legend: n rows (tokens of a micro-batch), T sequence length, H hidden, I MLP width, V vocabulary, D head dimension,
//         Hq / Hkv query / key-value heads, S rows of a strip, R rows of a vocabulary tile, E experts, k of them a row. `type` is
//         the compute type.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "memory/plan/unit.h"
#include "models/activation.h"
#include "models/dropout_mask.h"
#include "models/kernel_shapes.h"
#include "models/routing.h"

namespace spillway {

// The memory that an operand lies in.
enum class Space : std::uint8_t {
  none,       // the call has no such operand
  value,      // index: among the pass's values
  weight,     // index: of Unit::blocks
  gradient,   // index: of Unit::gradient_blocks
  workspace,  // of the pass
  constant,   // of the model (CompiledModel::constants)
  tokens,     // int32 [n]
  targets,    // int32 [n], -100 where there is no loss
  documents,  // int32 [n], where the row's document begins in its sequence: a first_key; only of a model of packs
  word,       // index: a ControlWord of the micro-batch
  logits,     // float [V] of one row, if somebody asks for them; otherwise calls that would write them are left out
};

// Words that calls read and write at run time, MicroBatchWords in memory.
enum class ControlWord : std::uint8_t {
  none,
  loss_sum,
  loss_scale,
  position,
  logits_row,
  dropout,
  batch_share,
  balance_loss,
  router_z_loss,
  router_fault,
  expert_load,
};

// An operand begins `offset` bytes into its space. If it moves with a word, it begins `stride` bytes times that word further.
struct Place {
  Space space = Space::none;
  ControlWord moves_with = ControlWord::none;
  int index = 0;
  Bytes offset = 0, stride = 0;

  explicit operator bool() const { return space != Space::none; }
  Place at(Bytes bytes) const { return {space, moves_with, index, offset + bytes, stride}; }
  Place moving_with(ControlWord word, Bytes bytes) const { return {space, word, index, offset, bytes}; }
  friend bool operator==(const Place&, const Place&) = default;
};
inline Place place_of(ControlWord word) { return {.space = Space::word, .index = static_cast<int>(word)}; }

// How a sum treats old content: first_writes writes over it in a step's first micro-batch, and adds to it in all others.
enum class Sum : std::uint8_t { write, add, first_writes };

namespace kernels {

// C = scale A B (+ bias) (+ residual), as kernel_shapes.h has it; spec.store is ignored.
struct Product {
  ops::GemmSpec spec;
  Sum sum = Sum::write;
  Place a, b, c, bias, residual;
  friend bool operator==(const Product&, const Product&) = default;
};

// RMSNorm, or LayerNorm where there is a bias. statistics: float rstd[n], and for LayerNorm mean[n].
// y (= residual +) norm(x), with weights of offset + weight. `stride`: elements between rows of x, y, dy and dx, where they are
// part of a wider matrix (RMSNorm alone, without a residual); 0: H.
struct Norm {
  DType type = DType::bfloat16;
  std::int64_t rows = 0, hidden = 0, stride = 0;  // n, H
  float epsilon = 0, offset = 0;
  Place x, weight, bias, residual, y, statistics;
  friend bool operator==(const Norm&, const Norm&) = default;
};
// Recomputes the same y from the statistics.
struct NormAgain {
  DType type = DType::bfloat16;
  std::int64_t rows = 0, hidden = 0, stride = 0;
  float offset = 0;
  Place x, weight, bias, statistics, y;
  friend bool operator==(const NormAgain&, const NormAgain&) = default;
};
// dx = residual_gradient (if any) + the norm's. dy is of gradient_type. Sums of dweight and dbias are made where they have a
// place: that of the bias with that of the weight. dx may be dy itself.
struct NormBackward {
  DType type = DType::bfloat16, gradient_type = DType::bfloat16;
  std::int64_t rows = 0, hidden = 0, stride = 0;
  float offset = 0;
  Place dy, x, weight, bias, statistics, residual_gradient, dx, dweight, dbias;
  friend bool operator==(const NormBackward&, const NormBackward&) = default;
};

// `first_key` is for sequences of several documents that do not see each other: the position in the sequence, the same as the
// first key, where each row's document begins; it never falls and never lies behind the row. Positions count from there on.

// Head norms (where there are weights) and rotary positions: turns raw qkv into queries and keys.
struct Rotate {
  DType type = DType::bfloat16;
  ops::RopeShape shape;
  Place cosine, sine;      // float [T,D/2]
  Place q_cosine, q_sine;  // the same, of queries; none: they turn as keys do
  Place q_weight, k_weight, qkv, qk;
  Place first_key;  // int32 [n]
  friend bool operator==(const Rotate&, const Rotate&) = default;
};
// In place: gradients of rotated queries and keys become those of the raw ones. qkv is read only where there are norms, whose own
// gradients are made where they have places: both or neither.
struct RotateBackward {
  DType type = DType::bfloat16;
  ops::RopeShape shape;
  Place cosine, sine, q_cosine, q_sine, q_weight, k_weight, qkv, dqkv, dq_weight, dk_weight;
  Place first_key;
  friend bool operator==(const RotateBackward&, const RotateBackward&) = default;
};

// Rows of a matrix that may be part of a wider one.
struct Rows {
  Place place;
  std::int64_t stride = 0;  // elements
  friend bool operator==(const Rows&, const Rows&) = default;
};
// Causal attention. If `cached`, shape.keys is the context, whose rows up to the position are seen besides the call's own; a
// single row is decoded. `mean_document`: tokens of the document that a token is in, on average: what the work is reckoned by.
struct Attend {
  DType type = DType::bfloat16;
  ops::AttentionShape shape;
  bool cached = false;
  double mean_document = 0;  // where there are first keys; 0: as long as the sequence
  Rows q, k, v, o;
  Place lse;        // float [B,Hq,T]
  Place first_key;  // int32 [B,T]
  friend bool operator==(const Attend&, const Attend&) = default;
};
struct AttendBackward {
  DType type = DType::bfloat16;
  ops::AttentionShape shape;
  double mean_document = 0;
  Rows q, k, v, o, d_o, dq, dk, dv;
  Place lse, first_key;
  friend bool operator==(const AttendBackward&, const AttendBackward&) = default;
};
// Behind attention, in place: each head has a sink, one more score that all its queries see, with a value of zeros. o shrinks by
// the sink's weight, and lse grows by it.
struct Sink {
  DType type = DType::bfloat16;
  ops::AttentionShape shape;
  Place sinks /*[Hq]*/, lse /*float [B,Hq,T]*/, o /*[B,T,Hq*D]*/;
  friend bool operator==(const Sink&, const Sink&) = default;
};
// The gradient of the sinks. Those of queries, keys and values are AttendBackward's, as if there were no sinks: they enter by
// lse and o, which are those that Sink left.
struct SinkBackward {
  DType type = DType::bfloat16;
  ops::AttentionShape shape;
  Place sinks, lse, o, d_o, dsinks;
  friend bool operator==(const SinkBackward&, const SinkBackward&) = default;
};
// Copies the rows' keys and values to where they belong in the cache: keys [context, width], then values.
struct KeepKeys {
  DType type = DType::bfloat16;
  std::int64_t rows = 0, width = 0, context = 0;
  Rows k, v;
  Place cache;
  friend bool operator==(const KeepKeys&, const KeepKeys&) = default;
};

// h = activation(up), or activation(gate) * up of [gate, up].
struct Activate {
  DType type = DType::bfloat16;
  Activation activation = Activation::silu;
  bool gated = false;
  std::int64_t rows = 0, columns = 0;  // n, I
  Place up, h;
  friend bool operator==(const Activate&, const Activate&) = default;
};
// Computes dup, and h again.
struct ActivateBackward {
  DType type = DType::bfloat16;
  Activation activation = Activation::silu;
  bool gated = false;
  std::int64_t rows = 0, columns = 0;
  Place dh, up, dup, h;
  friend bool operator==(const ActivateBackward&, const ActivateBackward&) = default;
};

// The gradient of a bias.
struct ColumnSums {
  DType type = DType::bfloat16;
  std::int64_t rows = 0, columns = 0;
  Place dy, sums;
  friend bool operator==(const ColumnSums&, const ColumnSums&) = default;
};
// y = x, rounded.
struct Round {
  DType type = DType::bfloat16;
  std::int64_t elements = 0;
  Place x;  // float
  Place y;
  friend bool operator==(const Round&, const Round&) = default;
};

// y = mask(x), or y += mask(x): kept elements times the mask's factor, the others 0; all of x as it is if the key is 0.
struct Dropout {
  DType type = DType::bfloat16;
  std::int64_t elements = 0;
  DropoutMask mask;
  bool adds = false;
  Place x, y, key;
  friend bool operator==(const Dropout&, const Dropout&) = default;
};

// x[i] = factor * table[token i] for the tokens of the tile.
struct LookUp {
  DType type = DType::bfloat16;
  std::int64_t rows = 0, hidden = 0, vocabulary = 0;
  ops::VocabularyTile tile;
  float factor = 1;
  Place tokens, table, x;
  friend bool operator==(const LookUp&, const LookUp&) = default;
};
struct LookUpBackward {
  DType type = DType::bfloat16;
  std::int64_t rows = 0, hidden = 0, vocabulary = 0;
  ops::VocabularyTile tile;
  float factor = 1;
  std::int64_t padding = -1;  // a token that is passed over
  Place tokens, dx, dtable;
  friend bool operator==(const LookUpBackward&, const LookUpBackward&) = default;
};
// x[i] += table[i % T], or table[i % T - first_key[i]].
struct AddPositions {
  DType type = DType::bfloat16;
  std::int64_t rows = 0, hidden = 0, sequence = 0;
  Place table, x, first_key;
  friend bool operator==(const AddPositions&, const AddPositions&) = default;
};
struct AddPositionsBackward {
  DType type = DType::bfloat16;
  std::int64_t rows = 0, hidden = 0, sequence = 0, table_rows = 0;
  Place dx, dtable, first_key;
  friend bool operator==(const AddPositionsBackward&, const AddPositionsBackward&) = default;
};

// Takes one tile's logits of a strip into the running maximum, sum and target logit of its rows. `begins` marks the first tile.
// With a cap, logits first become cap * tanh(logit / cap), in place.
struct LossTile {
  DType type = DType::bfloat16;
  std::int64_t rows = 0;  // S
  ops::VocabularyTile tile;
  bool begins = false;
  float cap = 0;
  Place logits /*[S,R]*/, targets, maximum, sum, target_logit /*float [S]*/;
  friend bool operator==(const LossTile&, const LossTile&) = default;
};
// After the last tile, computes the rows' log-sum-exp and adds the sum of their losses to loss_sum (the first strip writes it).
struct LossFinish {
  std::int64_t rows = 0;
  bool begins = false;
  Place targets, maximum, sum, target_logit, log_sum_exp, loss_sum;
  friend bool operator==(const LossFinish&, const LossFinish&) = default;
};
// In place: logits become their gradients, times loss_scale.
struct LossBackward {
  DType type = DType::bfloat16;
  std::int64_t rows = 0;
  ops::VocabularyTile tile;
  float cap = 0;
  Place logits, targets, log_sum_exp, loss_scale;
  friend bool operator==(const LossBackward&, const LossBackward&) = default;
};
// Copies the logits of row logits_row, if the strip has it, to those of the whole vocabulary. They are as LossTile left them.
struct GiveLogits {
  DType type = DType::bfloat16;
  std::int64_t first_row = 0, rows = 0;  // the strip
  std::int64_t columns = 0;              // R
  Place logits, logits_row, out;         // float [R]
  friend bool operator==(const GiveLogits&, const GiveLogits&) = default;
};
// x = cap * tanh(x / cap), in place.
struct Cap {
  DType type = DType::bfloat16;
  std::int64_t elements = 0;
  float cap = 0;
  Place x;
  friend bool operator==(const Cap&, const Cap&) = default;
};

// A mixture's router, after its product: logits become probabilities, in place. Each row goes to the k experts with the largest
// (a tie goes to the lower number), and to the shared one, if there is one. `fault` becomes layer + 1 where a logit is not a
// number and no layer before had one.
struct Route {
  ops::RouterShape shape;
  std::int64_t layer = 0;
  bool begins = false;  // the first layer with a router
  Place scores /*float [n,E]*/, log_sums /*float [n], of the logits*/, routing, fault;
  friend bool operator==(const Route&, const Route&) = default;
};
// Adds a layer to the totals of the micro-batch and to the load of its experts; the first layer begins them. The last one also
// computes the losses of the routers of all layers together: E sum_e (counts_e / N) (sums_e / N), and the mean square of
// log_sums, N = layers * n.
struct AddRouting {
  ops::RouterShape shape;
  std::int64_t layers = 0;  // that have a router
  bool begins = false, ends = false;
  Place scores, log_sums, routing, totals /*double [2E+1]*/, load /*ExpertLoad*/, balance_loss, z_loss;
  friend bool operator==(const AddRouting&, const AddRouting&) = default;
};
// The gradient of the logits: from that of the weights, and from the routers' losses times their coefficients and batch_share.
struct RouteBackward {
  DType type = DType::bfloat16;
  ops::RouterShape shape;
  std::int64_t layers = 0;
  float balance = 0, z = 0;  // coefficients
  Place dweights /*float [n,k]*/, scores, log_sums, routing, totals, batch_share, dlogits /*[n,E]*/;
  friend bool operator==(const RouteBackward&, const RouteBackward&) = default;
};
// sum (= residual, then) += weight * expert(x) for the rows of each of the call's experts, ascending. The rooms are for a piece
// of S = shape.most_rows() rows.
struct Experts {
  DType type = DType::bfloat16;
  Activation activation = Activation::silu;
  ops::ExpertsShape shape;
  Place x /*[n,H]*/, routing, weights, residual /*[n,H]*/, sum /*float [n,H]*/;
  Place rows /*[S,H]*/, up /*[S,2I]*/, h /*[S,I]*/, out /*float [S,H]*/;
  friend bool operator==(const Experts&, const Experts&) = default;
};
// The call's experts descend. Where the call begins the backward, dx is written, else it is added to. What is between the
// products is computed again. Gradients of experts that no row comes to are zeros.
struct ExpertsBackward {
  DType type = DType::bfloat16;
  Activation activation = Activation::silu;
  ops::ExpertsShape shape;
  bool begins = false;
  Place dy /*[n,H]*/, x, routing, weights, gradients, dx /*float [n,H]*/, dweights /*float [n,k]*/;
  Place rows /*[S,H]*/, drows /*[S,H]*/, up /*[S,2I]*/, dup /*[S,2I]*/, h /*[S,I]*/, dh /*[S,I]*/, out /*float [S,H]*/;
  friend bool operator==(const ExpertsBackward&, const ExpertsBackward&) = default;
};

}  // namespace kernels

using Kernel =
    std::variant<kernels::Product, kernels::Norm, kernels::NormAgain, kernels::NormBackward, kernels::Rotate,
                 kernels::RotateBackward, kernels::Attend, kernels::AttendBackward, kernels::Sink, kernels::SinkBackward,
                 kernels::KeepKeys, kernels::Activate, kernels::ActivateBackward, kernels::ColumnSums, kernels::Round,
                 kernels::Dropout, kernels::LookUp, kernels::LookUpBackward, kernels::AddPositions, kernels::AddPositionsBackward,
                 kernels::LossTile, kernels::LossFinish, kernels::LossBackward, kernels::GiveLogits, kernels::Cap, kernels::Route,
                 kernels::AddRouting, kernels::RouteBackward, kernels::Experts, kernels::ExpertsBackward>;

// A call in a list: a kernel, and the scratch that it may use while it runs.
struct KernelCall {
  Kernel kernel;
  Place scratch;
  Bytes scratch_bytes = 0;
  friend bool operator==(const KernelCall&, const KernelCall&) = default;
};
using CallList = std::vector<KernelCall>;

// One operand of a kernel: its place, its size, and how it is accessed. float32 also stands for words of other types.
struct OperandUse {
  Place* place = nullptr;
  Access access = Access::read;
  DType type = DType::float32;
  Bytes bytes = 0;
  Bytes reach = 0;       // from the first byte to behind the last, where rows are part of a wider matrix
  bool is_room = false;  // the call works in it: what is there afterwards means nothing
};
// All operands of the kernel, in the order of its definition. They are valid as long as the kernel.
std::vector<OperandUse> operands_of(Kernel& kernel);

// The kernel's cost: that of products and attention by their multiplications, that of all others by the bytes of their operands.
Work work_of(const Kernel& kernel);

}  // namespace spillway
