#include "models/head.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "memory/base/error.h"
#include "models/embedding.h"

namespace spillway {
namespace {

constexpr Bytes kFloat = sizeof(float);

struct Strip {
  std::int64_t begin = 0, rows = 0;
};
std::vector<Strip> strips_of(std::int64_t rows, std::int64_t most) {
  std::vector<Strip> strips;
  for (std::int64_t begin = 0; begin < rows; begin += most) strips.push_back({begin, std::min(most, rows - begin)});
  return strips;
}

// The state that the head's units share: the tiles, and true if they are all one unit.
struct Tiles {
  const HeadSpec& spec;
  std::vector<ops::VocabularyTile> tiles;
  bool one_unit = false;
};

// The state of each row's softmax after some tiles: three arrays of `rows`, one after the other.
struct SoftmaxPlaces {
  Place state, log_sum_exp;
  std::int64_t rows = 0;
  Place maximum(std::int64_t begin) const { return state.at(begin * kFloat); }
  Place sum(std::int64_t begin) const { return state.at((rows + begin) * kFloat); }
  Place target_logit(std::int64_t begin) const { return state.at((2 * rows + begin) * kFloat); }
};

// The kernels on one strip of rows and one tile of the vocabulary, which both modes consist of.
class TileKernels {
 public:
  TileKernels(const Compute& compute, const Tiles& tiles, NormOutput input, std::size_t tile)
      : compute_(compute), spec_(tiles.spec), tiles_(tiles), input_(input), tile_(tile) {}

  kernels::Product product(Strip strip, Place logits) const { return linear(strip).forward(input(strip), logits); }
  kernels::LossTile loss(Strip strip, Place logits, const SoftmaxPlaces& softmax, std::int64_t state_begin) const {
    return {.type = compute_.dtype,
            .rows = strip.rows,
            .tile = tile(),
            .begins = tile_ == 0,
            .cap = spec_.cap,
            .logits = logits,
            .targets = targets(strip),
            .maximum = softmax.maximum(state_begin),
            .sum = softmax.sum(state_begin),
            .target_logit = softmax.target_logit(state_begin)};
  }
  kernels::LossFinish finish(Strip strip, const SoftmaxPlaces& softmax, std::int64_t state_begin) const {
    return {.rows = strip.rows,
            .begins = strip.begin == 0,
            .targets = targets(strip),
            .maximum = softmax.maximum(state_begin),
            .sum = softmax.sum(state_begin),
            .target_logit = softmax.target_logit(state_begin),
            .log_sum_exp = softmax.log_sum_exp.at(state_begin * kFloat),
            .loss_sum = place_of(ControlWord::loss_sum)};
  }
  // Turns logits into their gradients, then computes dx and dweight. Backward takes the tiles last to first: the last one writes
  // dx.
  void add_backward(PassDraft& pass, Strip strip, Place logits, Place log_sum_exp) const {
    pass.add(kernels::LossBackward{.type = compute_.dtype,
                                   .rows = strip.rows,
                                   .tile = tile(),
                                   .cap = spec_.cap,
                                   .logits = logits,
                                   .targets = targets(strip),
                                   .log_sum_exp = log_sum_exp,
                                   .loss_scale = place_of(ControlWord::loss_scale)});
    kernels::Product dx = linear(strip).input_gradient(
        logits, value_place(input_.gradient).at(strip.begin * spec_.hidden * kFloat), DType::float32);
    if (!is_last()) dx.sum = Sum::add;
    pass.add(dx);
    kernels::Product dweight = linear(strip).weight_gradient(logits, input(strip));
    if (strip.begin > 0) dweight.sum = Sum::add;
    pass.add(dweight);
  }
  const ops::VocabularyTile& tile() const { return tiles_.tiles[tile_]; }
  bool is_last() const { return tile_ + 1 == tiles_.tiles.size(); }

 private:
  Place targets(Strip strip) const {
    return {.space = Space::targets, .offset = strip.begin * static_cast<Bytes>(sizeof(std::int32_t))};
  }
  Place input(Strip strip) const { return value_place(input_.value).at(strip.begin * spec_.hidden * compute_.element()); }
  Linear linear(Strip strip) const {
    const int block = tiles_.one_unit ? static_cast<int>(tile_) : 0;
    return {.compute = compute_,
            .rows = strip.rows,
            .in = spec_.hidden,
            .out = tile().rows,
            .weight = 0,
            .block = block,
            .gradient = block,
            .scale = spec_.factor};
  }

