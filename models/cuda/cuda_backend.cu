#include "models/cuda/cuda_backend.cuh"

#include <bit>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "memory/base/error.h"
#include "models/cuda/attention.cuh"
#include "models/cuda/attention_sink.cuh"
#include "models/cuda/lookup.cuh"
#include "models/cuda/loss.cuh"
#include "models/cuda/norm.cuh"
#include "models/cuda/pointwise.cuh"
#include "models/cuda/rope.cuh"
#include "models/cuda/with_pack.cuh"
#include "models/expert_pieces.h"

namespace spillway::cuda {
namespace {

// Calls f with the least of some numbers that is not below `wanted`.
template <int first, int... rest, typename F>
void with_least(std::int64_t wanted, const F& f) {
  if constexpr (sizeof...(rest) == 0) {
    SPILLWAY_CHECK(wanted <= first, "a row of {} times what a block takes at a time, where {} is the most", wanted, first);
    f(Int<first>());
  } else if (wanted <= first) {
    f(Int<first>());
  } else {
    with_least<rest...>(wanted, f);
  }
}

// The part of a product that the library computes. It takes a bias and a residual only in C's type; if C is fp32 and they are
// not, they are written to C before.
ops::GemmSpec of_library(ops::GemmSpec spec) {
  if (spec.input != spec.output) spec.has_bias = spec.has_residual = false, spec.ld_residual = 0;
  return spec;
}

class Launcher {
 public:
  Launcher(Queue& queue, Gemm& gemm, HostCopies* copies, const PassMemory& memory, const KernelCall& call)
      : queue_(queue), gemm_(gemm), copies_(copies), memory_(memory), scratch_(memory.at(call.scratch)) {}

  void operator()(const kernels::Product& k) const {
    if (memory_.at(k.c) == nullptr) return;
    const bool adds = k.sum == Sum::add || (k.sum == Sum::first_writes && !memory_.first_micro_batch);
    const ops::GemmSpec spec = of_library(k.spec);
    const bool begins = spec != k.spec;
    SPILLWAY_CHECK(!(adds && begins), "a bias or a residual that is added to sums of another type");
    if (begins) begin_sums(k);
    gemm_.run(spec, adds || begins,
              {.a = k.a.moves_with == ControlWord::none ? memory_.at(k.a) : fetched(k),
               .b = memory_.at(k.b),
               .bias = memory_.at(k.bias),
               .residual = memory_.at(k.residual),
               .c = memory_.at(k.c),
               .workspace = scratch_});
  }

  void operator()(const kernels::Norm& k) const { norm<false>(k, k.epsilon, k.residual); }
  void operator()(const kernels::NormAgain& k) const { norm<true>(k, 0.0f, {}); }
  void operator()(const kernels::NormBackward& k) const {
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      SPILLWAY_CHECK(k.gradient_type == DType::float32 || k.gradient_type == k.type, "a norm's gradient in {}",
                     name_of(k.gradient_type));
      k.gradient_type == DType::float32 ? norm_backward<T, float>(k) : norm_backward<T, T>(k);
    });
  }

