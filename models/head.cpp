#include "models/head.h"

#include <algorithm>
#include <utility>

#include "memory/error.h"
#include "models/embedding.h"

namespace spillway {
namespace {

struct Strip {
  std::int64_t begin = 0, rows = 0;
};

// The products and loss kernels on one strip of rows and one tile of the vocabulary: all that both modes do.
template <typename E>
class TileKernels {
 public:
  TileKernels(const Compute& compute, std::int64_t hidden, ops::VocabularyTile tile, std::int64_t strip_rows)
      : compute_(compute), hidden_(hidden), tile_(tile), strip_rows_(strip_rows) {}

  const ops::VocabularyTile& tile() const { return tile_; }

  // Compiles what the passes call, and counts it for all n rows.
  void size_logits(PassSize& size) const {
    for (const Strip& strip : strips()) size.gemm(logits_spec(strip.rows));
    size.add_moved(static_cast<double>(compute_.rows * tile_.rows * size_of(compute_.dtype)));
  }
  void size_gradients(PassSize& size, bool is_last_tile) const {
    for (const Strip& strip : strips()) {
      size.gemm(input_spec(strip.rows, is_last_tile));
      size.gemm(weight_spec(strip.rows, ops::Store::write));
      size.gemm(weight_spec(strip.rows, ops::Store::add), 0);  // one of the two runs
    }
    size.add_moved(static_cast<double>(2 * compute_.rows * tile_.rows * size_of(compute_.dtype)));
  }

  void logits(const Strip& strip, const E* x /*[n,H]*/, const E* weight /*[R,H]*/, E* logits /*[S,R]*/,
              std::byte* scratch) const {
    run(logits_spec(strip.rows), {.a = x + strip.begin * hidden_, .b = weight, .c = logits}, scratch);
  }
  // The tile's logits of the row that the call asks for, where the strip has it.
  void give_logits(const Strip& strip, const UnitCall& call, const E* logits /*[S,R]*/) const {
    const std::int64_t row = call.logits_row - strip.begin;
    if (call.logits == nullptr || row < 0 || row >= strip.rows) return;
    ops::cast_to_float(compute_.pool, tile_.rows, logits + row * tile_.rows, call.logits + tile_.first);
  }
  void loss(const Strip& strip, const E* logits /*[S,R]*/, const std::int32_t* targets /*[n]*/,
            const ops::SoftmaxState& state /*of the strip*/) const {
    ops::loss_tile(compute_.pool, strip.rows, tile_, logits, tile_.rows, targets + strip.begin, state);
  }
  // Logits become their gradients; then dx and dweight.
  void gradients(const Strip& strip, const UnitCall& call, const E* x /*[n,H]*/, const E* weight /*[R,H]*/, E* logits /*[S,R]*/,
                 const float* log_sum_exp /*[S]*/, bool is_last_tile, float* dx /*[n,H]*/, float* dweight /*[R,H]*/,
                 std::byte* scratch) const {
    ops::loss_gradient_tile(compute_.pool, strip.rows, tile_, logits, tile_.rows, call.targets + strip.begin, log_sum_exp,
                            call.loss_scale);
    run(input_spec(strip.rows, is_last_tile), {.a = logits, .b = weight, .c = dx + strip.begin * hidden_}, scratch);
    const ops::Store store = strip.begin == 0 ? store_of(call) : ops::Store::add;
    run(weight_spec(strip.rows, store), {.a = logits, .b = x + strip.begin * hidden_, .c = dweight}, scratch);
  }

  std::vector<Strip> strips() const {
    std::vector<Strip> strips;
    for (Strip s = strip_at(0); s.rows > 0; s = strip_at(s.begin + s.rows)) strips.push_back(s);
    return strips;
  }
  // The strip that begins at a row; no rows at the end.
  Strip strip_at(std::int64_t begin) const { return {begin, std::min(strip_rows_, compute_.rows - begin)}; }

 private:
  ops::GemmSpec logits_spec(std::int64_t rows) const { return ops::linear_forward(compute_.dtype, rows, hidden_, tile_.rows); }
  // Backward takes the tiles last to first: the last one writes.
  ops::GemmSpec input_spec(std::int64_t rows, bool is_last_tile) const {
    return ops::linear_input_gradient(compute_.dtype, rows, hidden_, tile_.rows, DType::float32,
                                      is_last_tile ? ops::Store::write : ops::Store::add);
  }
  ops::GemmSpec weight_spec(std::int64_t rows, ops::Store store) const {
    return ops::linear_weight_gradient(compute_.dtype, rows, hidden_, tile_.rows, store);
  }
  void run(const ops::GemmSpec& spec, const ops::GemmOperands& operands, std::byte* scratch) const {
    compute_.engine.run(compute_.pool, spec, operands, scratch);
  }

