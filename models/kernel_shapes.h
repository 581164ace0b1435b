// The shapes of the larger kernels, on any backend: what a call says of its operands besides their places.
// Not here: the calls (kernels.h), the code that computes them (a backend's folder).
//
// Legend: n rows (tokens of a micro-batch), T sequence length, H hidden, V vocabulary, D head dimension,
//         Hq / Hkv query / key-value heads. Matrices are row-major.
#pragma once

#include <cstdint>

#include "memory/base/types.h"

namespace spillway::ops {

// write replaces an output's old content, add adds to it.
enum class Store : std::uint8_t { write, add };

enum class Transpose : std::uint8_t { no, yes };

// C[m,n] (=|+=) scale op(A)[m,k] op(B)[k,n] (+ bias[n]) (+ residual[m,n]). op(A) is A[m,k], or A[k,m] transposed; op(B) likewise.
struct GemmSpec {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Transpose transpose_a = Transpose::no;
  Transpose transpose_b = Transpose::no;
  std::int64_t lda = 0;  // elements between rows of A as stored
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  std::int64_t ld_residual = 0;
  DType input = DType::bfloat16;   // of A, B, bias and residual: float32 or bfloat16
  DType output = DType::bfloat16;  // of C: the input's type, or float32
  Store store = Store::write;
  bool has_bias = false;
  bool has_residual = false;
  float scale = 1;  // other than 1 only without bias

  friend bool operator==(const GemmSpec&, const GemmSpec&) = default;
};

// The three products of a linear layer with weight W[out,in] (as PyTorch stores it), dense operands.
// y[n,out] = x[n,in] W^T (+ bias[out]) (+ residual[n,out])
enum class Epilogue : std::uint8_t { none, bias, residual, bias_residual };
GemmSpec linear_forward(DType type, std::int64_t n, std::int64_t in, std::int64_t out, Epilogue epilogue = Epilogue::none);
// dx[n,in] (=|+=) dy[n,out] W
GemmSpec linear_input_gradient(DType type, std::int64_t n, std::int64_t in, std::int64_t out, DType output,
                               Store store = Store::write);
// dW[out,in] (=|+=) dy[n,out]^T x[n,in], in fp32
GemmSpec linear_weight_gradient(DType type, std::int64_t n, std::int64_t in, std::int64_t out, Store store);

// The largest D with rotary positions: a kernel keeps a head's gradient on its stack.
inline constexpr std::int64_t kMaxRotaryHead = 1024;

struct RopeShape {
  std::int64_t n = 0;          // rows; row i stands at position i % sequence
  std::int64_t sequence = 0;   // T
  std::int64_t heads = 0;      // Hq
  std::int64_t kv_heads = 0;   // Hkv
  std::int64_t dimension = 0;  // D, even, at most kMaxRotaryHead
  float epsilon = 0.0f;        // of the q/k norm …
  float offset = 0.0f;         // … whose weights are stored without it
  friend bool operator==(const RopeShape&, const RopeShape&) = default;
};

// Causal attention.
struct AttentionShape {
  std::int64_t sequences = 0;   // B
  std::int64_t queries = 0;     // Tq
  std::int64_t keys = 0;        // Tk; in training the same as Tq
  std::int64_t heads = 0;       // Hq
  std::int64_t kv_heads = 0;    // Hkv
  std::int64_t head_dim = 0;    // D
  std::int64_t key_offset = 0;  // query t stands at position key_offset + t of the keys; at most Tk - Tq
  std::int64_t window = 0;      // keys that a query sees, its own included; 0: all up to its own
  float scale = 1.0f;           // on q.k, positive
  float softcap = 0.0f;         // scores are softcap * tanh(scale * q.k / softcap); 0: scale * q.k

  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

// The vocabulary comes in tiles [first, first + rows). Each token lies in one tile, so the tiles in any order write all of x.
struct VocabularyTile {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  friend bool operator==(const VocabularyTile&, const VocabularyTile&) = default;
};

// A target that gives no loss.
inline constexpr std::int32_t kIgnoredTarget = -100;

}  // namespace spillway::ops
