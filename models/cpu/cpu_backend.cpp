#include "models/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "memory/base/error.h"
#include "models/cpu/attention/attention_ops.h"
#include "models/cpu/cpu_scratch.h"
#include "models/cpu/experts/experts.h"
#include "models/cpu/experts/routing_ops.h"
#include "models/expert_pieces.h"

namespace spillway {
namespace {

using namespace kernels;

// Runs one call: gives its operands' addresses, typed.
class Runner {
 public:
  Runner(const ThreadPool& pool, ops::MatmulEngine& engine, const PassMemory& memory, std::byte* scratch)
      : pool_(pool), engine_(engine), memory_(memory), scratch_(scratch) {}

  void operator()(const Product& k) const {
    ops::GemmSpec spec = k.spec;
    spec.store = store_of(k.sum);
    engine_.run(pool_, spec, {.a = at(k.a), .b = at(k.b), .c = at(k.c), .bias = at(k.bias), .residual = at(k.residual)},
                scratch_);
  }
  void operator()(const LossFinish& k) const {
    const double sum =
        ops::loss_finish(k.rows, at<std::int32_t>(k.targets), softmax_of(k), at<float>(k.log_sum_exp), nullptr, scratch_);
    double& total = *at<double>(k.loss_sum);
    total = k.begins ? sum : total + sum;
  }
  void operator()(const Route& k) const {
    auto& fault = *at<std::int32_t>(k.fault);
    if (k.begins) fault = 0;
    const bool is_finite = ops::route(pool_, k.shape, at<float>(k.scores), at<float>(k.log_sums), routing(k, k.shape));
    if (!is_finite && fault == 0) fault = static_cast<std::int32_t>(k.layer + 1);
  }
  void operator()(const AddRouting& k) const {
    double* const totals = at<double>(k.totals);
    auto& load = *at<ExpertLoad>(k.load);
    const std::int64_t experts = k.shape.experts;
    if (k.begins) {
      std::fill_n(totals, ops::router_totals(experts), 0.0);
      load = {.most = 0, .least = HUGE_VAL, .entropy = 0};
    }
    const ops::Routing to = routing(k, k.shape);
    ops::add_routing(pool_, k.shape, at<float>(k.scores), at<float>(k.log_sums), to, totals);
    ops::add_load(k.shape, to, k.layers, load);
    if (!k.ends) return;
    const auto all = static_cast<double>(k.layers * k.shape.rows);
    double sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) sum += totals[e] / all * (totals[experts + e] / all);
    *at<double>(k.balance_loss) = static_cast<double>(experts) * sum;
    *at<double>(k.z_loss) = totals[2 * experts] / all;
  }
  template <typename K>
  void operator()(const K& k) const {
    if (k.type == DType::float32) {
      run<float>(k);
    } else {
      run<BFloat16>(k);
    }
  }

 private:
  template <typename T = std::byte>
  T* at(const Place& place) const {
    return reinterpret_cast<T*>(memory_.at(place));
  }
  template <typename E>
  ops::AttentionRows<E> rows(const Rows& rows) const {
    return {at<std::remove_const_t<E>>(rows.place), rows.stride};
  }
  ops::Store store_of(Sum sum) const {
    if (sum == Sum::first_writes) return memory_.first_micro_batch ? ops::Store::write : ops::Store::add;
    return sum == Sum::write ? ops::Store::write : ops::Store::add;
  }
  ops::Store gradients() const { return store_of(Sum::first_writes); }
  ops::SoftmaxState softmax_of(const auto& k) const {
    return {at<float>(k.maximum), at<float>(k.sum), at<float>(k.target_logit)};
  }

