// Trains a compiled model the plainest way: every value in a vector of its own, all units forward and backward, AdamW in scalar
// loops. Memory that a unit must not read is garbage: values, gradients and workspaces begin as NaNs. Memory that it must not
// write is guarded.
// Not here: anything fast, and tiers.
//
// Legend: B sequences of T tokens a micro-batch, n = B * T, P elements of a block.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/base/bfloat16.h"
#include "memory/base/error.h"
#include "models/build.h"
#include "models/cpu/cpu_backend.h"
#include "models/cpu/cpu_scratch.h"
#include "models/weights_io.h"

namespace spillway::testing {

// Bytes at a multiple of 64, as the executor gives them, and a guard behind them.
class Buffer {
 public:
  explicit Buffer(Bytes bytes)
      : bytes_(static_cast<std::size_t>(bytes)), data_(new(std::align_val_t{64}) std::byte[bytes_ + kGuard]) {
    std::memset(data_.get() + bytes_, kGuardByte, kGuard);
    spoil();
  }
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return bytes_; }
  void spoil() { std::memset(data_.get(), 0xff, bytes_); }  // NaNs in fp32 and in bf16
  bool is_guard_whole() const {
    return std::all_of(data_.get() + bytes_, data_.get() + bytes_ + kGuard,
                       [](std::byte b) { return b == std::byte{kGuardByte}; });
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr unsigned char kGuardByte = 0xa5;
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

struct AdamSettings {
  double lr = 0, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, decay = 0.1, clip = 0;
};

enum class SavedValues { kept, recomputed };

class InCoreRunner {
 public:
  // Runs on the CPU's backend with `threads` threads, or on the given backend, which must outlive the runner.
  InCoreRunner(const ModelConfig& config, const BuildOptions& options, const Cuts& cuts, int threads = 2,
               Backend* backend = nullptr)
      : pool_(std::make_unique<ThreadPool>(threads)),
        cpu_(std::make_unique<CpuBackend>(*pool_)),
        backend_(backend != nullptr ? backend : cpu_.get()),
        model_(build_model_with_cuts(config, with_scratch(options, threads), cuts)),
        config_(config) {
    backend_->prepare(model_);
    constants_.emplace(model_.constants.bytes);
    if (model_.constants.bytes > 0) model_.constants.fill({constants_->data(), constants_->size()});
    const UnitGraph& graph = model_.graph;
    for (const ParameterBlock& block : graph.blocks) {
      master_.emplace_back(static_cast<std::size_t>(block.elements));
      first_moment_.emplace_back(static_cast<std::size_t>(block.elements), 0.0f);
      second_moment_.emplace_back(static_cast<std::size_t>(block.elements), 0.0f);
      gradient_.emplace_back(static_cast<std::size_t>(block.elements));
      weights_.emplace_back(block.elements * size_of(graph.dtype));
    }
    for (const Value& value : graph.values) values_.emplace_back(value.bytes);
    for (const Unit& unit : graph.units) {
      std::vector<Buffer> sums;
      for (const int block : unit.gradient_blocks) sums.emplace_back(4 * graph.blocks[static_cast<std::size_t>(block)].elements);
      unit_gradients_.push_back(std::move(sums));
    }
  }

  const UnitGraph& graph() const { return model_.graph; }

  // `adapter`: where the model has one; else it is drawn.
  void load(const SafetensorsReader& reader, const SafetensorsReader* adapter = nullptr) {
    check_weights(reader, config_, graph());
    if (adapter != nullptr) check_adapter_weights(*adapter, graph());
    for (std::size_t b = 0; b < master_.size(); ++b) {
      const ParameterBlock& block = graph().blocks[b];
      const SafetensorsReader* const from = block.of_adapter ? adapter : &reader;
      if (from == nullptr) {
        initial_block_range(config_, block, 1, 0, master_[b]);
      } else {
        read_block_range(*from, block, 0, master_[b]);
      }
    }
    round_weights();
  }
  void draw(std::uint64_t seed) {
    for (std::size_t b = 0; b < master_.size(); ++b) initial_block_range(config_, graph().blocks[b], seed, 0, master_[b]);
    round_weights();
  }

  // Masters and the last step's gradients, by tensor, in the model file's layout.
  std::map<std::string, std::vector<float>> parameters() const { return by_tensor(master_); }
  std::map<std::string, std::vector<float>> gradients() const { return by_tensor(gradient_); }
  // masters += factor * direction[tensor], then weights are rounded again.
  void move(const std::map<std::string, std::vector<float>>& direction, double factor) {
    for (std::size_t b = 0; b < master_.size(); ++b) {
      for (const TensorPiece& piece : graph().blocks[b].pieces) {
        const auto found = direction.find(piece.tensor);
        if (found == direction.end()) continue;
        for (std::int64_t i = 0; i < piece.elements(); ++i) {
          master_[b][static_cast<std::size_t>(piece.begin + i)] +=
              static_cast<float>(factor * found->second[static_cast<std::size_t>(file_place(piece, i))]);
        }
      }
    }
    round_weights();
  }

  // Runs the forward alone. Returns the mean loss; values stay to be looked at.
  double loss(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
    begin_micro_batch();
    words_ = {.dropout = dropout_};
    run_forward(tokens.data(), targets.data());
    return words_.loss_sum / counted(targets) + router_losses();
  }
  std::vector<float> value(const std::string& name) const {
    for (std::size_t v = 0; v < values_.size(); ++v) {
      if (graph().values[v].name != name) continue;
      std::vector<float> result(values_[v].size() / static_cast<std::size_t>(size_of(graph().dtype)));
      for (std::size_t i = 0; i < result.size(); ++i) {
        if (graph().dtype == DType::float32) {
          result[i] = reinterpret_cast<const float*>(values_[v].data())[i];
        } else {
          result[i] = reinterpret_cast<const BFloat16*>(values_[v].data())[i].to_float();
        }
      }
      return result;
    }
    throw Error(1, "no value " + name, "");
  }

  // The key of dropout for what runs from now on; 0: nothing is dropped.
  void set_dropout(std::uint64_t key) { dropout_ = key; }
  // Where each position's document begins, for what runs from now on: [n], of a model of packs and one micro-batch.
  void set_documents(std::vector<std::int32_t> documents) { documents_ = std::move(documents); }

  // Returns the loss of a batch of [micro-batches, n] tokens, and leaves its gradients in gradients().
  double backward(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                  SavedValues saved = SavedValues::kept) {
    const auto n = static_cast<std::size_t>(graph().rows);
    SPILLWAY_CHECK(tokens.size() % n == 0 && tokens.size() == targets.size(), "{} tokens", tokens.size());
    const float scale = static_cast<float>(1.0 / counted(targets));
    for (std::vector<Buffer>& sums : unit_gradients_) {
      for (Buffer& sum : sums) sum.spoil();
    }
    double total = 0, of_routers = 0;
    const double share = static_cast<double>(n) / static_cast<double>(tokens.size());
    for (std::size_t begin = 0; begin < tokens.size(); begin += n) {
      begin_micro_batch();
      words_ = {.loss_sum = std::nan(""),
                .loss_scale = scale,
                .dropout = dropout_,
                .batch_share = static_cast<float>(share),
                .router_fault = -1,
                .balance_loss = std::nan(""),
                .router_z_loss = std::nan("")};
      run_forward(tokens.data() + begin, targets.data() + begin);
      run_backward(tokens.data() + begin, targets.data() + begin, saved, begin == 0);
      total += words_.loss_sum;
      of_routers += share * router_losses();
    }
    add_unit_gradients();
    return total / counted(targets) + of_routers;
  }
  // Of the last micro-batch.
  const MicroBatchWords& words() const { return words_; }

  // sqrt of the sum over all tensors.
  double gradient_norm() const {
    double sum = 0;
    for (const auto& [name, values] : gradients()) {
      for (const float g : values) sum += static_cast<double>(g) * g;
    }
    return std::sqrt(sum);
  }

  void update(const AdamSettings& settings) {
    ++steps_;
    const double factor = settings.clip > 0 ? std::min(1.0, settings.clip / (gradient_norm() + 1e-6)) : 1.0;
    const auto b1 = static_cast<float>(settings.beta1), b2 = static_cast<float>(settings.beta2);
    const double correction1 = 1 - std::pow(settings.beta1, steps_), correction2 = 1 - std::pow(settings.beta2, steps_);
    for (std::size_t b = 0; b < master_.size(); ++b) {
      if (graph().blocks[b].frozen) continue;
      for (const TensorPiece& piece : graph().blocks[b].pieces) {
        for (std::int64_t e = piece.begin; e < piece.begin + piece.elements(); ++e) {
          const auto i = static_cast<std::size_t>(e);
          const float g = gradient_[b][i] * static_cast<float>(factor);
          float& m = first_moment_[b][i];
          float& v = second_moment_[b][i];
          m = b1 * m + (1 - b1) * g;
          v = b2 * v + (1 - b2) * g * g;
          double p = master_[b][i];
          if (piece.decay == Decay::applied) p *= 1 - settings.lr * settings.decay;
          p -= settings.lr * (m / correction1) / (std::sqrt(v / correction2) + settings.epsilon);
          master_[b][i] = static_cast<float>(p);
        }
      }
    }
    round_weights();
  }

 private:
  static BuildOptions with_scratch(BuildOptions options, int threads) {
    options.scratch = cpu_scratch_bound(traits_of_this_cpu(threads));
    return options;
  }
  static double counted(std::span<const std::int32_t> targets) {
    return static_cast<double>(std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t != -100; }));
  }

