// A matrix product by oneDNN's own matmul, for benchmarks to compare with ours. Not here: ours (models/cpu/ops.h).
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "models/cpu/matmul_description.h"
#include "models/cpu/ops.h"

namespace spillway {

struct ProductMemory {
  std::byte *a, *b, *c;
};

// Times the product until the benchmark has enough samples. Returns false if oneDNN has no such product; the benchmark then says
// why.
inline bool time_library_product(benchmark::State& state, const ops::GemmSpec& spec, int threads, const ProductMemory& at) {
  omp_set_num_threads(threads);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto matrix = [](std::int64_t rows, std::int64_t columns, ops::Transpose transpose, std::int64_t ld, DType type) {
    const auto element = type == DType::float32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
    return dnnl::memory::desc({rows, columns}, element,
                              transpose == ops::Transpose::yes ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1});
  };
  const auto a = matrix(spec.m, spec.k, spec.transpose_a, spec.lda, spec.input);
  const auto b = matrix(spec.k, spec.n, spec.transpose_b, spec.ldb, spec.input);
  const auto c = matrix(spec.m, spec.n, ops::Transpose::no, spec.ldc, spec.output);
  try {
    dnnl::primitive_attr attributes;
    dnnl::post_ops post_ops;
    if (spec.store == ops::Store::add) post_ops.append_sum(1.0f);
    attributes.set_post_ops(post_ops);
    const dnnl::matmul product(ops::describe_matmul(engine, a, b, dnnl::memory::desc(), c, attributes));
    const std::unordered_map<int, dnnl::memory> arguments = {
        {DNNL_ARG_SRC, {a, engine, at.a}}, {DNNL_ARG_WEIGHTS, {b, engine, at.b}}, {DNNL_ARG_DST, {c, engine, at.c}}};
    for ([[maybe_unused]] auto _ : state) {
      product.execute(stream, arguments);
      stream.wait();
    }
    return true;
  } catch (const dnnl::error& error) {
    state.SkipWithError(error.what());
    return false;
  }
}

}  // namespace spillway
