#include "models/kernels.h"

#include <algorithm>

#include "memory/plan/control_words.h"

namespace spillway {
namespace {

using namespace kernels;

constexpr Bytes kFloat = sizeof(float), kIndex = sizeof(std::int32_t);

class Operands {
 public:
  explicit Operands(DType type) : type_(type) {}
  // These take operands of the compute type, unless another type is given.
  void read(Place& place, Bytes bytes) { add(place, Access::read, type_, bytes, bytes); }
  void write(Place& place, Bytes bytes) { add(place, Access::write, type_, bytes, bytes); }
  void update(Place& place, Bytes bytes) { add(place, Access::update, type_, bytes, bytes); }
  void use(Place& place, Access access, DType type, Bytes bytes) { add(place, access, type, bytes, bytes); }
  // Room that the call works in.
  void room(Place& place, Bytes bytes) {
    add(place, Access::write, type_, bytes, bytes);
    list.back().is_room = true;
  }
  void read_float(Place& place, Bytes bytes) { use(place, Access::read, DType::float32, bytes); }
  void write_float(Place& place, Bytes bytes) { use(place, Access::write, DType::float32, bytes); }
  void update_float(Place& place, Bytes bytes) { use(place, Access::update, DType::float32, bytes); }
  // Accesses `bytes` of the bytes that the operand reaches.
  void some(Place& place, Access access, Bytes bytes, Bytes reach) { add(place, access, type_, bytes, reach); }
  void rows(Rows& rows, Access access, std::int64_t count, std::int64_t width) {
    strided(rows.place, access, count, width, rows.stride);
  }
  void strided(Place& place, Access access, std::int64_t count, std::int64_t width, std::int64_t stride) {
    const Bytes element = size_of(type_);
    add(place, access, type_, count * width * element, ((count - 1) * stride + width) * element);
  }
  std::vector<OperandUse> list;

