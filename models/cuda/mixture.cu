#include "models/cuda/mixture.cuh"

#include "memory/base/error.h"
#include "models/cuda/expert_rows.cuh"
#include "models/cuda/lookup.cuh"
#include "models/cuda/routing.cuh"
#include "models/cuda/with_pack.cuh"
#include "models/expert_pieces.h"

namespace spillway::cuda {
namespace {

template <typename T>
T* at(const MixtureRun& with, const Place& place) {
  return reinterpret_cast<T*>(with.memory.at(place));
}
ops::Routing routing_of(const MixtureRun& with, const Place& place, const ops::RouterShape& shape) {
  std::byte* const value = with.memory.at(place);
  return ops::routing_at(value, shape);
}

template <typename K>
void launch_over(const MixtureRun& with, std::int64_t items, const K& kernel) {
  if (items > 0) launch(with.queue, {blocks_for(items, K::kThreads)}, kernel);
}

// One call's experts: where their rows are, and the kernels around their products.
class Pieces {
 public:
  Pieces(const MixtureRun& with, const ops::ExpertsShape& shape, DType type, const Place& routing)
      : with_(with), shape_(shape), type_(type), routing_(routing_of(with, routing, shape.router)) {
    SPILLWAY_CHECK(with.copies != nullptr, "a mixture of experts on a backend that brings nothing to the host");
    begins_ = with.copies->fetch(routing_.begins, shape.router.columns() + 1);
  }
  const ops::Routing& routing() const { return routing_; }
  std::int64_t rows_of(std::int64_t expert) const { return begins_[expert + 1] - begins_[expert]; }
  const std::int32_t* places_of(std::int64_t expert) const { return routing_.places + begins_[expert]; }

  void gather(const std::int32_t* places, std::int64_t used, std::int64_t m, const Place& x, const Place& rows) const {
    with_type(type_, [&]<typename T>(std::type_identity<T>) {
      const std::int64_t H = shape_.hidden, k = shape_.router.places();
      const T* const from = at<T>(with_, x);
      T* const to = at<T>(with_, rows);
      with_pack<T>({H}, {from, to},
                   [&]<int n>(Int<n>) { launch_over(with_, m * H / n, GatherRows<T, n>{m, used, H, k, places, from, to}); });
    });
  }
  void add(const std::int32_t* places, std::int64_t used, const float* weights, const std::byte* bias, const Place& out,
           const Place& sum) const {
    with_type(type_, [&]<typename T>(std::type_identity<T>) {
      const std::int64_t H = shape_.hidden, k = shape_.router.places();
      const float* const from = at<float>(with_, out);
      float* const to = at<float>(with_, sum);
      with_pack<float>({H}, {from, to}, [&]<int n>(Int<n>) {
        launch_over(with_, used * H / n, AddRows<T, n>{used, H, k, places, weights, from, reinterpret_cast<const T*>(bias), to});
      });
    });
  }
  void sum(const std::int32_t* places, std::int64_t used, std::int64_t columns, const float* weights, const Place& x, float* sums,
           bool adds) const {
    with_type(type_, [&]<typename T>(std::type_identity<T>) {
      launch_over(with_, ops::padded(columns), SumRows<T>{used, columns, places, weights, at<T>(with_, x), sums, adds});
    });
  }
  void multiply(const ops::GemmSpec& spec, bool adds, const std::byte* a, const std::byte* b, std::byte* c,
                const std::byte* bias = nullptr) const {
    with_.gemm.run(spec, adds, {.a = a, .b = b, .bias = bias, .c = c, .workspace = with_.scratch});
  }
  // An expert's weights on the device; biases are null where there are none.
  struct Weights {
    const std::byte *up, *down, *up_bias, *down_bias;
  };
  Weights weights_of(const Place& all, std::int64_t i) const {
    const std::byte* const begin = place(all) + i * shape_.stride() * size_of(type_);
    const auto from = [&](std::int64_t element) { return begin + element * size_of(type_); };
    return {begin, from(shape_.down()), shape_.biased ? from(shape_.up_bias()) : nullptr,
            shape_.biased ? from(shape_.down_bias()) : nullptr};
  }
  std::byte* place(const Place& of) const { return with_.memory.at(of); }

