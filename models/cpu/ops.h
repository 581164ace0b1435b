// The CPU's kernels: matrix products, norms, rotary positions, activations, embedding, loss.
// Every kernel cuts its work by shape alone and reduces along a fixed tree, so the bits never depend on the number of threads.
// Nothing here allocates: `scratch` is what a kernel needs besides its operands; a *_scratch_bytes function gives its size.
// Not here: attention (attention_ops.h), the shapes (models/kernel_shapes.h), and where the operands live (the executor's
// business).
//
// Legend: n rows (tokens of a micro-batch), T sequence length, H hidden, I MLP width, V vocabulary, D head dimension,
//         Hq / Hkv query / key-value heads. `E` is the compute type: float or BFloat16. Matrices are row-major and dense
//         unless a leading dimension (in elements) is given. Arithmetic is in fp32, results are rounded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/base/bfloat16.h"
#include "memory/base/parallel.h"
#include "memory/base/types.h"
#include "memory/plan/machine.h"
#include "models/activation.h"
#include "models/dropout_mask.h"
#include "models/kernel_shapes.h"

namespace spillway::ops {

// ---- Matrix products (models/cpu/gemm.cpp) ---------------------------------------------------------------------------------

struct GemmOperands {
  const void* a = nullptr;         // spec.input, [m,k] or [k,m]
  const void* b = nullptr;         // spec.input, [k,n] or [n,k]
  void* c = nullptr;               // spec.output, [m,n]
  const void* bias = nullptr;      // spec.input, [n], if spec.has_bias
  const void* residual = nullptr;  // spec.input, [m,n], if spec.has_residual; not C itself (that is Store::add)
};

// How this CPU multiplies bf16: by AVX-512's dot products in our kernels, by tiles in the library's, or widened to fp32.
Instructions instructions_here();
// An upper bound of MatmulEngine::scratch_bytes() on a CPU with `threads` threads, without compiling anything. If its
// instructions are unknown, it is the most that any needs.
Bytes gemm_scratch_bound(const GemmSpec& spec, int threads, Instructions instructions);

// When the library is given dense operands: slices that are windows of a matrix are copied. oneDNN 2.6 has its AMX kernels for
// dense operands alone; a leading dimension larger than the row, in A, B or C, costs half of the speed or more.
enum class DenseSlices : std::uint8_t { where_better, always };

// The name of the implementation that serves a product ("brg:avx512_core_amx_bf16", "gemm:jit"), and of the one that would if
// none of its operands were a window.
struct ServedProduct {
  std::string by, dense_by;
  bool could_be_better() const { return dense_by.starts_with("brg") && !by.starts_with("brg"); }
};
// Who multiplies, where served_by() asks: whoever does on this CPU, or the library, as it does on AMX.
enum class Multiplies : std::uint8_t { as_here, library };

// Owns the compiled products, one set for each spec. All methods may be called from several threads at once.
class MatmulEngine {
 public:
  // `threads`: the most threads of a pool given to run().
  explicit MatmulEngine(int threads, DenseSlices dense = DenseSlices::where_better);
  ~MatmulEngine();
  MatmulEngine(const MatmulEngine&) = delete;
  MatmulEngine& operator=(const MatmulEngine&) = delete;