  // The place of a piece's element i in the file's tensor, by the definition in memory/plan/unit.h.
  static std::int64_t file_place(const TensorPiece& piece, std::int64_t i) {
    const std::int64_t r = piece.file_row(i / piece.columns), c = piece.column_begin + i % piece.columns;
    const std::int64_t width = piece.file_shape.size() < 2 ? 1 : piece.file_shape.back();
    return piece.layout == FileLayout::as_stored ? r * width + c : c * width + r;
  }

  std::map<std::string, std::vector<float>> by_tensor(const std::vector<std::vector<float>>& blocks) const {
    std::map<std::string, std::vector<float>> tensors;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      for (const TensorPiece& piece : graph().blocks[b].pieces) {
        std::vector<float>& tensor = tensors[piece.tensor];
        const std::int64_t elements =
            std::accumulate(piece.file_shape.begin(), piece.file_shape.end(), std::int64_t{1}, std::multiplies<>());
        if (tensor.empty()) tensor.assign(static_cast<std::size_t>(elements), std::nanf(""));
        for (std::int64_t i = 0; i < piece.elements(); ++i) {
          tensor[static_cast<std::size_t>(file_place(piece, i))] = blocks[b][static_cast<std::size_t>(piece.begin + i)];
        }
      }
    }
    return tensors;
  }

  void round_weights() {
    for (std::size_t b = 0; b < master_.size(); ++b) {
      for (std::size_t i = 0; i < master_[b].size(); ++i) {
        if (graph().dtype == DType::float32) {
          reinterpret_cast<float*>(weights_[b].data())[i] = master_[b][i];
        } else {
          reinterpret_cast<BFloat16*>(weights_[b].data())[i] = BFloat16::from_float(master_[b][i]);
        }
      }
    }
  }

  void begin_micro_batch() {
    for (Buffer& value : values_) value.spoil();
  }

  // Runs one pass of a unit with its operands; a use for which `null_if` is true gets a null.
  template <typename NullIf>
  void call_unit(std::size_t u, const std::vector<ValueUse>& uses, Bytes workspace_bytes, PassMemory call, NullIf null_if,
                 Pass pass) {
    const Unit& unit = graph().units[u];
    std::vector<std::byte*> values;
    std::vector<const std::byte*> weights;
    std::vector<float*> gradients;
    for (const ValueUse& use : uses)
      values.push_back(null_if(use) ? nullptr : values_[static_cast<std::size_t>(use.value)].data());
    for (const int block : unit.blocks) weights.push_back(weights_[static_cast<std::size_t>(block)].data());
    for (const Buffer& sum : unit_gradients_[u]) gradients.push_back(reinterpret_cast<float*>(sum.data()));
    Buffer workspace(workspace_bytes);
    call.values = values;
    call.weights = weights;
    call.gradients = gradients;
    call.workspace = workspace.data();
    call.constants = constants_->data();
    backend_->run((*model_.code[u])[pass], call);
    SPILLWAY_CHECK(workspace.is_guard_whole(), "{} wrote behind its workspace", unit.name);
    for (const ValueUse& use : uses) {
      SPILLWAY_CHECK(values_[static_cast<std::size_t>(use.value)].is_guard_whole(), "{} wrote behind {}", unit.name,
                     graph().values[static_cast<std::size_t>(use.value)].name);
    }
    for (const Buffer& sum : unit_gradients_[u]) SPILLWAY_CHECK(sum.is_guard_whole(), "{} wrote behind a gradient", unit.name);
  }

  double router_losses() const {
    const RouterLosses& of = graph().router_losses;
    return (of.any() ? of.balance * words_.balance_loss + of.z * words_.router_z_loss : 0);
  }

  PassMemory call_on(const std::int32_t* tokens, const std::int32_t* targets) {
    PassMemory call;
    call.tokens = tokens;
    call.targets = targets;
    call.documents = documents_.empty() ? nullptr : documents_.data();
    call.words = &words_;
    return call;
  }

  void run_forward(const std::int32_t* tokens, const std::int32_t* targets) {
    for (std::size_t u = 0; u < graph().units.size(); ++u) {
      const Unit& unit = graph().units[u];
      if (unit.role == ForwardRole::merged_into_backward) continue;
      call_unit(
          u, unit.forward, unit.forward_workspace, call_on(tokens, targets), [](const ValueUse&) { return false; },
          Pass::forward);
    }
  }

  void run_backward(const std::int32_t* tokens, const std::int32_t* targets, SavedValues saved, bool first_micro_batch) {
    for (std::size_t u = graph().units.size(); u-- > 0;) {
      const Unit& unit = graph().units[u];
      if (!unit.goes_back()) continue;
      PassMemory call = call_on(tokens, targets);
      call.first_micro_batch = first_micro_batch;
      const bool recomputes = saved == SavedValues::recomputed && !unit.saved.empty();
      if (recomputes) {
        for (const int value : unit.saved) values_[static_cast<std::size_t>(value)].spoil();
      }
      const bool by_itself = recomputes && unit.saved_piece > 0;
      if (recomputes && !by_itself) {
        call_unit(
            u, unit.forward, unit.forward_workspace, call,
            [&](const ValueUse& use) {
              return use.access != Access::read && std::find(unit.saved.begin(), unit.saved.end(), use.value) == unit.saved.end();
            },
            Pass::recompute);
      }
      call_unit(
          u, unit.backward, unit.backward_workspace, call, [](const ValueUse&) { return false; },
          by_itself ? Pass::backward_in_pieces : Pass::backward);
    }
  }

  // A block that two units use has two sums, added once at the end.
  void add_unit_gradients() {
    for (std::vector<float>& gradient : gradient_) std::fill(gradient.begin(), gradient.end(), 0.0f);
    for (std::size_t u = 0; u < unit_gradients_.size(); ++u) {
      for (std::size_t k = 0; k < unit_gradients_[u].size(); ++k) {
        std::vector<float>& gradient = gradient_[static_cast<std::size_t>(graph().units[u].gradient_blocks[k])];
        const float* sum = reinterpret_cast<const float*>(unit_gradients_[u][k].data());
        for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += sum[i];
      }
    }
  }

  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<CpuBackend> cpu_;
  Backend* backend_;
  CompiledModel model_;
  std::optional<Buffer> constants_;
  ModelConfig config_;
  std::vector<std::vector<float>> master_, first_moment_, second_moment_, gradient_;  // [P] per block
  std::vector<Buffer> weights_;                                                       // [P] per block, in the compute type
  std::vector<Buffer> values_;
  std::vector<std::vector<Buffer>> unit_gradients_;  // [P] per unit and gradient block
  std::vector<std::int32_t> documents_;              // [n], or none
  std::uint64_t dropout_ = 0;
  MicroBatchWords words_;
  int steps_ = 0;
};

}  // namespace spillway::testing