  template <typename E>
  void run(const Norm& k) const {
    if (k.bias) {
      SPILLWAY_CHECK(!k.residual && k.offset == 0 && k.stride == 0, "LayerNorm with a residual, an offset or a stride");
      ops::layernorm_forward(pool_, k.rows, k.hidden, at<E>(k.x), at<E>(k.weight), at<E>(k.bias), k.epsilon, at<E>(k.y),
                             at<float>(k.statistics) + k.rows, at<float>(k.statistics));
    } else {
      ops::rmsnorm_forward(pool_, k.rows, k.hidden, at<E>(k.x), at<E>(k.weight), k.epsilon, at<E>(k.y), at<float>(k.statistics),
                           k.offset, at<E>(k.residual), k.stride);
    }
  }
  template <typename E>
  void run(const NormAgain& k) const {
    if (k.bias) {
      ops::layernorm_apply(pool_, k.rows, k.hidden, at<E>(k.x), at<E>(k.weight), at<E>(k.bias), at<float>(k.statistics) + k.rows,
                           at<float>(k.statistics), at<E>(k.y));
    } else {
      ops::rmsnorm_apply(pool_, k.rows, k.hidden, at<E>(k.x), at<E>(k.weight), at<float>(k.statistics), at<E>(k.y), k.offset,
                         k.stride);
    }
  }
  template <typename E, typename G>
  void norm_backward(const NormBackward& k) const {
    if (k.bias) {
      ops::layernorm_backward(pool_, k.rows, k.hidden, at<G>(k.dy), at<E>(k.x), at<E>(k.weight), at<float>(k.statistics) + k.rows,
                              at<float>(k.statistics), at<E>(k.residual_gradient), at<E>(k.dx), at<float>(k.dweight),
                              at<float>(k.dbias), gradients(), scratch_);
    } else {
      ops::rmsnorm_backward(pool_, k.rows, k.hidden, at<G>(k.dy), at<E>(k.x), at<E>(k.weight), at<float>(k.statistics),
                            at<E>(k.residual_gradient), at<E>(k.dx), at<float>(k.dweight), gradients(), scratch_, k.offset,
                            k.stride);
    }
  }
  template <typename E>
  void run(const NormBackward& k) const {
    if (k.gradient_type == DType::float32) {
      norm_backward<E, float>(k);
    } else {
      norm_backward<E, E>(k);
    }
  }

  template <typename E>
  ops::HeadNorm<E> head_norm(const auto& k) const {
    return {at<E>(k.q_weight), at<E>(k.k_weight)};
  }
  ops::RopeTable table(const auto& k) const {
    const ops::Angles keys{at<float>(k.cosine), at<float>(k.sine)}, queries{at<float>(k.q_cosine), at<float>(k.q_sine)};
    return {keys, k.q_cosine ? queries : keys, at<std::int32_t>(k.first_key)};
  }
  ops::Positions positions(const auto& k) const { return {k.sequence, at<std::int32_t>(k.first_key)}; }
  template <typename E>
  void run(const Rotate& k) const {
    ops::rope_forward(pool_, k.shape, table(k), head_norm<E>(k), at<E>(k.qkv), at<E>(k.qk));
  }
  template <typename E>
  void run(const RotateBackward& k) const {
    ops::rope_backward(pool_, k.shape, table(k), head_norm<E>(k), at<E>(k.qkv), at<E>(k.dqkv), at<float>(k.dq_weight),
                       at<float>(k.dk_weight), gradients(), scratch_);
  }

  template <typename E>
  void run(const Attend& k) const {
    ops::AttentionShape shape = k.shape;
    if (k.cached) {
      shape.key_offset = memory_.words->position;
      shape.keys = shape.key_offset + shape.queries;
    }
    const ops::AttentionInputs<E> in{rows<const E>(k.q), rows<const E>(k.k), rows<const E>(k.v), at<std::int32_t>(k.first_key)};
    if (k.cached && shape.queries == 1 && in.first_key == nullptr) {
      ops::attention_decode<E>(pool_, shape, in, at<E>(k.o.place), at<float>(k.lse), scratch_);
    } else {
      ops::attention_forward<E>(pool_, shape, in, rows<E>(k.o), at<float>(k.lse), scratch_);
    }
  }
  template <typename E>
  void run(const AttendBackward& k) const {
    ops::attention_backward<E>(
        pool_, k.shape, {rows<const E>(k.q), rows<const E>(k.k), rows<const E>(k.v), at<std::int32_t>(k.first_key)},
        {rows<const E>(k.o), at<float>(k.lse), rows<const E>(k.d_o)}, {rows<E>(k.dq), rows<E>(k.dk), rows<E>(k.dv)}, scratch_);
  }
  template <typename E>
  void run(const Sink& k) const {
    ops::sink_forward(pool_, k.shape, at<E>(k.sinks), at<float>(k.lse), at<E>(k.o));
  }
  template <typename E>
  void run(const SinkBackward& k) const {
    ops::sink_backward(pool_, k.shape, at<E>(k.sinks), at<float>(k.lse), at<E>(k.o), at<E>(k.d_o), at<float>(k.dsinks),
                       gradients());
  }
  template <typename E>
  void run(const KeepKeys& k) const {
    const std::int64_t position = memory_.words->position;
    SPILLWAY_CHECK(position >= 0 && position + k.rows <= k.context, "rows {} to {} of a context of {}", position,
                   position + k.rows, k.context);
    E* keys = at<E>(k.cache) + position * k.width;
    E* values = keys + k.context * k.width;
    const ops::AttentionRows<const E> from_keys = rows<const E>(k.k), from_values = rows<const E>(k.v);
    for (std::int64_t row = 0; row < k.rows; ++row) {
      std::copy_n(from_keys.data + row * from_keys.stride, k.width, keys + row * k.width);
      std::copy_n(from_values.data + row * from_values.stride, k.width, values + row * k.width);
    }
  }