  void operator()(const kernels::Rotate& k) const {
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      const T *q_weight = at<T>(k.q_weight), *k_weight = at<T>(k.k_weight);
      const float *cosine = base<float>(k.cosine), *sine = base<float>(k.sine);
      const float *q_cosine = base<float>(k.q_cosine), *q_sine = base<float>(k.q_sine);
      const std::initializer_list<const void*> places{at<T>(k.qkv), at<T>(k.qk), q_weight, k_weight,
                                                      cosine,       sine,        q_cosine, q_sine};
      with_pack<T>({k.shape.dimension / 2}, places, [&]<int n>(Int<n>) {
        Rotate<T, n> kernel{.of = rope<T, n>(k), .qkv = at<T>(k.qkv), .qk = at<T>(k.qk)};
        launch(queue_, {blocks_for(k.shape.n * (k.shape.heads + k.shape.kv_heads), kernel.kThreads / kernel.of.lanes)}, kernel);
      });
    });
  }
  void operator()(const kernels::RotateBackward& k) const {
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      const T *q_weight = at<T>(k.q_weight), *k_weight = at<T>(k.k_weight);
      const float *cosine = base<float>(k.cosine), *sine = base<float>(k.sine);
      const float *q_cosine = base<float>(k.q_cosine), *q_sine = base<float>(k.q_sine);
      const std::initializer_list<const void*> places{at<T>(k.qkv), at<T>(k.dqkv), q_weight, k_weight,
                                                      cosine,       sine,          q_cosine, q_sine};
      with_pack<T>({k.shape.dimension / 2}, places, [&]<int n>(Int<n>) {
        RotateBackward<T, n> kernel{.of = rope<T, n>(k), .qkv = at<T>(k.qkv), .dqkv = at<T>(k.dqkv), .partial = floats(scratch_)};
        const std::int64_t blocks = blocks_for(k.shape.n, kRopeRows), D = k.shape.dimension;
        const bool has_norms = kernel.of.q_weight != nullptr;
        launch(queue_, {blocks, has_norms ? kernel.shared_bytes(kernel.of.lanes, D) : 0}, kernel);
        if (!has_norms) return;
        sum_partials(k.dq_weight, blocks, D, 2 * D, 0);
        sum_partials(k.dk_weight, blocks, D, 2 * D, D);
      });
    });
  }

  void operator()(const kernels::Attend& k) const {
    AttentionArguments arguments = attention(k);
    if (k.cached) arguments.position = word(ControlWord::position);
    attend(queue_, arguments);
  }
  void operator()(const kernels::AttendBackward& k) const {
    AttentionArguments arguments = attention(k);
    arguments.d_o = rows(k.d_o), arguments.dq = rows(k.dq), arguments.dk = rows(k.dk), arguments.dv = rows(k.dv);
    arguments.delta = floats(scratch_);
    attend_backward(queue_, arguments);
  }
  void operator()(const kernels::Sink& k) const {
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      const std::int64_t heads = k.shape.sequences * k.shape.queries * k.shape.heads;
      launch(queue_, {blocks_for(heads, WeighSink<T>::kHeadsOfBlock)},
             WeighSink<T>{{k.shape, at<T>(k.sinks), at<float>(k.lse)}, heads, at<T>(k.o)});
    });
  }
  void operator()(const kernels::SinkBackward& k) const {
    if (memory_.at(k.dsinks) == nullptr) return;
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      launch(queue_, {k.shape.heads, SinkGradient<T>::kShared},
             SinkGradient<T>{{k.shape, at<T>(k.sinks), at<float>(k.lse)},
                             at<T>(k.o),
                             at<T>(k.d_o),
                             at<float>(k.dsinks),
                             !memory_.first_micro_batch});
    });
  }
  void operator()(const kernels::KeepKeys& k) const {
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      const T *keys = at<T>(k.k.place), *values = at<T>(k.v.place);
      with_pack<T>({k.width, k.k.stride, k.v.stride}, {keys, values, at<T>(k.cache)}, [&]<int n>(Int<n>) {
        launch_over(k.rows * k.width / n, KeepKeys<T, n>{k.rows, k.width, k.context, k.k.stride, k.v.stride, keys, values,
                                                         word(ControlWord::position), at<T>(k.cache)});
      });
    });
  }

  void operator()(const kernels::Activate& k) const {
    with_activation(k.type, k.activation, [&]<typename T, Activation activation>(std::type_identity<T>, Chosen<activation>) {
      with_pack<T>({k.columns}, {at<T>(k.up), at<T>(k.h)}, [&]<int n>(Int<n>) {
        const std::int64_t packs = k.rows * k.columns / n;
        launch_over(packs, Activate<T, n, activation>{packs, k.columns, k.gated, at<T>(k.up), at<T>(k.h)});
      });
    });
  }
  void operator()(const kernels::ActivateBackward& k) const {
    with_activation(k.type, k.activation, [&]<typename T, Activation activation>(std::type_identity<T>, Chosen<activation>) {
      with_pack<T>({k.columns}, {at<T>(k.dh), at<T>(k.up), at<T>(k.dup), at<T>(k.h)}, [&]<int n>(Int<n>) {
        const std::int64_t packs = k.rows * k.columns / n;
        launch_over(packs, ActivateBackward<T, n, activation>{packs, k.columns, k.gated, at<T>(k.dh), at<T>(k.up), at<T>(k.dup),
                                                              at<T>(k.h)});
      });
    });
  }

  void operator()(const kernels::ColumnSums& k) const {
    if (memory_.at(k.sums) == nullptr) return;
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      with_pack<T>({k.columns}, {at<T>(k.dy)}, [&]<int n>(Int<n>) {
        using Kernel = ColumnSums<T, n>;
        const std::int64_t parts = blocks_for(k.rows, kSummedRows);
        launch(queue_, {parts * blocks_for(k.columns, Kernel::kColumns), Kernel::kShared},
               Kernel{k.rows, k.columns, at<T>(k.dy), floats(scratch_)});
        sum_partials(k.sums, parts, k.columns, k.columns, 0);
      });
    });
  }
  void operator()(const kernels::Round& k) const {
    with_type(k.type, [&]<typename T>(std::type_identity<T>) { scale<float, T>(k.elements, 1.0f, at<float>(k.x), at<T>(k.y)); });
  }

  void operator()(const kernels::Dropout& k) const {
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      with_pack<T>({k.elements}, {at<T>(k.x), at<T>(k.y)}, [&]<int n>(Int<n>) {
        launch_over(k.elements / n, Dropout<T, n>{.packs = k.elements / n,
                                                  .mask = k.mask,
                                                  .threshold = k.mask.threshold(),
                                                  .factor = k.mask.factor(),
                                                  .adds = k.adds,
                                                  .key = at<std::uint64_t>(k.key),
                                                  .x = at<T>(k.x),
                                                  .y = at<T>(k.y)});
      });
    });
  }

  void operator()(const kernels::LookUp& k) const {
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      with_pack<T>({k.hidden}, {at<T>(k.table), at<T>(k.x)}, [&]<int n>(Int<n>) {
        launch_over(k.rows * k.hidden / n,
                    LookUp<T, n>{k.rows, k.hidden, k.tile, k.factor, at<std::int32_t>(k.tokens), at<T>(k.table), at<T>(k.x)});
      });
    });
  }
  void operator()(const kernels::LookUpBackward& k) const {
    float* const dtable = at<float>(k.dtable);
    const auto* tokens = at<std::int32_t>(k.tokens);
    auto* const next = reinterpret_cast<std::int32_t*>(scratch_);
    if (memory_.first_micro_batch) launch_over(k.tile.rows * k.hidden, Zero{k.tile.rows * k.hidden, dtable});
    launch(queue_, {blocks_for(k.rows, SamePlaces::kThreads), SamePlaces::kShared},
           SamePlaces{k.rows, k.tile, k.padding, tokens, next, next + k.rows});
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      with_pack<T>({k.hidden}, {at<T>(k.dx), dtable}, [&]<int n>(Int<n>) {
        launch_over(k.rows * k.hidden / n,
                    LookUpBackward<T, n>{k.rows, k.hidden, k.tile, k.factor, tokens, next, next + k.rows, at<T>(k.dx), dtable});
      });
    });
  }
  void operator()(const kernels::AddPositions& k) const {
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      with_pack<T>({k.hidden}, {base<T>(k.table), at<T>(k.x)}, [&]<int n>(Int<n>) {
        launch_over(k.rows * k.hidden / n, AddPositions<T, n>{k.rows, k.hidden, k.sequence, moving<T>(k.table), at<T>(k.x),
                                                              at<std::int32_t>(k.first_key)});
      });
    });
  }
  void operator()(const kernels::AddPositionsBackward& k) const {
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      with_pack<T>({k.hidden}, {at<T>(k.dx), at<float>(k.dtable)}, [&]<int n>(Int<n>) {
        launch_over(k.table_rows * k.hidden / n,
                    AddPositionsBackward<T, n>{k.rows, k.hidden, k.sequence, k.table_rows, at<T>(k.dx), at<float>(k.dtable),
                                               !memory_.first_micro_batch, at<std::int32_t>(k.first_key)});
      });
    });
  }

  void operator()(const kernels::LossTile& k) const {
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      with_pack<T>({k.tile.rows}, {at<T>(k.logits)}, [&]<int n>(Int<n>) {
        launch(queue_, {k.rows, LossTile<T, n>::kShared},
               LossTile<T, n>{k.tile, k.begins, k.cap, at<T>(k.logits), at<std::int32_t>(k.targets), at<float>(k.maximum),
                              at<float>(k.sum), at<float>(k.target_logit)});
      });
    });
  }
  void operator()(const kernels::LossFinish& k) const {
    launch(queue_, {1, LossFinish::kShared},
           LossFinish{k.rows, k.begins, at<std::int32_t>(k.targets), at<float>(k.maximum), at<float>(k.sum),
                      at<float>(k.target_logit), at<float>(k.log_sum_exp), at<double>(k.loss_sum)});
  }
  void operator()(const kernels::LossBackward& k) const {
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      with_pack<T>({k.tile.rows}, {at<T>(k.logits)}, [&]<int n>(Int<n>) {
        launch_over(k.rows * k.tile.rows / n,
                    LossBackward<T, n>{k.rows, k.tile, k.cap, at<T>(k.logits), at<std::int32_t>(k.targets),
                                       at<float>(k.log_sum_exp), at<float>(k.loss_scale)});
      });
    });
  }
  void operator()(const kernels::GiveLogits& k) const {
    if (memory_.at(k.out) == nullptr) return;
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      launch_over(k.columns, GiveLogits<T>{k.first_row, k.rows, k.columns, at<T>(k.logits), at<std::int64_t>(k.logits_row),
                                           at<float>(k.out)});
    });
  }
  void operator()(const kernels::Cap& k) const {
    if (memory_.at(k.x) == nullptr) return;
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      with_pack<T>({k.elements}, {at<T>(k.x)},
                   [&]<int n>(Int<n>) { launch_over(k.elements / n, Cap<T, n>{k.elements / n, k.cap, at<T>(k.x)}); });
    });
  }
  void operator()(const auto& of_mixture) const {
    run({queue_, gemm_, memory_, scratch_, copies_, [this](const kernels::Activate& k) { (*this)(k); },
         [this](const kernels::ActivateBackward& k) { (*this)(k); }},
        of_mixture);
  }

 private:
  // --- operands ---

  template <typename T>
  T* at(const Place& place) const {
    return reinterpret_cast<T*>(memory_.at(place));
  }
  static float* floats(std::byte* at) { return reinterpret_cast<float*>(at); }
  const std::int64_t* word(ControlWord which) const { return at<std::int64_t>(place_of(which)); }
  // The address of an operand for the word 0; the device adds the rest if the operand moves with a word.
  template <typename T>
  T* base(Place place) const {
    place.moves_with = ControlWord::none;
    return at<T>(place);
  }
  template <typename T>
  Moving<T> moving(const Place& place) const {
    if (place.moves_with == ControlWord::none) return {base<T>(place)};
    return {base<T>(place), word(place.moves_with), place.stride / static_cast<Bytes>(sizeof(T))};
  }

  AttentionRows rows(const kernels::Rows& of) const { return {memory_.at(of.place), of.stride}; }
  AttentionArguments attention(const auto& k) const {
    return {.type = k.type,
            .shape = k.shape,
            .q = rows(k.q),
            .k = rows(k.k),
            .v = rows(k.v),
            .o = rows(k.o),
            .lse = at<float>(k.lse),
            .first_key = at<std::int32_t>(k.first_key)};
  }

  // The library wants an address, and only the device knows the word that A moves with: A's one row is copied behind the
  // workspace.
  std::byte* fetched(const kernels::Product& k) const {
    SPILLWAY_CHECK(k.spec.m == 1, "a product of {} rows that move with a word", k.spec.m);
    std::byte* const to = scratch_ + Gemm::kWorkspaceBytes;
    with_type(k.spec.input, [&]<typename T>(std::type_identity<T>) {
      launch_over(k.spec.k, CopyMoving<T>{k.spec.k, moving<T>(k.a), reinterpret_cast<T*>(to)});
    });
    return to;
  }

  void begin_sums(const kernels::Product& k) const {
    const ops::GemmSpec& s = k.spec;
    SPILLWAY_CHECK(s.ldc == s.n && (!s.has_residual || s.ld_residual == s.n), "sums that are part of a wider matrix");
    with_type(s.input, [&]<typename T>(std::type_identity<T>) {
      if constexpr (!std::is_same_v<T, float>) {
        const T *bias = at<T>(k.bias), *residual = at<T>(k.residual);
        with_pack<float>({s.n}, {bias, residual, at<float>(k.c)}, [&]<int n>(Int<n>) {
          launch_over(s.m * s.n / n, BeginSums<T, n>{s.m * s.n / n, s.n, bias, residual, at<float>(k.c)});
        });
      }
    });
  }

  // --- launches ---

  template <typename K>
  void launch_over(std::int64_t items, const K& kernel) const {
    if (items > 0) launch(queue_, {blocks_for(items, K::kThreads)}, kernel);
  }
  void sum_partials(const Place& to, std::int64_t count, std::int64_t columns, std::int64_t stride, std::int64_t first) const {
    if (memory_.at(to) == nullptr) return;
    launch(queue_, {blocks_for(columns, SumPartials::kColumns), SumPartials::kShared},
           SumPartials{count, columns, stride, floats(scratch_) + first, at<float>(to), !memory_.first_micro_batch});
  }
  template <typename From, typename To>
  void scale(std::int64_t elements, float factor, const From* x, To* y) const {
    using Wider = std::conditional_t<(sizeof(From) > sizeof(To)), From, To>;
    with_pack<Wider>({elements}, {x, y},
                     [&]<int n>(Int<n>) { launch_over(elements / n, Scale<From, To, n>{elements / n, factor, x, y}); });
  }

  template <Activation activation>
  using Chosen = std::integral_constant<Activation, activation>;
  template <typename F>
  static void with_activation(DType type, Activation activation, const F& f) {
    with_type(type, [&]<typename T>(std::type_identity<T> of) {
      switch (activation) {
        case Activation::silu: return f(of, Chosen<Activation::silu>());
        case Activation::gelu_tanh: return f(of, Chosen<Activation::gelu_tanh>());
        case Activation::gelu_erf: return f(of, Chosen<Activation::gelu_erf>());
        case Activation::clamped_swiglu: return f(of, Chosen<Activation::clamped_swiglu>());
      }
    });
  }

  template <bool again, typename K>
  void norm(const K& k, float epsilon, const Place& residual) const {
    with_type(k.type, [&]<typename T>(std::type_identity<T>) {
      const std::int64_t stride = k.stride > 0 ? k.stride : k.hidden;
      const NormArguments<T> of{k.rows,
                                k.hidden,
                                stride,
                                epsilon,
                                k.offset,
                                at<T>(k.x),
                                at<T>(k.weight),
                                at<T>(k.bias),
                                at<T>(residual),
                                at<T>(k.y),
                                at<float>(k.statistics)};
      with_pack<T>({k.hidden, stride}, {of.x, of.weight, of.bias, of.residual, of.y}, [&]<int n>(Int<n>) {
        using Kernel = NormForward<T, n, again>;
        launch(queue_, {blocks_for(k.rows, Kernel::kRowsOfBlock)}, Kernel{of});
      });
    });
  }

  template <typename T, typename G>
  void norm_backward(const kernels::NormBackward& k) const {
    const std::int64_t stride = k.stride > 0 ? k.stride : k.hidden;
    const NormBackwardArguments<T, G> of{.rows = k.rows,
                                         .hidden = k.hidden,
                                         .stride = stride,
                                         .offset = k.offset,
                                         .dy = at<G>(k.dy),
                                         .x = at<T>(k.x),
                                         .weight = at<T>(k.weight),
                                         .residual_gradient = at<T>(k.residual_gradient),
                                         .statistics = at<float>(k.statistics),
                                         .dx = at<T>(k.dx),
                                         .partial = floats(scratch_)};
    const std::int64_t blocks = blocks_for(k.rows, kNormRows);
    using Wider = std::conditional_t<(sizeof(T) > sizeof(G)), T, G>;
    with_pack<Wider>({k.hidden, stride}, {of.dy, of.x, of.weight, of.residual_gradient, of.dx}, [&]<int n>(Int<n>) {
      constexpr int threads = 256;
      const std::int64_t sweeps = blocks_for(k.hidden, threads * n);
      if (k.bias) {
        with_least<1, 2, 4, 8>(sweeps, [&]<int s>(Int<s>) { launch_norm_backward<NormBackward<T, G, n, s, true>>(blocks, of); });
      } else {
        with_least<1, 2, 4, 8, 16>(sweeps,
                                   [&]<int s>(Int<s>) { launch_norm_backward<NormBackward<T, G, n, s, false>>(blocks, of); });
      }
    });
    sum_partials(k.dweight, blocks, k.hidden, k.hidden, 0);
    if (k.bias) sum_partials(k.dbias, blocks, k.hidden, k.hidden, blocks * k.hidden);
  }
  template <typename K>
  void launch_norm_backward(std::int64_t blocks, const auto& of) const {
    launch(queue_, {blocks, K::kShared}, K{of});
  }

  template <typename T, int n>
  RopeArguments<T, n> rope(const auto& k) const {
    const auto lanes = static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(blocks_for(k.shape.dimension / 2, n))));
    SPILLWAY_CHECK(lanes <= 32, "rotary positions of heads of {}", k.shape.dimension);
    SPILLWAY_CHECK(k.shape.n * (k.shape.heads + 2 * k.shape.kv_heads) <= std::numeric_limits<int>::max(),
                   "rotary positions of {} rows of {} heads", k.shape.n, k.shape.heads + 2 * k.shape.kv_heads);
    return {.shape = k.shape,
            .lanes = lanes,
            .cosine = moving<float>(k.cosine),
            .sine = moving<float>(k.sine),
            .q_cosine = moving<float>(k.q_cosine ? k.q_cosine : k.cosine),
            .q_sine = moving<float>(k.q_sine ? k.q_sine : k.sine),
            .q_weight = at<T>(k.q_weight),
            .k_weight = at<T>(k.k_weight),
            .first_key = at<std::int32_t>(k.first_key)};
  }

  Queue& queue_;
  Gemm& gemm_;
  HostCopies* const copies_;
  const PassMemory& memory_;
  std::byte* const scratch_;
};

// The products that a call of a mixture may run; how they store is said where they run.
std::vector<ops::GemmSpec> products_of(const auto& k) {
  if constexpr (requires { ops::products_of(k); }) {
    std::vector<ops::GemmSpec> products = ops::products_of(k);
    std::erase_if(products, [](const ops::GemmSpec& spec) { return spec.store == ops::Store::add; });
    return products;
  } else {
    return {};
  }
}

}  // namespace

void CudaBackend::prepare(const CompiledModel& model) {
  for (const auto& code : model.code) {
    for (const CallList& list : code ? std::span(code->lists) : std::span<const CallList>()) {
      for (const KernelCall& call : list) {
        if (const auto* product = std::get_if<kernels::Product>(&call.kernel)) gemm_.prepare(of_library(product->spec));
        for (const ops::GemmSpec& spec : std::visit([](const auto& k) { return products_of(k); }, call.kernel))
          gemm_.prepare(spec);
      }
    }
  }
}

void CudaBackend::run(const CallList& list, const PassMemory& memory) {
  for (const KernelCall& call : list) std::visit(Launcher(queue_, gemm_, copies_, memory, call), call.kernel);
}

}  // namespace spillway::cuda