 private:
  const MixtureRun& with_;
  const ops::ExpertsShape& shape_;
  DType type_;
  ops::Routing routing_;
  const std::int32_t* begins_ = nullptr;
};

}  // namespace

void run(const MixtureRun& with, const kernels::Route& k) {
  const ops::RouterShape& s = k.shape;
  const std::int64_t columns = s.columns(), all = s.rows * s.places();
  const ops::Routing to = routing_of(with, k.routing, s);
  float *const scores = at<float>(with, k.scores), *const log_sums = at<float>(with, k.log_sums);
  launch(with.queue, {blocks_for(s.rows, kRowsOfRouting)}, RouteRows{s, columns, s.places(), scores, log_sums, to});
  launch(with.queue, {columns, CountPlaces::kShared}, CountPlaces{all, to.experts, to.begins});
  launch(with.queue, {1, SumCounts::kShared},
         SumCounts{s.rows, columns, k.layer, k.begins, log_sums, to.begins, at<std::int32_t>(with, k.fault)});
  launch(with.queue, {columns, SortPlaces::kShared}, SortPlaces{all, to.experts, to.begins, to.places});
}

void run(const MixtureRun& with, const kernels::AddRouting& k) {
  const ops::RouterShape& s = k.shape;
  const ops::Routing routing = routing_of(with, k.routing, s);
  double* const totals = at<double>(with, k.totals);
  launch(with.queue, {s.experts, AddTotals::kShared},
         AddTotals{s.rows, s.columns(), s.experts, k.begins, at<float>(with, k.scores), routing.begins, totals});
  launch(with.queue, {1, FinishTotals::kShared},
         FinishTotals{.rows = s.rows,
                      .experts = s.experts,
                      .per_row = s.per_row,
                      .layers = k.layers,
                      .begins_totals = k.begins,
                      .ends = k.ends,
                      .log_sums = at<float>(with, k.log_sums),
                      .begins = routing.begins,
                      .totals = totals,
                      .load = at<double>(with, k.load),
                      .balance_loss = at<double>(with, k.balance_loss),
                      .z_loss = at<double>(with, k.z_loss)});
}

void run(const MixtureRun& with, const kernels::RouteBackward& k) {
  const ops::RouterShape& s = k.shape;
  const auto all = static_cast<double>(k.layers * s.rows);
  const double balance = static_cast<double>(k.balance) * static_cast<double>(s.experts) / (all * all);
  with_type(k.type, [&]<typename T>(std::type_identity<T>) {
    launch(with.queue, {blocks_for(s.rows, kRowsOfRouting)},
           RouteBackward<T>{.shape = s,
                            .columns = s.columns(),
                            .places = s.places(),
                            .balance = static_cast<float>(balance),
                            .z = static_cast<float>(2 * static_cast<double>(k.z) / all),
                            .dweights = at<float>(with, k.dweights),
                            .scores = at<float>(with, k.scores),
                            .log_sums = at<float>(with, k.log_sums),
                            .batch_share = at<float>(with, k.batch_share),
                            .totals = at<double>(with, k.totals),
                            .routing = routing_of(with, k.routing, s),
                            .dlogits = at<T>(with, k.dlogits)});
  });
}

void run(const MixtureRun& with, const kernels::Experts& k) {
  const ops::ExpertsShape& s = k.shape;
  if (k.residual) {
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      const std::int64_t elements = s.router.rows * s.hidden;
      launch_over(with, elements, Scale<T, float, 1>{elements, 1.0f, at<T>(with, k.residual), at<float>(with, k.sum)});
    });
  }
  const Pieces pieces(with, s, k.type, k.routing);
  for (std::int64_t i = 0; i < s.count; ++i) {
    const Pieces::Weights of = pieces.weights_of(k.weights, i);
    const std::int32_t* const all = pieces.places_of(s.first + i);
    ops::for_pieces(s, k.type, pieces.rows_of(s.first + i),
                    [&](std::int64_t first, std::int64_t used, const ops::PieceProducts& products) {
                      pieces.gather(all + first, used, products.m, k.x, k.rows);
                      pieces.multiply(products.up(), false, pieces.place(k.rows), of.up, pieces.place(k.up), of.up_bias);
                      with.activate({k.type, k.activation, true, products.m, s.width, k.up, k.h});
                      pieces.multiply(products.down(), false, pieces.place(k.h), of.down, pieces.place(k.out));
                      pieces.add(all + first, used, pieces.routing().weights, of.down_bias, k.out, k.sum);
                    });
  }
}

