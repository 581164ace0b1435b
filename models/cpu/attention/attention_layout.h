// Shared by attention's forward and backward: sizes that follow from a shape, scratch memory handed out in pieces, and the part
// of a block of keys that its rows see. Not here: the blocks and tasks of the two passes (attention_forward.cpp,
// attention_backward.cpp), the inner loops (attention_kernels.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "memory/base/error.h"
#include "models/cpu/attention/attention_kernels.h"
#include "models/cpu/attention/attention_ops.h"
#include "models/instruction_limit.h"

namespace spillway::ops::attention {

inline constexpr std::int64_t kKeyBlock = 128;
inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2 = 0.693147181f;

constexpr std::int64_t up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
constexpr std::int64_t blocks(std::int64_t value, std::int64_t block) { return (value + block - 1) / block; }

inline void check(const AttentionShape& s) {
  SPILLWAY_CHECK(s.sequences >= 1 && s.queries >= 1 && s.heads >= 1 && s.kv_heads >= 1 && s.head_dim >= 1,
                 "attention over {} sequences of {} queries, {} heads of {} ({} of keys)", s.sequences, s.queries, s.heads,
                 s.head_dim, s.kv_heads);
  SPILLWAY_CHECK(s.heads % s.kv_heads == 0, "{} heads are not a multiple of {} key/value heads", s.heads, s.kv_heads);
  SPILLWAY_CHECK(s.key_offset >= 0 && s.key_offset + s.queries <= s.keys, "{} queries at {} of {} keys", s.queries, s.key_offset,
                 s.keys);
  SPILLWAY_CHECK(s.window >= 0 && s.scale > 0, "window {}, scale {}", s.window, s.scale);
  SPILLWAY_CHECK(s.softcap >= 0 && std::isfinite(s.softcap), "scores capped at {}", s.softcap);
}

inline std::int64_t unit_elements(DType type) {
  SPILLWAY_CHECK(type == DType::float32 || type == DType::bfloat16, "attention in {}", name_of(type));
  return type == DType::float32 ? 1 : 2;
}
template <typename E>
constexpr DType kType = sizeof(E) == 4 ? DType::float32 : DType::bfloat16;

// Hands out pieces of the scratch memory, each at a multiple of 64 bytes; with a null base it only measures.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <typename T>
  T* take(std::int64_t count) {
    T* piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += round_up(count * static_cast<Bytes>(sizeof(T)), 64);
    return piece;
  }
  Bytes used() const { return used_; }

 private:
  std::byte* base_;
  Bytes used_ = 0;
};

// The sizes that follow from a shape.
struct Layout {
  Layout(const AttentionShape& s, std::int64_t unit_size)
      : unit(unit_size), Dp(up(s.head_dim, kColumns)), Du(blocks(s.head_dim, unit)), key_blocks(blocks(s.keys, kKeyBlock)) {}
  std::int64_t unit;                                             // elements of a unit
  std::int64_t Dp;                                               // D padded
  std::int64_t Du;                                               // units of D
  std::int64_t key_blocks;                                       // of a sequence
  std::int64_t row_units() const { return Dp / unit; }           // of a copied row
  std::int64_t transposed() const { return Du * kKeyBlock; }     // units of a block of keys, [Du, keys]
  std::int64_t joined() const { return kKeyBlock / unit * Dp; }  // units of a block of keys, [keys / unit, Dp]
};

// The part of a key block that the queries [query, query + rows) of a sequence see. `first_key` is the sequence's, or null.
struct Seen {
  Sight sight;
  std::int64_t columns;  // the block's columns up to the last that any row sees, padded
};
inline Seen seen(const AttentionShape& s, const std::int32_t* first_key, std::int64_t query, std::int64_t rows,
                 std::int64_t block_begin) {
  const std::int64_t first = s.key_offset + query;
  const std::int64_t begin = s.window == 0 ? -s.keys : first - s.window + 1 - block_begin;
  const std::int64_t end = first + 1 - block_begin;
  const bool has_borders = first_key != nullptr;
  return {{begin, end, has_borders ? first_key + query : nullptr, s.queries - query, block_begin},
          std::min(kKeyBlock, up(std::max<std::int64_t>(end + rows - 1, 0), kColumns))};
}
// The first key that a query sees.
inline std::int64_t first_seen(const AttentionShape& s, const std::int32_t* first_key, std::int64_t query) {
  const std::int64_t of_window = s.window == 0 ? 0 : std::max<std::int64_t>(0, s.key_offset + query - s.window + 1);
  return first_key == nullptr ? of_window : std::max<std::int64_t>(of_window, first_key[query]);
}
template <typename E>
const std::int32_t* first_keys_of(const AttentionShape& s, const AttentionInputs<E>& in, std::int64_t b) {
  return in.first_key == nullptr ? nullptr : in.first_key + b * s.queries;
}

// The factor that turns q.k, squashed where there is a cap, into a score in powers of 2.
inline float score_scale(const AttentionShape& s) { return (s.softcap == 0 ? s.scale : s.softcap) * kLog2E; }

inline void squash_if_capped(const AttentionShape& s, float* scores, std::int64_t rows, std::int64_t columns) {
  if (s.softcap == 0) return;
  squash({.scores = scores, .stride = kKeyBlock, .rows = rows, .columns = columns, .factor = s.scale / s.softcap});
}

template <typename E>
RowBlock<E> key_rows(const AttentionShape& s, const AttentionRows<const E>& rows, std::int64_t b, std::int64_t head,
                     std::int64_t block) {
  const std::int64_t begin = block * kKeyBlock, count = std::min(kKeyBlock, s.keys - begin);
  return {rows.data + (b * s.keys + begin) * rows.stride + head * s.head_dim, rows.stride, count, kKeyBlock, s.head_dim};
}

template <typename E>
const Kernels<E>& kernels(AttentionPath path) {
  if constexpr (sizeof(E) == 4) {
    return kernels_fp32();
  } else {
    const Kernels<E>* native = path == AttentionPath::instruction_set && allows_avx512_bf16() ? kernels_bf16_native() : nullptr;
    return native == nullptr ? kernels_bf16_widened() : *native;
  }
}

}  // namespace spillway::ops::attention