  Compute compute_;
  std::int64_t hidden_;
  ops::VocabularyTile tile_;
  std::int64_t strip_rows_;
};

// Three arrays of `rows` one after the other, seen from row `begin`.
ops::SoftmaxState softmax_state(float* state /*[3,rows]*/, std::int64_t rows, std::int64_t begin) {
  return {state + begin, state + rows + begin, state + 2 * rows + begin};
}

// Where the values of a tile stand in its calls; -1: the tile has no such value.
struct TilePlaces {
  int x = -1, logits = -1, state = -1, log_sum_exp = -1;                 // forward
  int x_again = -1, logits_again = -1, log_sum_exp_again = -1, dx = -1;  // backward
  bool is_first = false, is_last = false;
};

template <typename E>
class HeadTileOps : public UnitOps {
 public:
  HeadTileOps(const Compute& compute, TileKernels<E> kernels, const TilePlaces& at)
      : compute_(compute), kernels_(std::move(kernels)), at_(at), forward_(compute.engine), backward_(compute.engine) {
    kernels_.size_logits(forward_);
    if (at_.is_last) forward_.add_scratch(ops::loss_finish_scratch_bytes(compute_.rows));
    kernels_.size_gradients(backward_, at_.is_last);
    backward_.add_scratch(forward_.workspace());  // of the logits, where they are made again
  }

  const PassSize& forward_size() const { return forward_; }
  const PassSize& backward_size() const { return backward_; }

  void forward(const UnitCall& call) override {
    const E* x = value_of<E>(call, at_.x);
    float* state = value_of<float>(call, at_.state);
    std::byte* scratch = call.workspace + forward_.scratch_offset();
    const std::int64_t n = compute_.rows;
    double loss = 0;
    for (Strip strip = kernels_.strip_at(0); strip.rows > 0; strip = kernels_.strip_at(strip.begin + strip.rows)) {
      const ops::SoftmaxState rows = softmax_state(state, n, strip.begin);
      E* logits = logits_of(call, at_.logits, strip);
      if (at_.is_first) ops::loss_begin(strip.rows, rows);
      kernels_.logits(strip, x, weights_of<E>(call, 0), logits, scratch);
      kernels_.give_logits(strip, call, logits);
      kernels_.loss(strip, logits, call.targets, rows);
      if (at_.is_last) {
        loss += ops::loss_finish(strip.rows, call.targets + strip.begin, rows,
                                 value_of<float>(call, at_.log_sum_exp) + strip.begin, nullptr, scratch);
      }
    }
    if (at_.is_last) *call.loss_sum = loss;
  }

  void backward(const UnitCall& call) override {
    const E* x = value_of<E>(call, at_.x_again);
    const E* weight = weights_of<E>(call, 0);
    std::byte* scratch = call.workspace + backward_.scratch_offset();
    for (Strip strip = kernels_.strip_at(0); strip.rows > 0; strip = kernels_.strip_at(strip.begin + strip.rows)) {
      E* logits = logits_of(call, at_.logits_again, strip);
      if (!call.keeps_saved) kernels_.logits(strip, x, weight, logits, scratch);
      kernels_.gradients(strip, call, x, weight, logits, value_of<float>(call, at_.log_sum_exp_again) + strip.begin, at_.is_last,
                         value_of<float>(call, at_.dx), gradient_of(call, 0), scratch);
    }
  }

 private:
  // [n,R] where they are kept, else room for [S,R].
  E* logits_of(const UnitCall& call, int place, const Strip& strip) const {
    return value_of<E>(call, place) + (call.keeps_saved ? strip.begin * kernels_.tile().rows : 0);
  }

  Compute compute_;
  TileKernels<E> kernels_;
  TilePlaces at_;
  PassSize forward_, backward_;
};

template <typename E>
class FusedHeadOps : public UnitOps {
 public:
  FusedHeadOps(const Compute& compute, std::vector<TileKernels<E>> kernels, std::int64_t strip_rows)
      : compute_(compute), kernels_(std::move(kernels)), strip_rows_(strip_rows), backward_(compute.engine) {
    for (const TileKernels<E>& tile : kernels_) {
      logits_.push_back(backward_.reserve(strip_rows * tile.tile().rows * size_of(compute.dtype)));
      tile.size_logits(backward_);
      tile.size_gradients(backward_, &tile == &kernels_.back());
    }
    state_ = backward_.reserve(3 * strip_rows * static_cast<Bytes>(sizeof(float)));
    log_sum_exp_ = backward_.reserve(strip_rows * static_cast<Bytes>(sizeof(float)));
    backward_.add_scratch(ops::loss_finish_scratch_bytes(strip_rows));
  }

