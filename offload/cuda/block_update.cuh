// AdamW on a part of a block with the squares of its gradients, which are read once for both: where no clip factor has to wait
// for all of them. The host's bits exactly (optimizer_ops.h: square_and_update), whatever the part.
//
// Legend: as in adamw.cuh.
#pragma once

#include "offload/cuda/adamw.cuh"
#include "offload/cuda/squares.cuh"

namespace spillway::cuda {

// Elements [begin, begin + elements) of a block, of which those of its pieces are updated and squared. State: ExactState or
// Fp32State. A warp has a stretch, a lane packs of four.
template <typename State, bool vectors>
struct SquareAndUpdate {
  // A fifth block would make the compiler spill.
  static constexpr int kThreads = 256, kWarps = kThreads / 32, kBlocks = 4;
  AdamWConstants constants;  // where weights decay
  Draws draws;
  std::int64_t begin = 0, elements = 0, node = kSquareStretch;  // begin is a multiple of `node`
  StateArrays<State> state;                                     // from `begin` on, as the gradient
  const float* gradient = nullptr;
  double* sums = nullptr;                // [ceil(elements / node)]
  const CountedRange* pieces = nullptr;  // of the block
  const std::int32_t* decays = nullptr;  // of each: whether its weights do
  int piece_count = 0;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t stretch = (gpu.block() * kWarps + gpu.warp()) * kSquareStretch;
    if (stretch >= elements) return;  // all lanes of the warp
    const int of_all = stretch + kSquareStretch <= elements ? piece_of(gpu, stretch, kSquareStretch) : -1;
    square_stretch(
        gpu, node,
        [&](int pack) {
          const std::int64_t i = stretch + pack * 4;
          return vectors && of_all >= 0 ? step<4>(gpu, i, of_all) : step_parts(gpu, i);
        },
        [&](std::int64_t first, double sum) {
          if (stretch + first < elements) gpu.store(sums + (stretch + first) / node, sum);
        });
  }

 private:
  // The one that all of these elements are of, else -1.
  SPILLWAY_GPU int piece_of(const Gpu& gpu, std::int64_t i, std::int64_t count) const {
    for (int piece = 0; piece < piece_count; ++piece) {
      const CountedRange range = gpu.load(reinterpret_cast<const Pack<CountedRange, 1>*>(pieces + piece)).x[0];
      if (range.begin <= begin + i && begin + i + count <= range.end) return piece;
    }
    return -1;
  }
  // Gives the gradients.
  template <int n>
  SPILLWAY_GPU Floats<n> step(const Gpu& gpu, std::int64_t i, int piece) const {
    AdamWConstants of_piece = constants;
    if (gpu.load(decays + piece) == 0) of_piece.decay = 1.0f;
    const auto g = load_floats<float, n>(gpu, gradient + i);
    state.step(gpu, of_piece, draws, i, begin + i, g);
    return g;
  }
  SPILLWAY_GPU Floats<4> step_parts(const Gpu& gpu, std::int64_t i) const {
    Floats<4> pack{};
    for (int j = 0; j < 4; ++j) {
      const int piece = i + j < elements ? piece_of(gpu, i + j, 1) : -1;
      if (piece >= 0) pack.x[j] = step<1>(gpu, i + j, piece).x[0];
    }
    return pack;
  }
};

// A part of a block, and where its squares go.
struct SquaredPart {
  std::int64_t begin = 0, elements = 0, node = kSquareStretch;
  double* sums = nullptr;
  const CountedRange* pieces = nullptr;
  const std::int32_t* decays = nullptr;
  int piece_count = 0;
};

// Enqueues it. `state` and `gradient` begin with the part.
template <typename State>
void device_square_and_update(Queue& queue, const AdamWSettings& settings, std::uint64_t block, const SquaredPart& part,
                              const State& state, const float* gradient) {
  if (part.elements == 0) return;
  const Draws draws{settings.seed, static_cast<std::uint64_t>(settings.step), block};
  const auto start = [&]<bool vectors>(std::bool_constant<vectors>) {
    using Kernel = SquareAndUpdate<State, vectors>;
    constexpr std::int64_t each = Kernel::kWarps * kSquareStretch;
    launch(queue, {(part.elements + each - 1) / each},
           Kernel{constants_of(settings, Decay::applied),
                  draws,
                  part.begin,
                  part.elements,
                  part.node,
                  {state},
                  gradient,
                  part.sums,
                  part.pieces,
                  part.decays,
                  part.piece_count});
  };
  is_aligned(state, gradient) ? start(std::true_type()) : start(std::false_type());
}

}  // namespace spillway::cuda
