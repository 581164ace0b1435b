// The CPU's kernels of a mixture's router (models/cpu/experts/routing.cpp), and those by which an expert takes its rows and gives
// them back (models/cpu/experts/expert_rows.cpp). As in ops.h, bits do not depend on the number of threads. Not here: the
// experts' products (experts.h), what the calls mean (models/kernels.h).
//
// Legend: n rows, E experts, k of them a row, H hidden, I inner width, m rows of a piece of which the first `used` are an
// expert's.
#pragma once

#include <cstdint>

#include "memory/base/parallel.h"
#include "memory/plan/control_words.h"
#include "models/kernel_shapes.h"
#include "models/routing.h"

namespace spillway::ops {

// Turns logits into probabilities, in place, and routes the rows. Returns false where a logit is not a number; the rows then
// still go to some experts.
bool route(const ThreadPool& pool, const RouterShape& shape, float* scores /*[n,E]*/, float* log_sums /*[n]*/, const Routing& to);
// totals[0,E) += counts, [E,2E) += sums of probabilities, [2E] += sum of log_sums^2.
void add_routing(const ThreadPool& pool, const RouterShape& shape, const float* scores, const float* log_sums,
                 const Routing& routing, double* totals /*[2E+1]*/);
// One layer's part of the load of all `layers`.
void add_load(const RouterShape& shape, const Routing& routing, std::int64_t layers, ExpertLoad& load);
// slope[e]: what is added to the gradient of each row's e-th probability. z: what log_sums are multiplied by in the gradient.
template <typename E>
void route_backward(const ThreadPool& pool, const RouterShape& shape, const float* dweights /*[n,k]*/, const float* scores,
                    const float* log_sums, const Routing& routing, const float* slope /*[E]*/, float z, E* dlogits /*[n,E]*/);

// The expert's rows of x, then zeros. places [used].
template <typename E>
void gather_rows(const ThreadPool& pool, std::int64_t m, std::int64_t used, std::int64_t H, std::int64_t k,
                 const std::int32_t* places, const E* x /*[n,H]*/, E* rows /*[m,H]*/);
// sum[row of place] += factor * (out + bias); the factor is the place's weight, or 1 where there are none.
template <typename E>
void add_rows(const ThreadPool& pool, std::int64_t used, std::int64_t H, std::int64_t k, const std::int32_t* places,
              const float* weights /*[n,k] or null*/, const E* bias /*[H] or null*/, const float* out /*[m,H]*/,
              float* sum /*[n,H]*/);
// dweights[place] = h . dh, and the bias . dy where there is one; then h and dup are multiplied by the place's weight.
template <typename E>
struct RowsToWeigh {
  E *h /*[m,I]*/, *dup /*[m,2I]*/;
  const E *dh /*[m,I]*/, *dy /*[m,H]*/, *bias /*[H] or null*/;
};
template <typename E>
void weigh_rows(const ThreadPool& pool, std::int64_t used, std::int64_t I, std::int64_t H, const std::int32_t* places,
                const float* weights, const RowsToWeigh<E>& rows, float* dweights /*[n,k]*/);
// sums (=|+=) the rows of x, each times its place's weight where there are weights. Written sums are followed by zeros up to a
// multiple of kPieceAlignment.
template <typename E>
void sum_rows(const ThreadPool& pool, std::int64_t used, std::int64_t columns, const std::int32_t* places,
              const float* weights /*[n,k] or null*/, const E* x /*[m,columns]*/, float* sums /*[columns]*/, Store store);

}  // namespace spillway::ops