  const PassSize& backward_size() const { return backward_; }

  void forward(const UnitCall&) override {}

  void backward(const UnitCall& call) override {
    const E* x = value_of<E>(call, 0);
    float* dx = value_of<float>(call, 1);
    float* log_sum_exp = region_of<float>(call, log_sum_exp_);
    std::byte* scratch = call.workspace + backward_.scratch_offset();
    const int tiles = static_cast<int>(kernels_.size());
    const ops::SoftmaxState state = softmax_state(region_of<float>(call, state_), strip_rows_, 0);
    double loss = 0;
    const TileKernels<E>& any = kernels_.front();
    for (Strip strip = any.strip_at(0); strip.rows > 0; strip = any.strip_at(strip.begin + strip.rows)) {
      ops::loss_begin(strip.rows, state);
      for (int i = 0; i < tiles; ++i) {
        E* logits = logits_of(call, i);
        kernel(i).logits(strip, x, weights_of<E>(call, i), logits, scratch);
        kernel(i).loss(strip, logits, call.targets, state);
      }
      loss += ops::loss_finish(strip.rows, call.targets + strip.begin, state, log_sum_exp, nullptr, scratch);
      for (int i = tiles - 1; i >= 0; --i) {
        kernel(i).gradients(strip, call, x, weights_of<E>(call, i), logits_of(call, i), log_sum_exp, i + 1 == tiles, dx,
                            gradient_of(call, i), scratch);
      }
    }
    *call.loss_sum = loss;
  }

 private:
  const TileKernels<E>& kernel(int i) const { return kernels_[static_cast<std::size_t>(i)]; }
  E* logits_of(const UnitCall& call, int i) const { return region_of<E>(call, logits_[static_cast<std::size_t>(i)]); }

  Compute compute_;
  std::vector<TileKernels<E>> kernels_;  // a tile
  std::int64_t strip_rows_;
  PassSize backward_;
  std::vector<Bytes> logits_;          // offsets of [S,R], a tile
  Bytes state_ = 0, log_sum_exp_ = 0;  // offsets of [3,S] and [S]
};

// A tile's logits of one row, not rounded to the compute type.
template <typename E>
class LogitsTileOps : public UnitOps {
 public:
  LogitsTileOps(const Compute& compute, std::int64_t hidden, ops::VocabularyTile tile)
      : compute_(compute), hidden_(hidden), tile_(tile), forward_(compute.engine) {
    ops::GemmSpec spec = ops::linear_forward(compute.dtype, 1, hidden, tile.rows);
    spec.output = DType::float32;
    product_ = forward_.gemm(spec);
  }

  const PassSize& forward_size() const { return forward_; }

  void forward(const UnitCall& call) override {
    if (call.logits == nullptr) return;
    const E* x = value_of<E>(call, 0) + call.logits_row * hidden_;
    compute_.engine.run(compute_.pool, product_, {.a = x, .b = weights_of<E>(call, 0), .c = call.logits + tile_.first},
                        call.workspace + forward_.scratch_offset());
  }

  void backward(const UnitCall&) override { SPILLWAY_CHECK(false, "a head that only gives logits has no backward"); }