void run(const MixtureRun& with, const kernels::ExpertsBackward& k) {
  const ops::ExpertsShape& s = k.shape;
  const std::int64_t elements = s.router.rows * s.hidden;
  if (k.begins) launch_over(with, elements, Zero{elements, at<float>(with, k.dx)});
  const Pieces pieces(with, s, k.type, k.routing);
  for (std::int64_t i = s.count; i-- > 0;) {
    const Pieces::Weights of = pieces.weights_of(k.weights, i);
    float* const gradients = at<float>(with, k.gradients);
    float* const dup = gradients == nullptr ? nullptr : gradients + i * s.stride();
    bool adds = !with.memory.first_micro_batch;
    const std::int32_t* const all = pieces.places_of(s.first + i);
    const std::int64_t rows = pieces.rows_of(s.first + i);
    if (rows == 0 && dup != nullptr && !adds) launch_over(with, s.stride(), Zero{s.stride(), dup});
    const auto of_piece = [&](std::int64_t first, std::int64_t used, const ops::PieceProducts& products) {
      const std::int32_t* const places = all + first;
      pieces.gather(places, used, products.m, k.x, k.rows);
      pieces.gather(places, used, products.m, k.dy, k.drows);
      pieces.multiply(products.up(), false, pieces.place(k.rows), of.up, pieces.place(k.up), of.up_bias);
      pieces.multiply(products.dh(), false, pieces.place(k.drows), of.down, pieces.place(k.dh));
      with.activate_backward({k.type, k.activation, true, products.m, s.width, k.dh, k.up, k.dup, k.h});
      with_type(k.type, [&]<typename T>(std::type_identity<T>) {
        launch(with.queue, {blocks_for(used, WeighRows<T>::kRowsOfBlock)},
               WeighRows<T>{.used = used,
                            .width = s.width,
                            .hidden = s.hidden,
                            .places = places,
                            .weights = pieces.routing().weights,
                            .dh = at<T>(with, k.dh),
                            .dy = at<T>(with, k.drows),
                            .bias = reinterpret_cast<const T*>(of.down_bias),
                            .h = at<T>(with, k.h),
                            .dup = at<T>(with, k.dup),
                            .dweights = at<float>(with, k.dweights)});
      });
      if (dup != nullptr) {
        const auto store = ops::Store::write;
        pieces.multiply(products.down_gradient(store), adds, pieces.place(k.drows), pieces.place(k.h),
                        reinterpret_cast<std::byte*>(dup + s.down()));
        pieces.multiply(products.up_gradient(store), adds, pieces.place(k.dup), pieces.place(k.rows),
                        reinterpret_cast<std::byte*>(dup));
        if (s.biased) {
          pieces.sum(places, used, 2 * s.width, nullptr, k.dup, dup + s.up_bias(), adds);
          pieces.sum(places, used, s.hidden, pieces.routing().weights, k.drows, dup + s.down_bias(), adds);
        }
        adds = true;
      }
      pieces.multiply(products.dx(), false, pieces.place(k.dup), of.up, pieces.place(k.out));
      pieces.add(places, used, nullptr, nullptr, k.out, k.dx);
    };
    ops::for_pieces(s, k.type, rows, of_piece);
  }
}

}  // namespace spillway::cuda