  // Scratch that run() needs with this spec on a pool of the engine's number of threads. Compiles the product, so that run() need
  // not.
  Bytes scratch_bytes(const GemmSpec& spec);
  // An entry for each different slice that the product is cut into.
  std::vector<ServedProduct> served_by(const GemmSpec& spec, Multiplies by = Multiplies::as_here);
  // `scratch` is aligned to 64 bytes; two calls at the same time need scratch of their own.
  void run(const ThreadPool& pool, const GemmSpec& spec, const GemmOperands& operands, std::byte* scratch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// ---- Norms (models/cpu/norm.cpp) -------------------------------------------------------------------------------------------

// y = (offset + w) * x * rstd (+ residual), rstd = 1 / sqrt(mean(x^2) + epsilon). The offset is 1 where weights are stored minus
// one. The residual, for norms after a block, may be null, and may be y itself. `stride`, of these three: elements between rows
// of x, y, dy and dx where they are part of a wider matrix; 0: H.
template <typename E>
void rmsnorm_forward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const E* x /*[n,H]*/, const E* weight /*[H]*/,
                     float epsilon, E* y /*[n,H]*/, float* rstd /*[n]*/, float offset = 0.0f,
                     const E* residual /*[n,H]*/ = nullptr, std::int64_t stride = 0);
// Recomputes the same y, without a residual, from x and rstd.
template <typename E>
void rmsnorm_apply(const ThreadPool& pool, std::int64_t n, std::int64_t H, const E* x /*[n,H]*/, const E* weight /*[H]*/,
                   const float* rstd /*[n]*/, E* y /*[n,H]*/, float offset = 0.0f, std::int64_t stride = 0);
Bytes rmsnorm_backward_scratch_bytes(std::int64_t n, std::int64_t H);
// dx = residual_gradient + d(norm); residual_gradient may be null, and may be dx itself, as may dy. G is E or float. dweight is
// null where the norm is not trained; there is no scratch then.
template <typename E, typename G>
void rmsnorm_backward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const G* dy /*[n,H]*/, const E* x /*[n,H]*/,
                      const E* weight /*[H]*/, const float* rstd /*[n]*/, const E* residual_gradient /*[n,H]*/, E* dx /*[n,H]*/,
                      float* dweight /*[H]*/, Store store, std::byte* scratch, float offset = 0.0f, std::int64_t stride = 0);

// y = w * (x - mean) * rstd + bias.
template <typename E>
void layernorm_forward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const E* x /*[n,H]*/, const E* weight /*[H]*/,
                       const E* bias /*[H]*/, float epsilon, E* y /*[n,H]*/, float* mean /*[n]*/, float* rstd /*[n]*/);
template <typename E>
void layernorm_apply(const ThreadPool& pool, std::int64_t n, std::int64_t H, const E* x /*[n,H]*/, const E* weight /*[H]*/,
                     const E* bias /*[H]*/, const float* mean /*[n]*/, const float* rstd /*[n]*/, E* y /*[n,H]*/);
// dweight and dbias are both null where the norm is not trained.
Bytes layernorm_backward_scratch_bytes(std::int64_t n, std::int64_t H);
template <typename E, typename G>
void layernorm_backward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const G* dy /*[n,H]*/, const E* x /*[n,H]*/,
                        const E* weight /*[H]*/, const float* mean /*[n]*/, const float* rstd /*[n]*/,
                        const E* residual_gradient /*[n,H]*/, E* dx /*[n,H]*/, float* dweight /*[H]*/, float* dbias /*[H]*/,
                        Store store, std::byte* scratch);

// ---- Rotary positions and q/k norm (models/cpu/rope.cpp) -------------------------------------------------------------------

// Positions of rows in sequences of T tokens. Where a sequence has several documents, `first_key` says for each row where its
// document begins, and positions count from there.
struct Positions {
  std::int64_t sequence = 0;                // T
  const std::int32_t* first_key = nullptr;  // [n]; null: a sequence is one document

  std::int64_t of(std::int64_t row) const { return row % sequence - (first_key == nullptr ? 0 : first_key[row]); }
};

// Angles as rotate-half uses them: element j pairs with j + D/2.
struct Angles {
  const float* cosine = nullptr;  // [T, D/2]
  const float* sine = nullptr;    // [T, D/2]
};
struct RopeTable {
  Angles keys, queries;
  const std::int32_t* first_key = nullptr;  // [n], of Positions
};
// Head-wise RMSNorm weights (Qwen3); both null where a model has none.
template <typename E>
struct HeadNorm {
  const E* q_weight = nullptr;  // [D]
  const E* k_weight = nullptr;  // [D]
};
// Reads raw qkv[n,(Hq+2Hkv)*D], writes normed and rotated qk[n,(Hq+Hkv)*D]. In place over a row prefix is not supported.
template <typename E>
void rope_forward(const ThreadPool& pool, const RopeShape& shape, const RopeTable& table, const HeadNorm<E>& norm,
                  const E* qkv /*[n,(Hq+2Hkv)*D]*/, E* qk /*[n,(Hq+Hkv)*D]*/);
