// The emulated device as a kernel sees it: the twin of models/cuda/gpu.cuh, which says what each of these means.
// Here each access and each meeting of lanes is checked (block.h, shared_memory.h).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "memory/base/bfloat16.h"
#include "tests/simt/block.h"
#include "tests/simt/machine.h"

#define SPILLWAY_GPU inline
#define SPILLWAY_UNROLL
#define SPILLWAY_NO_UNROLL

namespace spillway::simt {

template <typename T>
class Shared {
 public:
  Shared() = default;
  explicit Shared(std::uint32_t byte) : byte_(byte) {}
  std::uint32_t byte() const { return byte_; }
  Shared operator+(std::int64_t elements) const {
    return Shared(byte_ + static_cast<std::uint32_t>(elements * static_cast<std::int64_t>(sizeof(T))));
  }
  template <typename U>
  Shared<U> as() const {
    return Shared<U>(byte_);
  }

 private:
  std::uint32_t byte_ = 0;
};

template <typename T>
class Panels {
 public:
  explicit Panels(Shared<T> at, int next_panel = 0)
      : at_{at.byte(), static_cast<std::uint32_t>(next_panel) * static_cast<std::uint32_t>(sizeof(T))} {}
  Panels operator+(int elements) const {
    Panels other = *this;
    other.at_.byte += static_cast<std::uint32_t>(elements) * static_cast<std::uint32_t>(sizeof(T));
    return other;
  }
  const Panel& at() const { return at_; }

 private:
  Panel at_;
};

class Gpu {
 public:
  Gpu(Block& block, int thread) : block_(&block), thread_(thread) {}

  int thread() const { return thread_; }
  int lane() const { return thread_ % kWarp; }
  int warp() const { return thread_ / kWarp; }
  int uniform(int x) const { return x; }
  std::int64_t block() const { return block_->index(); }
  std::int64_t blocks() const { return block_->blocks(); }

  // --- memory ---

  template <typename T>
  T load(const T* from, const Site& at = Site::current()) const {
    return get<T>(block_->global(thread_, reinterpret_cast<std::uintptr_t>(from), sizeof(T), false, at));
  }
  template <typename T>
  void store(T* to, const std::type_identity_t<T>& x, const Site& at = Site::current()) const {
    std::memcpy(block_->global(thread_, reinterpret_cast<std::uintptr_t>(to), sizeof(T), true, at), &x, sizeof(T));
  }
  template <typename T>
  Shared<T> shared(std::int64_t byte = 0) const {
    return Shared<T>(static_cast<std::uint32_t>(byte));
  }
  template <typename T>
  T load(Shared<T> from, const Site& at = Site::current()) const {
    return get<T>(block_->shared(thread_, from.byte(), sizeof(T), false, at));
  }
  template <typename T>
  void store(Shared<T> to, const std::type_identity_t<T>& x, const Site& at = Site::current()) const {
    std::memcpy(block_->shared(thread_, to.byte(), sizeof(T), true, at), &x, sizeof(T));
  }
  template <typename T>
  void copy_16(Shared<T> to, const T* from, bool is_there = true, const Site& at = Site::current()) const {
    block_->copy(thread_, to.byte(), is_there ? reinterpret_cast<const std::byte*>(from) : nullptr, at);
  }
  void commit_copies() const { block_->commit_copies(thread_); }
  template <int left>
  void wait_for_copies(const Site& at = Site::current()) const {
    block_->wait_for_copies(thread_, left, at);
  }

  // --- with others ---