  const Compute& compute_;
  const HeadSpec& spec_;
  const Tiles& tiles_;
  NormOutput input_;
  std::size_t tile_;
};

std::int64_t strip_rows(const ModelBuilder& builder) { return std::min(builder.cuts().head_strip, builder.compute().rows); }

void add_tiled_head(ModelBuilder& builder, NormOutput input, const Tiles& all) {
  const HeadSpec& spec = all.spec;
  const Compute& compute = builder.compute();
  const std::int64_t n = compute.rows;
  const std::vector<Strip> strips = strips_of(n, strip_rows(builder));
  SoftmaxPlaces softmax{.rows = n};
  softmax.state = value_place(builder.add_value("softmax state", 3 * n * kFloat));
  softmax.log_sum_exp = value_place(builder.add_value("log-sum-exp", n * kFloat));
  for (std::size_t i = 0; i < all.tiles.size(); ++i) {
    const TileKernels tile(compute, all, input, i);
    const Bytes row_of_logits = all.tiles[i].rows * compute.element();
    const int value = builder.add_value(fmt::format("logits {}", i), n * row_of_logits);
    UnitDraft draft;
    draft.unit.name = fmt::format("head tile {}", i);
    draft.unit.blocks = draft.unit.gradient_blocks = {spec.blocks[i]};
    draft.unit.saved = {value};
    draft.unit.saved_piece = strips.front().rows * row_of_logits;

    const auto add_forward = [&](PassDraft& pass, bool keeps) {
      for (const Strip& strip : strips) {
        const Place logits = value_place(value).at(keeps ? strip.begin * row_of_logits : 0);
        pass.add(tile.product(strip, logits));
        pass.add(tile.loss(strip, logits, softmax, strip.begin));
        pass.add(kernels::GiveLogits{.type = compute.dtype,
                                     .first_row = strip.begin,
                                     .rows = strip.rows,
                                     .columns = all.tiles[i].rows,
                                     .logits = logits,
                                     .logits_row = place_of(ControlWord::logits_row),
                                     .out = {.space = Space::logits, .offset = all.tiles[i].first * kFloat}});
        if (tile.is_last()) pass.add(tile.finish(strip, softmax, strip.begin));
      }
    };
    const auto add_backward = [&](PassDraft& pass, bool keeps) {
      for (const Strip& strip : strips) {
        const Place logits = value_place(value).at(keeps ? strip.begin * row_of_logits : 0);
        if (!keeps) {
          pass.add(tile.product(strip, logits));
          if (spec.cap > 0) {
            pass.add(
                kernels::Cap{.type = compute.dtype, .elements = strip.rows * all.tiles[i].rows, .cap = spec.cap, .x = logits});
          }
        }
        tile.add_backward(pass, strip, logits, softmax.log_sum_exp.at(strip.begin * kFloat));
      }
    };
    add_forward(draft.forward, true);
    add_forward(draft.forward_in_pieces, false);
    add_backward(draft.backward, true);
    add_backward(draft.backward_in_pieces, false);
    builder.add_unit(std::move(draft));
  }
}

void add_fused_head(ModelBuilder& builder, NormOutput input, Tiles all) {
  all.one_unit = true;
  const Compute& compute = builder.compute();
  const std::vector<Strip> strips = strips_of(compute.rows, strip_rows(builder));
  UnitDraft draft;
  draft.unit.name = "head";
  draft.unit.role = ForwardRole::merged_into_backward;
  draft.unit.blocks = draft.unit.gradient_blocks = all.spec.blocks;
  PassDraft& pass = draft.backward;
  std::vector<TileKernels> tiles;
  std::vector<Place> logits;
  for (std::size_t i = 0; i < all.tiles.size(); ++i) {
    tiles.emplace_back(compute, all, input, i);
    logits.push_back(pass.room(strips.front().rows * all.tiles[i].rows * compute.element()));
  }
  SoftmaxPlaces softmax{.rows = strips.front().rows};
  softmax.state = pass.room(3 * softmax.rows * kFloat);
  softmax.log_sum_exp = pass.room(softmax.rows * kFloat);
  for (const Strip& strip : strips) {
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      pass.add(tiles[i].product(strip, logits[i]));
      pass.add(tiles[i].loss(strip, logits[i], softmax, 0));
    }
    pass.add(tiles.front().finish(strip, softmax, 0));
    for (std::size_t i = tiles.size(); i-- > 0;) tiles[i].add_backward(pass, strip, logits[i], softmax.log_sum_exp);
  }
  builder.add_unit(std::move(draft));
}

// Gives a tile's logits of the row that is asked for, not rounded to the compute type.
void add_logits_head(ModelBuilder& builder, NormOutput input, const Tiles& all) {
  const HeadSpec& spec = all.spec;
  const Compute& compute = builder.compute();
  for (std::size_t i = 0; i < all.tiles.size(); ++i) {
    UnitDraft draft;
    draft.unit.name = fmt::format("head tile {}", i);
    draft.unit.blocks = {spec.blocks[i]};
    const Linear linear{
        .compute = compute, .rows = 1, .in = spec.hidden, .out = all.tiles[i].rows, .weight = 0, .scale = spec.factor};
    kernels::Product product =
        linear.forward(value_place(input.value).moving_with(ControlWord::logits_row, spec.hidden * compute.element()),
                       {.space = Space::logits, .offset = all.tiles[i].first * kFloat});
    product.spec.output = DType::float32;
    draft.forward.add(product);
    if (spec.cap > 0)
      draft.forward.add(kernels::Cap{.type = DType::float32, .elements = all.tiles[i].rows, .cap = spec.cap, .x = product.c});
    builder.add_unit(std::move(draft));
  }
}

}  // namespace

void add_head(ModelBuilder& builder, NormOutput input, HeadMode mode, const HeadSpec& spec) {
  const Tiles all{spec, vocabulary_tiles(spec.vocabulary, builder.cuts())};
  SPILLWAY_CHECK(spec.blocks.size() == all.tiles.size(), "{} blocks for a vocabulary of {}", spec.blocks.size(), spec.vocabulary);
  builder.set_logits_bytes(spec.vocabulary * kFloat);
  switch (mode) {
    case HeadMode::tiled: return add_tiled_head(builder, input, all);
    case HeadMode::fused: return add_fused_head(builder, input, all);
    case HeadMode::logits: return add_logits_head(builder, input, all);
  }
}

}  // namespace spillway
