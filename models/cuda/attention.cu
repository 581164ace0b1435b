// Chooses the kernel of attention that serves a call. This is the one list of them.
#include "models/cuda/attention.cuh"

#include <initializer_list>
#include <limits>
#include <type_traits>

#include "memory/base/error.h"
#include "models/cuda/attention_backward.cuh"
#include "models/cuda/attention_backward_hopper.cuh"
#include "models/cuda/attention_forward.cuh"
#include "models/cuda/attention_forward_hopper.cuh"
#include "models/cuda/attention_plain.cuh"
#include "models/cuda/with_type.h"

namespace spillway::cuda {
namespace {

// Head sizes for which there are kernels on tensor cores.
using TiledSizes = std::integer_sequence<int, 64, 80, 96, 128, 256>;
// True for those sizes for which there are kernels for warpgroups.
constexpr bool has_warpgroup_form(int D) { return D == 64 || D == 128; }
// The longest rows of the plain kernels, and of those of them that go element by element.
using PlainSizes = std::integer_sequence<int, 64, 128, 256>;
using NarrowSizes = std::integer_sequence<int, 256>;

// Calls f with the first of the sizes that serves; returns false if none does.
template <int... sizes, typename S, typename F>
bool with_size(std::integer_sequence<int, sizes...>, const S& serves, const F& f) {
  return ((serves(sizes) ? (f(Int<sizes>()), true) : false) || ...);
}

template <typename T>
AttentionOperands<T> operands_of(const AttentionArguments& a) {
  const auto read = [](const AttentionRows& rows) { return Strided<const T>{static_cast<const T*>(rows.at), rows.stride}; };
  const auto written = [](const AttentionRows& rows) { return Strided<T>{static_cast<T*>(rows.at), rows.stride}; };
  return {.shape = a.shape,
          .q = read(a.q),
          .k = read(a.k),
          .v = read(a.v),
          .d_o = read(a.d_o),
          .o = written(a.o),
          .dq = written(a.dq),
          .dk = written(a.dk),
          .dv = written(a.dv),
          .lse = a.lse,
          .delta = a.delta,
          .position = a.position,
          .first_key = a.first_key};
}

void check(const AttentionArguments& a) {
  const ops::AttentionShape& s = a.shape;
  SPILLWAY_CHECK(s.sequences >= 1 && s.queries >= 1 && s.heads >= 1 && s.kv_heads >= 1 && s.head_dim >= 1,
                 "attention of {} sequences, {} queries, {} and {} heads of {}", s.sequences, s.queries, s.heads, s.kv_heads,
                 s.head_dim);
  SPILLWAY_CHECK(s.heads % s.kv_heads == 0, "{} heads are not a multiple of {} key/value heads", s.heads, s.kv_heads);
  SPILLWAY_CHECK(s.key_offset >= 0 && s.key_offset + s.queries <= s.keys, "{} queries at {} of {} keys", s.queries, s.key_offset,
                 s.keys);
  // Positions are 32 bits, and a tile may reach beyond the last.
  SPILLWAY_CHECK(s.keys <= (1 << 30) && s.window <= (1 << 30) && s.window >= 0, "attention over {} keys with a window of {}",
                 s.keys, s.window);
  SPILLWAY_CHECK(a.position == nullptr || s.sequences == 1, "attention at a position of {} sequences", s.sequences);
}

// Returns true if all rows are whole packs of 16 bytes.
bool fits_packs(const AttentionArguments& a, std::initializer_list<AttentionRows> all) {
  const std::int64_t each = 16 / size_of(a.type);
  bool fits = a.shape.head_dim % each == 0;
  for (const AttentionRows& rows : all) fits &= rows.stride % each == 0 && reinterpret_cast<std::uintptr_t>(rows.at) % 16 == 0;
  return fits;
}

// Calls f(type, elements of a pack, longest row) for plain kernels.
template <typename F>
void with_plain(const AttentionArguments& a, bool packs, const F& f) {
  const auto serves = [&](int size) { return a.shape.head_dim <= size; };
  with_type(a.type, [&]<typename T>(std::type_identity<T> type) {
    const bool is_served = packs ? with_size(PlainSizes(), serves, [&](auto most) { f(type, Int<kWidest<T>>(), most); })
                                 : with_size(NarrowSizes(), serves, [&](auto most) { f(type, Int<1>(), most); });
    SPILLWAY_CHECK(is_served, "attention has no kernel for heads of {}", a.shape.head_dim);
  });
}
// Calls f(type, head size) for kernels on tensor cores; returns false if there are none for this call.
template <typename F>
bool with_tiles(const AttentionArguments& a, bool packs, const F& f) {
  bool is_served = false;
  with_type(a.type, [&]<typename T>(std::type_identity<T> type) {
    if constexpr (sizeof(T) == 2)
      is_served =
          packs && with_size(TiledSizes(), [&](int size) { return a.shape.head_dim == size; }, [&](auto D) { f(type, D); });
  });
  return is_served;
}

template <template <typename, int, int, int> typename Kernel, typename T, int n, int most, int threads>
void launch_plain(Queue& queue, const AttentionArguments& a) {
  using Of = Kernel<T, n, most, threads>;
  Of kernel;
  kernel.of = operands_of<T>(a);
  launch(queue, Of::grid(a.shape), kernel);
}

template <typename Kernel, typename T>
void launch_as(Queue& queue, const AttentionArguments& a) {
  launch(queue, Kernel::grid(a.shape), Kernel{operands_of<T>(a)});
}

}  // namespace

void attend(Queue& queue, const AttentionArguments& a) {
  check(a);
  const bool packs = fits_packs(a, {a.q, a.k, a.v, a.o});
  // A single query would leave most of a tile empty.
  if (a.shape.queries > 1 && with_tiles(a, packs, [&]<typename T, int D>(std::type_identity<T>, Int<D>) {
        if constexpr (has_warpgroup_form(D)) {
          if (queue.has_warpgroups()) return launch_as<AttendForwardHopper<T, D>, T>(queue, a);
        }
        launch_as<AttendForward<T, D>, T>(queue, a);
      }))
    return;
  with_plain(a, packs, [&]<typename T, int n, int most>(std::type_identity<T>, Int<n>, Int<most>) {
    // Either there are many rows, or one row per head, and only a large block has enough lanes for its keys.
    if (a.shape.queries > 1) {
      launch_plain<PlainAttend, T, n, most, 64>(queue, a);
    } else {
      launch_plain<PlainAttend, T, n, most, 256>(queue, a);
    }
  });
}

void attend_backward(Queue& queue, const AttentionArguments& a) {
  check(a);
  SPILLWAY_CHECK(a.position == nullptr, "attention at a position has no gradients");
  const bool packs = fits_packs(a, {a.q, a.k, a.v, a.o, a.d_o, a.dq, a.dk, a.dv});
  with_type(a.type, [&]<typename T>(std::type_identity<T>) {
    const auto delta = [&]<int n>(Int<n>) { launch_as<AttendDelta<T, n>, T>(queue, a); };
    packs ? delta(Int<kWidest<T>>()) : delta(Int<1>());
  });
  const bool is_served = with_tiles(a, packs, [&]<typename T, int D>(std::type_identity<T>, Int<D>) {
    if constexpr (has_warpgroup_form(D)) {
      if (queue.has_warpgroups()) {
        launch_as<AttendBackwardKeysHopper<T, D>, T>(queue, a);
        launch_as<AttendBackwardQueriesHopper<T, D>, T>(queue, a);
        return;
      }
    }
    if constexpr (D <= 128) {
      launch_as<AttendBackwardKeys<T, D, true, true>, T>(queue, a);
    } else {
      launch_as<AttendBackwardKeys<T, D, true, false>, T>(queue, a);
      launch_as<AttendBackwardKeys<T, D, false, true>, T>(queue, a);
    }
    launch_as<AttendBackwardQueries<T, D>, T>(queue, a);
  });
  if (is_served) return;
  with_plain(a, packs, [&]<typename T, int n, int most>(std::type_identity<T>, Int<n>, Int<most>) {
    launch_plain<PlainBackwardKeys, T, n, most, 64>(queue, a);
    launch_plain<PlainBackwardQueries, T, n, most, 64>(queue, a);
  });
}

}  // namespace spillway::cuda