  void sync(const Site& at = Site::current()) const { block_->sync(thread_, at); }
  template <int threads>
  void sync_steps(const Site& at = Site::current()) const {
    if (threads != block_->threads())
      throw Error(text_of(at) + ": a barrier of " + std::to_string(threads) + " of " + std::to_string(block_->threads()) +
                  " threads");
    block_->sync(thread_, at);
  }
  void sync_warp(const Site& at = Site::current()) const {
    WarpOp op{.kind = WarpOp::Kind::sync, .at = at};
    block_->together(thread_, op);
  }
  template <typename T>
  T shuffle_xor(T x, int mask, const Site& at = Site::current()) const {
    static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
    WarpOp op{.kind = WarpOp::Kind::shuffle, .at = at, .mask = mask};
    std::memcpy(&op.value, &x, sizeof(T));
    block_->together(thread_, op);
    std::memcpy(&x, &op.value, sizeof(T));
    return x;
  }
  template <typename T>
  void mma(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const Site& at = Site::current()) const {
    WarpOp op{.kind = WarpOp::Kind::multiply,
              .at = at,
              .type = std::is_same_v<T, BFloat16> ? Half::bf16 : Half::fp16,
              .a = a,
              .b = b,
              .c = c};
    block_->together(thread_, op);
  }
  template <typename T>
  std::uint32_t pack(float first, float second) const {
    return from_float<T>(first).bits | static_cast<std::uint32_t>(from_float<T>(second).bits) << 16;
  }
  template <typename T>
  void load_matrices(std::uint32_t (&registers)[4], Shared<T> row, const Site& at = Site::current()) const {
    load_matrices(registers, row.byte(), false, at);
  }
  template <typename T>
  void load_transposed(std::uint32_t (&registers)[4], Shared<T> row, const Site& at = Site::current()) const {
    load_matrices(registers, row.byte(), true, at);
  }

  // --- products of a warpgroup ---

  void show_to_products() const { block_->show_to_products(thread_); }
  void begin_products(const Site& at = Site::current()) const {
    WarpOp op{.kind = WarpOp::Kind::begin_products, .at = at};
    block_->together(thread_, op);
  }
  template <typename T, int eights>
  void multiply_rows(float (&c)[eights][4], const Panels<T>& a, const Panels<T>& b, const Site& at = Site::current()) const {
    multiply<T, eights>({.c = c[0], .left = a.at(), .right = b.at()}, at);
  }
  template <typename T, int eights>
  void add_rows(float (&c)[eights][4], const Panels<T>& a, const Panels<T>& b, const Site& at = Site::current()) const {
    multiply<T, eights>({.c = c[0], .left = a.at(), .right = b.at(), .adds = true}, at);
  }
  template <typename T, int eights>
  void add_columns(float (&c)[eights][4], const std::uint32_t (&a)[4], const Panels<T>& b,
                   const Site& at = Site::current()) const {
    multiply<T, eights>({.c = c[0], .held = a, .right = b.at(), .adds = true}, at);
  }
  void commit_products(const Site& at = Site::current()) const {
    WarpOp op{.kind = WarpOp::Kind::commit_products, .at = at};
    block_->together(thread_, op);
  }
  template <int left, int eights>
  void wait_for_products(float (&c)[eights][4], const Site& at = Site::current()) const {
    WarpOp op{.kind = WarpOp::Kind::wait_for_products, .at = at, .product = {.c = c[0]}, .left = left};
    block_->together(thread_, op);
  }

  void settle(float /*x*/) const {}

  // --- arithmetic that rounds each operation to the nearest, fused with no other ---

  static float add(float a, float b) { return a + b; }
  static float multiply(float a, float b) { return a * b; }
  static float divide(float a, float b) { return a / b; }
  static float root(float x) { return std::sqrt(x); }

  // --- arithmetic that has an instruction of its own, which rounds a little differently ---

  float exp2(float x) const { return std::exp2(x); }
  float reciprocal(float x) const { return 1.0f / x; }
  float reciprocal_sqrt(float x) const { return 1.0f / std::sqrt(x); }

 private:
  template <typename T>
  static T get(const std::byte* from) {
    T x;
    std::memcpy(&x, from, sizeof(T));
    return x;
  }
  void load_matrices(std::uint32_t (&registers)[4], std::uint32_t byte, bool transposed, const Site& at) const {
    WarpOp op{.kind = WarpOp::Kind::load_matrices, .at = at, .byte = byte, .registers = registers, .transposed = transposed};
    block_->together(thread_, op);
  }

  template <typename T, int eights>
  void multiply(GroupProduct product, const Site& at) const {
    static_assert(eights == 8 || eights == 16);
    product.type = std::is_same_v<T, BFloat16> ? Half::bf16 : Half::fp16;
    product.columns = 8 * eights;
    WarpOp op{.kind = WarpOp::Kind::group_multiply, .at = at, .product = product};
    block_->together(thread_, op);
  }

  Block* block_;
  int thread_;
};

}  // namespace spillway::simt