 private:
  void add(Place& place, Access access, DType type, Bytes bytes, Bytes reach) {
    if (place) list.push_back({&place, access, type, bytes, reach});
  }
  DType type_;
};

// A gradient's sum is added to old content in most of a step's micro-batches, so it counts as an update.
void sum_into(Operands& out, Place& place, Bytes bytes) { out.update_float(place, bytes); }

std::int64_t stride_of(const auto& norm) { return norm.stride > 0 ? norm.stride : norm.hidden; }
Bytes statistics_bytes(std::int64_t rows, const Place& bias) { return rows * kFloat * (bias ? 2 : 1); }

void add_operands(Operands& out, Product& k) {
  const ops::GemmSpec& s = k.spec;
  const Bytes in = size_of(s.input), c_bytes = s.m * s.n * size_of(s.output);
  out.read(k.a, s.m * s.k * in);
  out.read(k.b, s.k * s.n * in);
  out.read(k.bias, s.n * in);
  out.read(k.residual, s.m * s.n * in);
  out.use(k.c, k.sum == Sum::write ? Access::write : Access::update, s.output, c_bytes);
}
void add_operands(Operands& out, Norm& k) {
  const Bytes row = k.hidden * size_of(k.type);
  out.strided(k.x, Access::read, k.rows, k.hidden, stride_of(k));
  out.read(k.weight, row);
  out.read(k.bias, row);
  out.read(k.residual, k.rows * row);
  out.strided(k.y, Access::write, k.rows, k.hidden, stride_of(k));
  out.write_float(k.statistics, statistics_bytes(k.rows, k.bias));
}
void add_operands(Operands& out, NormAgain& k) {
  const Bytes row = k.hidden * size_of(k.type);
  out.strided(k.x, Access::read, k.rows, k.hidden, stride_of(k));
  out.read(k.weight, row);
  out.read(k.bias, row);
  out.read_float(k.statistics, statistics_bytes(k.rows, k.bias));
  out.strided(k.y, Access::write, k.rows, k.hidden, stride_of(k));
}
void add_operands(Operands& out, NormBackward& k) {
  const Bytes row = k.hidden * size_of(k.type);
  out.use(k.dy, Access::read, k.gradient_type, k.rows * k.hidden * size_of(k.gradient_type));
  out.strided(k.dx, Access::write, k.rows, k.hidden, stride_of(k));
  out.strided(k.x, Access::read, k.rows, k.hidden, stride_of(k));
  out.read(k.weight, row);
  out.read_float(k.statistics, statistics_bytes(k.rows, k.bias));
  out.read(k.residual_gradient, k.rows * row);
  sum_into(out, k.dweight, k.hidden * kFloat);
  sum_into(out, k.dbias, k.hidden * kFloat);
}

Bytes table_bytes(const ops::RopeShape& s) { return s.sequence * (s.dimension / 2) * kFloat; }
// Queries and keys among queries, keys and values.
void of_qkv(Operands& out, const ops::RopeShape& s, Access access, Place& qkv) {
  out.strided(qkv, access, s.n, (s.heads + s.kv_heads) * s.dimension, (s.heads + 2 * s.kv_heads) * s.dimension);
}

void add_operands(Operands& out, Rotate& k) {
  const Bytes norm = k.shape.dimension * size_of(k.type);
  out.read_float(k.cosine, table_bytes(k.shape));
  out.read_float(k.sine, table_bytes(k.shape));
  out.read_float(k.q_cosine, table_bytes(k.shape));
  out.read_float(k.q_sine, table_bytes(k.shape));
  out.read(k.q_weight, norm);
  out.read(k.k_weight, norm);
  of_qkv(out, k.shape, Access::read, k.qkv);
  out.write(k.qk, k.shape.n * (k.shape.heads + k.shape.kv_heads) * norm);
  out.read(k.first_key, k.shape.n * kIndex);
}
void add_operands(Operands& out, RotateBackward& k) {
  const Bytes norm = k.shape.dimension * size_of(k.type), sum = k.shape.dimension * kFloat;
  out.read_float(k.cosine, table_bytes(k.shape));
  out.read_float(k.sine, table_bytes(k.shape));
  out.read_float(k.q_cosine, table_bytes(k.shape));
  out.read_float(k.q_sine, table_bytes(k.shape));
  out.read(k.q_weight, norm);
  out.read(k.k_weight, norm);
  of_qkv(out, k.shape, Access::read, k.qkv);
  of_qkv(out, k.shape, Access::update, k.dqkv);
  sum_into(out, k.dq_weight, sum);
  sum_into(out, k.dk_weight, sum);
  out.read(k.first_key, k.shape.n * kIndex);
}

Bytes lse_bytes(const ops::AttentionShape& s) { return s.sequences * s.heads * s.queries * kFloat; }
void of_queries(Operands& out, const ops::AttentionShape& s, Access access, Rows& rows) {
  out.rows(rows, access, s.sequences * s.queries, s.heads * s.head_dim);
}
void of_keys(Operands& out, const ops::AttentionShape& s, Access access, Rows& rows) {
  out.rows(rows, access, s.sequences * s.keys, s.kv_heads * s.head_dim);
}

void add_operands(Operands& out, Attend& k) {
  of_queries(out, k.shape, Access::read, k.q);
  of_keys(out, k.shape, Access::read, k.k);
  of_keys(out, k.shape, Access::read, k.v);
  of_queries(out, k.shape, Access::write, k.o);
  out.write_float(k.lse, lse_bytes(k.shape));
  out.read(k.first_key, k.shape.sequences * k.shape.queries * kIndex);
}
void add_operands(Operands& out, AttendBackward& k) {
  of_queries(out, k.shape, Access::read, k.q);
  for (Rows* rows : {&k.k, &k.v}) of_keys(out, k.shape, Access::read, *rows);
  for (Rows* rows : {&k.o, &k.d_o}) of_queries(out, k.shape, Access::read, *rows);
  out.read_float(k.lse, lse_bytes(k.shape));
  out.read(k.first_key, k.shape.sequences * k.shape.queries * kIndex);
  of_queries(out, k.shape, Access::write, k.dq);
  for (Rows* rows : {&k.dk, &k.dv}) of_keys(out, k.shape, Access::write, *rows);
}
void add_operands(Operands& out, Sink& k) {
  const ops::AttentionShape& s = k.shape;
  out.read(k.sinks, s.heads * size_of(k.type));
  out.update_float(k.lse, lse_bytes(s));
  out.update(k.o, s.sequences * s.queries * s.heads * s.head_dim * size_of(k.type));
}
void add_operands(Operands& out, SinkBackward& k) {
  const ops::AttentionShape& s = k.shape;
  out.read(k.sinks, s.heads * size_of(k.type));
  out.read_float(k.lse, lse_bytes(s));
  for (Place* rows : {&k.o, &k.d_o}) out.read(*rows, s.sequences * s.queries * s.heads * s.head_dim * size_of(k.type));
  sum_into(out, k.dsinks, s.heads * kFloat);
}
void add_operands(Operands& out, KeepKeys& k) {
  for (Rows* rows : {&k.k, &k.v}) out.rows(*rows, Access::read, k.rows, k.width);
  out.some(k.cache, Access::update, 2 * k.rows * k.width * size_of(k.type), 2 * k.context * k.width * size_of(k.type));
}

Bytes up_bytes(const auto& k) { return k.rows * k.columns * (k.gated ? 2 : 1) * size_of(k.type); }

void add_operands(Operands& out, Activate& k) {
  out.read(k.up, up_bytes(k));
  out.write(k.h, k.rows * k.columns * size_of(k.type));
}
void add_operands(Operands& out, ActivateBackward& k) {
  const Bytes h_bytes = k.rows * k.columns * size_of(k.type);
  out.read(k.dh, h_bytes);
  out.read(k.up, up_bytes(k));
  out.write(k.dup, up_bytes(k));
  out.write(k.h, h_bytes);
}

void add_operands(Operands& out, ColumnSums& k) {
  out.read(k.dy, k.rows * k.columns * size_of(k.type));
  sum_into(out, k.sums, k.columns * kFloat);
}
void add_operands(Operands& out, Round& k) {
  out.read_float(k.x, k.elements * kFloat);
  out.write(k.y, k.elements * size_of(k.type));
}

// A tile takes only its share of the tokens, but counts as writing or updating all of x: the tiles together write every row.
void add_operands(Operands& out, Dropout& k) {
  const Bytes bytes = k.elements * size_of(k.type);
  out.read(k.x, bytes);
  out.use(k.y, k.adds ? Access::update : Access::write, k.type, bytes);
  out.use(k.key, Access::read, DType::float32, sizeof(std::uint64_t));
}
void add_operands(Operands& out, LookUp& k) {
  out.read(k.tokens, k.rows * kIndex);
  out.read(k.table, k.tile.rows * k.hidden * size_of(k.type));
  const Bytes bytes = k.rows * k.hidden * size_of(k.type);
  k.tile.first == 0 ? out.write(k.x, bytes) : out.update(k.x, bytes);
}
void add_operands(Operands& out, LookUpBackward& k) {
  out.read(k.tokens, k.rows * kIndex);
  out.read(k.dx, k.rows * k.hidden * size_of(k.type));
  sum_into(out, k.dtable, k.tile.rows * k.hidden * kFloat);
}
void add_operands(Operands& out, AddPositions& k) {
  out.read(k.table, k.sequence * k.hidden * size_of(k.type));
  out.update(k.x, k.rows * k.hidden * size_of(k.type));
  out.read(k.first_key, k.rows * kIndex);
}
void add_operands(Operands& out, AddPositionsBackward& k) {
  out.read(k.dx, k.rows * k.hidden * size_of(k.type));
  sum_into(out, k.dtable, k.table_rows * k.hidden * kFloat);
  out.read(k.first_key, k.rows * kIndex);
}

void add_operands(Operands& out, LossTile& k) {
  const Bytes logits = k.rows * k.tile.rows * size_of(k.type);
  k.cap > 0 ? out.update(k.logits, logits) : out.read(k.logits, logits);
  out.read(k.targets, k.rows * kIndex);
  for (Place* state : {&k.maximum, &k.sum, &k.target_logit}) {
    k.begins ? out.write_float(*state, k.rows * kFloat) : out.update_float(*state, k.rows * kFloat);
  }
}
void add_operands(Operands& out, LossFinish& k) {
  out.read(k.targets, k.rows * kIndex);
  for (Place* state : {&k.maximum, &k.sum, &k.target_logit}) out.read_float(*state, k.rows * kFloat);
  out.write_float(k.log_sum_exp, k.rows * kFloat);
  k.begins ? out.write_float(k.loss_sum, sizeof(double)) : out.update_float(k.loss_sum, sizeof(double));
}
void add_operands(Operands& out, LossBackward& k) {
  out.update(k.logits, k.rows * k.tile.rows * size_of(k.type));
  out.read(k.targets, k.rows * kIndex);
  out.read_float(k.log_sum_exp, k.rows * kFloat);
  out.read_float(k.loss_scale, kFloat);
}
void add_operands(Operands& out, GiveLogits& k) {
  out.some(k.logits, Access::read, k.columns * size_of(k.type), k.rows * k.columns * size_of(k.type));
  out.read(k.logits_row, sizeof(std::int64_t));
  out.write_float(k.out, k.columns * kFloat);
}
void add_operands(Operands& out, Cap& k) { out.update(k.x, k.elements * size_of(k.type)); }

Bytes scores_bytes(const ops::RouterShape& s) { return s.rows * s.columns() * kFloat; }
Bytes weights_bytes(const ops::RouterShape& s) { return s.rows * s.places() * kFloat; }
Bytes totals_bytes(const ops::RouterShape& s) { return ops::router_totals(s.experts) * static_cast<Bytes>(sizeof(double)); }
void write_or_update(Operands& out, bool writes, Place& place, Bytes bytes) {
  writes ? out.write_float(place, bytes) : out.update_float(place, bytes);
}

void add_operands(Operands& out, Route& k) {
  out.update_float(k.scores, scores_bytes(k.shape));
  out.write_float(k.log_sums, k.shape.rows * kFloat);
  out.write_float(k.routing, ops::routing_bytes(k.shape));
  write_or_update(out, k.begins, k.fault, kIndex);
}
void add_operands(Operands& out, AddRouting& k) {
  out.read_float(k.scores, scores_bytes(k.shape));
  out.read_float(k.log_sums, k.shape.rows * kFloat);
  out.read_float(k.routing, ops::routing_bytes(k.shape));
  write_or_update(out, k.begins, k.totals, totals_bytes(k.shape));
  write_or_update(out, k.begins, k.load, sizeof(ExpertLoad));
  if (k.ends) out.write_float(k.balance_loss, sizeof(double)), out.write_float(k.z_loss, sizeof(double));
}
void add_operands(Operands& out, RouteBackward& k) {
  out.read_float(k.dweights, weights_bytes(k.shape));
  out.read_float(k.scores, scores_bytes(k.shape));
  out.read_float(k.log_sums, k.shape.rows * kFloat);
  out.read_float(k.routing, ops::routing_bytes(k.shape));
  out.read_float(k.totals, totals_bytes(k.shape));
  out.read_float(k.batch_share, kFloat);
  out.write(k.dlogits, k.shape.rows * k.shape.columns() * size_of(k.type));
}
void add_operands(Operands& out, Experts& k) {
  const ops::ExpertsShape& s = k.shape;
  const Bytes row = s.hidden * size_of(k.type), inner = s.most_rows() * s.width * size_of(k.type);
  out.read(k.x, s.router.rows * row);
  out.read_float(k.routing, ops::routing_bytes(s.router));
  out.read(k.weights, s.count * s.stride() * size_of(k.type));
  out.read(k.residual, s.router.rows * row);
  write_or_update(out, static_cast<bool>(k.residual), k.sum, s.router.rows * s.hidden * kFloat);
  out.room(k.rows, s.most_rows() * row);
  out.room(k.up, 2 * inner);
  out.room(k.h, inner);
  out.room(k.out, s.most_rows() * s.hidden * kFloat);
}
void add_operands(Operands& out, ExpertsBackward& k) {
  const ops::ExpertsShape& s = k.shape;
  const Bytes row = s.hidden * size_of(k.type), inner = s.most_rows() * s.width * size_of(k.type);
  for (Place* rows : {&k.dy, &k.x}) out.read(*rows, s.router.rows * row);
  out.read_float(k.routing, ops::routing_bytes(s.router));
  out.read(k.weights, s.count * s.stride() * size_of(k.type));
  sum_into(out, k.gradients, s.count * s.stride() * kFloat);
  write_or_update(out, k.begins, k.dx, s.router.rows * s.hidden * kFloat);
  write_or_update(out, k.begins, k.dweights, weights_bytes(s.router));
  for (Place* piece : {&k.rows, &k.drows}) out.room(*piece, s.most_rows() * row);
  for (Place* piece : {&k.up, &k.dup}) out.room(*piece, 2 * inner);
  for (Place* piece : {&k.h, &k.dh}) out.room(*piece, inner);
  out.room(k.out, s.most_rows() * s.hidden * kFloat);
}

DType type_of(const Kernel& kernel) {
  return std::visit(
      [](const auto& k) {
        if constexpr (requires { k.type; }) {
          return k.type;
        } else if constexpr (requires { k.spec; }) {
          return k.spec.input;
        } else {
          return DType::float32;
        }
      },
      kernel);
}

double product_flops(const ops::GemmSpec& s) {
  return 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

// A product with the factor of an adapter takes as long as its bytes, not its multiplications: one of its matrices is so narrow
// that the others are hardly used again.
bool is_thin(const ops::GemmSpec& s) {
  constexpr std::int64_t narrow = 64, wider = 16;
  const bool sums_rows = s.transpose_a == ops::Transpose::yes;
  const std::int64_t rows = sums_rows ? s.k : s.m, other = sums_rows ? s.m : s.k, least = std::min(s.n, other);
  return least <= narrow && std::min(rows, std::max(s.n, other)) >= wider * least;
}

// Number of keys that a query sees on average, in documents of so many tokens.
double keys_seen(double document, double window) {
  const double w = window > 0 ? std::min(window, document) : document;
  return (w * (w + 1) / 2 + (document - w) * w) / document;
}
double attention_flops(const auto& k, int products) {
  const ops::AttentionShape& s = k.shape;
  const double document = k.mean_document > 0 ? k.mean_document : static_cast<double>(s.queries);
  return 2.0 * products * keys_seen(document, static_cast<double>(s.window)) *
         static_cast<double>(s.sequences * s.queries * s.heads * s.head_dim);
}

// Bytes that move: an updated operand is read and written.
double bytes_moved(Kernel kernel) {
  double bytes = 0;
  for (const OperandUse& use : operands_of(kernel))
    bytes += static_cast<double>(use.bytes) * (use.access == Access::update ? 2 : 1);
  return bytes;
}

// Work of products with the experts' matrices, if the rows are spread evenly: `products` counts them in matrices of [I,H], of
// which `repeated` were computed before. Each row's bytes move `moves` times.
Work work_of_experts(const auto& k, int products, int repeated, int moves) {
  const ops::ExpertsShape& s = k.shape;
  const auto all = static_cast<double>(s.router.rows);
  const double rows_of_one =
      s.is_shared() ? all : all * static_cast<double>(s.router.per_row) / static_cast<double>(s.router.experts);
  const double rows = rows_of_one * static_cast<double>(s.count), matrix = 2 * rows * static_cast<double>(s.width * s.hidden);
  const double row_bytes = static_cast<double>((2 * s.hidden + 3 * s.width) * size_of(k.type) + 3 * s.hidden * kFloat);
  return {.gemm_flops = products * matrix,
          .bytes = moves * rows * row_bytes,
          .repeated_flops = repeated * matrix,
          .gemm_rows = rows_of_one};
}

// A tile's share of a micro-batch's tokens, if they are spread evenly.
double share_of_tile(const auto& k) { return static_cast<double>(k.tile.rows) / static_cast<double>(k.vocabulary); }

}  // namespace

std::vector<OperandUse> operands_of(Kernel& kernel) {
  Operands operands(type_of(kernel));
  std::visit([&](auto& k) { add_operands(operands, k); }, kernel);
  return std::move(operands.list);
}

Work work_of(const Kernel& kernel) {
  Work work;
  const auto* const product = std::get_if<Product>(&kernel);
  if (product != nullptr && !is_thin(product->spec)) {
    work.gemm_flops = product_flops(product->spec);
  } else if (const auto* forward = std::get_if<Attend>(&kernel)) {
    work.attention_flops = attention_flops(*forward, 2);
  } else if (const auto* backward = std::get_if<AttendBackward>(&kernel)) {
    work.attention_flops = attention_flops(*backward, 5);
  } else if (const auto* experts = std::get_if<Experts>(&kernel)) {
    return work_of_experts(*experts, 3, 0, 1);
  } else if (const auto* back = std::get_if<ExpertsBackward>(&kernel)) {
    return work_of_experts(*back, 8, 2, 2);
  } else if (const auto* look_up = std::get_if<LookUp>(&kernel)) {
    work.bytes = 2 * share_of_tile(*look_up) * static_cast<double>(look_up->rows * look_up->hidden * size_of(look_up->type));
  } else if (const auto* add_up = std::get_if<LookUpBackward>(&kernel)) {
    work.bytes = share_of_tile(*add_up) * static_cast<double>(add_up->rows * add_up->hidden * size_of(add_up->type)) +
                 static_cast<double>(add_up->tile.rows * add_up->hidden * kFloat);
  } else {
    work.bytes = bytes_moved(kernel);
  }
  return work;
}

}  // namespace spillway