Bytes rope_backward_scratch_bytes(const RopeShape& shape);
// In place: the q and k columns of dqkv come in as gradients of the rotated q and k, and leave as gradients of the raw ones.
// The raw qkv is read only where there is a norm (else it may be null). dq_weight and dk_weight may be null.
template <typename E>
void rope_backward(const ThreadPool& pool, const RopeShape& shape, const RopeTable& table, const HeadNorm<E>& norm,
                   const E* qkv /*[n,(Hq+2Hkv)*D]*/, E* dqkv /*[n,(Hq+2Hkv)*D]*/, float* dq_weight /*[D]*/,
                   float* dk_weight /*[D]*/, Store store, std::byte* scratch);

// ---- Activations (models/cpu/pointwise.cpp) --------------------------------------------------------------------------------

// h = activation(gate) * up, gate = gu[:, :I], up = gu[:, I:].
template <typename E>
void gated_forward(const ThreadPool& pool, Activation kind, std::int64_t n, std::int64_t I, const E* gu /*[n,2I]*/,
                   E* h /*[n,I]*/);
// Writes dgu, and h again, in one pass (h may be null where it is not wanted). dgu may be gu itself.
template <typename E>
void gated_backward(const ThreadPool& pool, Activation kind, std::int64_t n, std::int64_t I, const E* dh /*[n,I]*/,
                    const E* gu /*[n,2I]*/, E* dgu /*[n,2I]*/, E* h /*[n,I]*/);

// `kind` is one of the two gelus.
template <typename E>
void gelu_forward(const ThreadPool& pool, Activation kind, std::int64_t elements, const E* pre, E* h);
// Writes dpre, and h again, in one pass (h may be null). dpre may be pre or dh.
template <typename E>
void gelu_backward(const ThreadPool& pool, Activation kind, std::int64_t elements, const E* dh, const E* pre, E* dpre, E* h);

// ---- Element-wise helpers and reductions (models/cpu/pointwise.cpp, reduce.cpp, squares.cpp) ----------------------------------

template <typename E>
void add(const ThreadPool& pool, std::int64_t elements, const E* a, const E* b, E* sum);     // sum may be a or b
void accumulate(const ThreadPool& pool, std::int64_t elements, const float* a, float* sum);  // sum += a
template <typename E>
void accumulate_into(const ThreadPool& pool, std::int64_t elements, const E* a, float* sum);  // sum += a
template <typename E>
void scale(const ThreadPool& pool, std::int64_t elements, float factor, E* x);
// x becomes cap * tanh(x / cap), in place; the cap is positive.
template <typename E>
void softcap(const ThreadPool& pool, std::int64_t elements, float cap, E* x);
// y = mask(x), or y += mask(x). `key` names the micro-batch; 0: nothing is dropped.
template <typename E>
void dropout(const ThreadPool& pool, std::int64_t elements, const DropoutMask& mask, std::uint64_t key, const E* x /*[elements]*/,
             E* y /*[elements]*/, bool adds);
template <typename E>
void cast_from_float(const ThreadPool& pool, std::int64_t elements, const float* x, E* y);
template <typename E>
void cast_to_float(const ThreadPool& pool, std::int64_t elements, const E* x, float* y);
void fill_zero(const ThreadPool& pool, Bytes bytes, void* data);
template <typename E>
bool all_finite(const ThreadPool& pool, std::int64_t elements, const E* x);