  template <typename E>
  void run(const Activate& k) const {
    if (k.gated) {
      ops::gated_forward(pool_, k.activation, k.rows, k.columns, at<E>(k.up), at<E>(k.h));
    } else {
      ops::gelu_forward(pool_, k.activation, k.rows * k.columns, at<E>(k.up), at<E>(k.h));
    }
  }
  template <typename E>
  void run(const ActivateBackward& k) const {
    if (k.gated) {
      ops::gated_backward(pool_, k.activation, k.rows, k.columns, at<E>(k.dh), at<E>(k.up), at<E>(k.dup), at<E>(k.h));
    } else {
      ops::gelu_backward(pool_, k.activation, k.rows * k.columns, at<E>(k.dh), at<E>(k.up), at<E>(k.dup), at<E>(k.h));
    }
  }

  template <typename E>
  void run(const ColumnSums& k) const {
    ops::column_sums(pool_, k.rows, k.columns, at<E>(k.dy), at<float>(k.sums), gradients(), scratch_);
  }
  template <typename E>
  void run(const Round& k) const {
    ops::cast_from_float(pool_, k.elements, at<float>(k.x), at<E>(k.y));
  }

  template <typename E>
  void run(const Dropout& k) const {
    ops::dropout(pool_, k.elements, k.mask, *at<std::uint64_t>(k.key), at<E>(k.x), at<E>(k.y), k.adds);
  }
  template <typename E>
  void run(const LookUp& k) const {
    ops::embedding_forward(pool_, k.rows, k.hidden, at<std::int32_t>(k.tokens), k.tile, at<E>(k.table), at<E>(k.x), k.factor);
  }
  template <typename E>
  void run(const LookUpBackward& k) const {
    ops::embedding_backward(pool_, k.rows, k.hidden, at<std::int32_t>(k.tokens), k.tile, at<E>(k.dx), at<float>(k.dtable),
                            gradients(), k.factor, k.padding);
  }
  template <typename E>
  void run(const AddPositions& k) const {
    ops::position_forward(pool_, k.rows, k.hidden, positions(k), at<E>(k.table), at<E>(k.x));
  }
  template <typename E>
  void run(const AddPositionsBackward& k) const {
    ops::position_backward(pool_, k.rows, k.hidden, positions(k), k.table_rows, at<E>(k.dx), at<float>(k.dtable), gradients());
  }

  template <typename E>
  void run(const LossTile& k) const {
    const ops::SoftmaxState state = softmax_of(k);
    if (k.begins) ops::loss_begin(k.rows, state);
    if (k.cap > 0) ops::softcap(pool_, k.rows * k.tile.rows, k.cap, at<E>(k.logits));
    ops::loss_tile(pool_, k.rows, k.tile, at<E>(k.logits), k.tile.rows, at<std::int32_t>(k.targets), state);
  }
  template <typename E>
  void run(const LossBackward& k) const {
    ops::loss_gradient_tile(pool_, k.rows, k.tile, at<E>(k.logits), k.tile.rows, at<std::int32_t>(k.targets),
                            at<float>(k.log_sum_exp), *at<float>(k.loss_scale), k.cap);
  }
  template <typename E>
  void run(const GiveLogits& k) const {
    const std::int64_t row = *at<std::int64_t>(k.logits_row) - k.first_row;
    if (row < 0 || row >= k.rows) return;
    ops::cast_to_float(pool_, k.columns, at<E>(k.logits) + row * k.columns, at<float>(k.out));
  }
  template <typename E>
  void run(const Cap& k) const {
    ops::softcap(pool_, k.elements, k.cap, at<E>(k.x));
  }