 private:
  Compute compute_;
  std::int64_t hidden_;
  ops::VocabularyTile tile_;
  PassSize forward_;
  ops::GemmSpec product_;
};

std::int64_t strip_rows(const ModelBuilder& builder) { return std::min(builder.cuts().head_strip, builder.compute().rows); }

void add_tiled_head(ModelBuilder& builder, NormOutput input, const HeadSpec& spec) {
  const Compute& compute = builder.compute();
  const std::vector<ops::VocabularyTile> tiles = vocabulary_tiles(spec.vocabulary, builder.cuts());
  const Bytes row_bytes = compute.rows * static_cast<Bytes>(sizeof(float));
  const int state = builder.add_value("softmax state", 3 * row_bytes);
  const int log_sum_exp = builder.add_value("log-sum-exp", row_bytes);
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    Unit unit;
    unit.name = fmt::format("head tile {}", i);
    unit.blocks = unit.gradient_blocks = {spec.blocks[i]};
    TilePlaces at;
    at.is_first = i == 0;
    at.is_last = i + 1 == tiles.size();
    const Bytes row_of_logits = tiles[i].rows * size_of(compute.dtype);
    const int logits = builder.add_value(fmt::format("logits {}", i), compute.rows * row_of_logits);
    unit.saved = {logits};
    unit.saved_piece = strip_rows(builder) * row_of_logits;
    at.x = add_use(unit.forward, input.value, Access::read);
    at.logits = add_use(unit.forward, logits, Access::write);
    at.state = add_use(unit.forward, state, at.is_first ? Access::write : Access::update);
    if (at.is_last) at.log_sum_exp = add_use(unit.forward, log_sum_exp, Access::write);
    at.x_again = add_use(unit.backward, input.value, Access::read);
    at.logits_again = add_use(unit.backward, logits, Access::update);  // they become their gradients
    at.log_sum_exp_again = add_use(unit.backward, log_sum_exp, Access::read);
    at.dx = add_use(unit.backward, input.gradient, at.is_last ? Access::write : Access::update);
    auto ops = make_ops(compute.dtype, [&]<typename E>() -> std::unique_ptr<UnitOps> {
      TileKernels<E> kernels(compute, spec.hidden, tiles[i], strip_rows(builder));
      auto head = std::make_unique<HeadTileOps<E>>(compute, kernels, at);
      unit.forward_work = head->forward_size().work();
      unit.backward_work = head->backward_size().work();
      unit.forward_workspace = head->forward_size().workspace();
      unit.backward_workspace = head->backward_size().workspace();
      return head;
    });
    builder.add_unit(std::move(unit), std::move(ops));
  }
}

void add_fused_head(ModelBuilder& builder, NormOutput input, const HeadSpec& spec) {
  const Compute& compute = builder.compute();
  Unit unit;
  unit.name = "head";
  unit.role = ForwardRole::merged_into_backward;
  unit.blocks = unit.gradient_blocks = spec.blocks;
  add_use(unit.backward, input.value, Access::read);
  add_use(unit.backward, input.gradient, Access::write);
  auto ops = make_ops(compute.dtype, [&]<typename E>() -> std::unique_ptr<UnitOps> {
    const std::int64_t strip = strip_rows(builder);
    std::vector<TileKernels<E>> kernels;
    for (const ops::VocabularyTile& tile : vocabulary_tiles(spec.vocabulary, builder.cuts())) {
      kernels.emplace_back(compute, spec.hidden, tile, strip);
    }
    auto head = std::make_unique<FusedHeadOps<E>>(compute, std::move(kernels), strip);
    unit.backward_work = head->backward_size().work();
    unit.backward_workspace = head->backward_size().workspace();
    return head;
  });
  builder.add_unit(std::move(unit), std::move(ops));
}

void add_logits_head(ModelBuilder& builder, NormOutput input, const HeadSpec& spec) {
  const Compute& compute = builder.compute();
  const std::vector<ops::VocabularyTile> tiles = vocabulary_tiles(spec.vocabulary, builder.cuts());
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    Unit unit;
    unit.name = fmt::format("head tile {}", i);
    unit.blocks = {spec.blocks[i]};
    add_use(unit.forward, input.value, Access::read);
    auto ops = make_ops(compute.dtype, [&]<typename E>() -> std::unique_ptr<UnitOps> {
      auto head = std::make_unique<LogitsTileOps<E>>(compute, spec.hidden, tiles[i]);
      unit.forward_work = head->forward_size().work();
      unit.forward_workspace = head->forward_size().workspace();
      return head;
    });
    builder.add_unit(std::move(unit), std::move(ops));
  }
}

}  // namespace

void add_head(ModelBuilder& builder, NormOutput input, HeadMode mode, const HeadSpec& spec) {
  SPILLWAY_CHECK(spec.blocks.size() == vocabulary_tiles(spec.vocabulary, builder.cuts()).size(),
                 "{} blocks for a vocabulary of {}", spec.blocks.size(), spec.vocabulary);
  builder.set_logits_bytes(spec.vocabulary * static_cast<Bytes>(sizeof(float)));
  switch (mode) {
    case HeadMode::tiled:
      return add_tiled_head(builder, input, spec);
    case HeadMode::fused:
      return add_fused_head(builder, input, spec);
    case HeadMode::logits:
      return add_logits_head(builder, input, spec);
  }
}

}  // namespace spillway