// Sums of squares of the nodes (memory/plan/square_tree.h) that make up x, by the calling thread: sums[i] is that of the i-th run
// of `node` elements. `node` is a power of two from kSquareLeaf to kSquareStretch. Elements that the last node lacks count as
// zeros.
template <typename E>
void square_nodes(std::int64_t elements, std::int64_t node, const E* x, double* sums /*[ceil(elements / node)]*/);
// cast_from_float() to y and square_nodes() of y, in one pass over memory.
template <typename E>
void round_and_square_nodes(std::int64_t elements, std::int64_t node, const float* x, E* y, double* sums);
// The sum along the fixed tree that every reduction here uses. Destroys `values`.
double tree_sum(std::span<double> values);

Bytes column_sums_scratch_bytes(std::int64_t n, std::int64_t columns);
// sums[columns] (=|+=) sum over rows of dy: the gradient of a bias.
template <typename E>
void column_sums(const ThreadPool& pool, std::int64_t n, std::int64_t columns, const E* dy /*[n,columns]*/,
                 float* sums /*[columns]*/, Store store, std::byte* scratch);

// ---- Embedding (models/cpu/embedding_ops.cpp) ------------------------------------------------------------------------------

// x[i] = factor * table[tokens[i] - first] for the tokens in the tile; other rows are left alone.
template <typename E>
void embedding_forward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const std::int32_t* tokens /*[n]*/,
                       VocabularyTile tile, const E* table /*[rows,H]*/, E* x /*[n,H]*/, float factor = 1.0f);
// x[i] += table[position of row i], after all tiles.
template <typename E>
void position_forward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const Positions& positions,
                      const E* table /*[T,H]*/, E* x /*[n,H]*/);
// dtable[tokens[i] - first] += factor * dx[i] for the tokens in the tile, in the order of i; the
// token `padding` is passed over. Store::write zeroes the tile first.
template <typename E>
void embedding_backward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const std::int32_t* tokens /*[n]*/,
                        VocabularyTile tile, const E* dx /*[n,H]*/, float* dtable /*[rows,H]*/, Store store, float factor = 1.0f,
                        std::int64_t padding = -1);
// dtable[t] (=|+=) sum of dx over the rows at position t, in their order; rows of the table beyond T are zeroed by Store::write,
// else left alone.
template <typename E>
void position_backward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const Positions& positions,
                       std::int64_t table_rows, const E* dx /*[n,H]*/, float* dtable /*[table_rows,H]*/, Store store);

// ---- Loss over the vocabulary in tiles (models/cpu/loss.cpp) ---------------------------------------------------------------

// The state of each row's softmax after some tiles of logits, in three arrays of the caller's.
struct SoftmaxState {
  float* maximum = nullptr;       // [n]
  float* sum = nullptr;           // [n] of exp(logit - maximum)
  float* target_logit = nullptr;  // [n]
};
void loss_begin(std::int64_t n, const SoftmaxState& state);
// `logits` are the tile's columns of all n rows, `ld` elements between rows. The tiles' order and sizes are part of the bits.
template <typename E>
void loss_tile(const ThreadPool& pool, std::int64_t n, VocabularyTile tile, const E* logits /*[n,tile.rows]*/, std::int64_t ld,
               const std::int32_t* targets /*[n]*/, const SoftmaxState& state);
Bytes loss_finish_scratch_bytes(std::int64_t n);
// log_sum_exp[i] for every row; returns the sum over rows with a target of log_sum_exp - target_logit. row_loss may be null.
double loss_finish(std::int64_t n, const std::int32_t* targets /*[n]*/, const SoftmaxState& state, float* log_sum_exp /*[n]*/,
                   float* row_loss /*[n]*/, std::byte* scratch);
// In place: logits become (exp(logit - log_sum_exp) - [column is the target]) * scale; rows without a target become 0. If the
// logits are the output of softcap(), `cap` is its cap and the gradients are those of its input; 0: no cap.
template <typename E>
void loss_gradient_tile(const ThreadPool& pool, std::int64_t n, VocabularyTile tile, E* logits /*[n,tile.rows]*/, std::int64_t ld,
                        const std::int32_t* targets /*[n]*/, const float* log_sum_exp /*[n]*/, float scale, float cap = 0.0f);

}  // namespace spillway::ops