  ops::Routing routing(const auto& k, const ops::RouterShape& shape) const {
    return ops::routing_at(memory_.at(k.routing), shape);
  }
  template <typename E>
  void run(const RouteBackward& k) const {
    std::vector<float> slope(static_cast<std::size_t>(k.shape.experts));
    const auto all = static_cast<double>(k.layers * k.shape.rows);
    const double share = k.batch_share ? static_cast<double>(*at<float>(k.batch_share)) / all : 0;
    const double balance = share * static_cast<double>(k.balance) * static_cast<double>(k.shape.experts) / all;
    for (std::size_t e = 0; k.balance > 0 && e < slope.size(); ++e)
      slope[e] = static_cast<float>(balance * at<double>(k.totals)[e]);
    ops::route_backward(pool_, k.shape, at<float>(k.dweights), at<float>(k.scores), at<float>(k.log_sums), routing(k, k.shape),
                        slope.data(), static_cast<float>(2 * share * static_cast<double>(k.z)), at<E>(k.dlogits));
  }
  template <typename E>
  void run(const Experts& k) const {
    if (k.residual) ops::cast_to_float(pool_, k.shape.router.rows * k.shape.hidden, at<E>(k.residual), at<float>(k.sum));
    ops::experts_forward<E>(
        pool_, engine_, k.shape, k.activation, at<E>(k.x), routing(k, k.shape.router), at<E>(k.weights), at<float>(k.sum),
        {.rows = at<E>(k.rows), .up = at<E>(k.up), .h = at<E>(k.h), .out = at<float>(k.out), .scratch = scratch_});
  }
  template <typename E>
  void run(const ExpertsBackward& k) const {
    const Bytes dx_bytes = k.shape.router.rows * k.shape.hidden * static_cast<Bytes>(sizeof(float));
    if (k.begins) ops::fill_zero(pool_, dx_bytes, at<float>(k.dx));
    ops::experts_backward<E>(pool_, engine_, k.shape, k.activation, at<E>(k.dy), at<E>(k.x), routing(k, k.shape.router),
                             at<E>(k.weights), {at<float>(k.gradients), gradients(), at<float>(k.dx), at<float>(k.dweights)},
                             {.rows = at<E>(k.rows),
                              .drows = at<E>(k.drows),
                              .up = at<E>(k.up),
                              .dup = at<E>(k.dup),
                              .h = at<E>(k.h),
                              .dh = at<E>(k.dh),
                              .out = at<float>(k.out),
                              .scratch = scratch_});
  }

  const ThreadPool& pool_;
  ops::MatmulEngine& engine_;
  const PassMemory& memory_;
  std::byte* scratch_;
};

// True for calls that write logits; they are left out where nobody asks for logits.
bool gives_logits(const Kernel& kernel) {
  if (std::holds_alternative<GiveLogits>(kernel)) return true;
  if (const auto* product = std::get_if<Product>(&kernel)) return product->c.space == Space::logits;
  if (const auto* cap = std::get_if<Cap>(&kernel)) return cap->x.space == Space::logits;
  return false;
}

}  // namespace

namespace {

// The products that a call may run, in each way to store.
std::vector<ops::GemmSpec> products_of(const Product& k) {
  std::vector<ops::GemmSpec> products;
  for (const ops::Store store : {ops::Store::write, ops::Store::add}) {
    if (k.sum != Sum::first_writes && (store == ops::Store::write) != (k.sum == Sum::write)) continue;
    products.push_back(k.spec);
    products.back().store = store;
  }
  return products;
}
std::vector<ops::GemmSpec> products_of(const Experts& k) { return ops::products_of(k); }
std::vector<ops::GemmSpec> products_of(const ExpertsBackward& k) { return ops::products_of(k); }
std::vector<ops::GemmSpec> products_of(const auto&) { return {}; }

// Calls visit(call, products) for the calls of the model's lists; units of the same shape share theirs.
void for_calls(const CompiledModel& model, const auto& visit) {
  std::set<const UnitCode*> visited;
  for (const auto& code : model.code) {
    if (!code || !visited.insert(code.get()).second) continue;
    for (const CallList& list : code->lists) {
      for (const KernelCall& call : list) visit(call, std::visit([](const auto& k) { return products_of(k); }, call.kernel));
    }
  }
}

}  // namespace

std::vector<ops::GemmSpec> products_of(const CompiledModel& model) {
  std::vector<ops::GemmSpec> products;
  for_calls(model, [&](const KernelCall&, const std::vector<ops::GemmSpec>& of_call) {
    for (const ops::GemmSpec& spec : of_call) {
      if (std::ranges::find(products, spec) == products.end()) products.push_back(spec);
    }
  });
  return products;
}

CpuBackend::CpuBackend(const ThreadPool& pool) : pool_(pool), engine_(pool.threads()) {}

void CpuBackend::prepare(const CompiledModel& model) {
  for_calls(model, [&](const KernelCall& call, const std::vector<ops::GemmSpec>& of_call) {
    for (const ops::GemmSpec& spec : of_call) {
      const Bytes needed = engine_.scratch_bytes(spec);
      SPILLWAY_CHECK(needed <= call.scratch_bytes, "a product of {} x {} x {} needs {} bytes of scratch, planned are {}", spec.m,
                     spec.n, spec.k, needed, call.scratch_bytes);
    }
  });
}

void CpuBackend::run(const CallList& list, const PassMemory& memory) {
  for (const KernelCall& call : list) {
    if (memory.logits == nullptr && gives_logits(call.kernel)) continue;
    std::visit(Runner(pool_, engine_, memory, memory.at(call.scratch)), call.kernel);
  }
}

}  // namespace spillway
