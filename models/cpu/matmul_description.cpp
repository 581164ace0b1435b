#include "models/cpu/matmul_description.h"

#include <cstring>
#include <string_view>

#include "memory/base/error.h"
#include "models/cpu/gemm_bf16.h"
#include "models/instruction_limit.h"

namespace spillway::ops {
namespace {

dnnl::memory::data_type library_type(DType type) {
  SPILLWAY_CHECK(type != DType::float16, "matrix products take fp32 or bf16, not fp16");
  return type == DType::float32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

}  // namespace

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, Transpose transpose, std::int64_t ld, DType type) {
  const dnnl::memory::dims strides = transpose == Transpose::yes ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1};
  return {{rows, columns}, library_type(type), strides};
}

Instructions choose_instructions(const dnnl::engine& engine) {
  try {
    const auto shape = matrix(64, 64, Transpose::no, 64, DType::bfloat16);
    const auto compiled = describe_matmul(engine, shape, shape, dnnl::memory::desc(), shape);
    const std::string_view name = compiled.impl_info_str();
    if (!name.starts_with("brg")) return Instructions::widened;
    if (name.find("amx") != std::string_view::npos) return Instructions::amx_bf16;
    return bf16_kernels_run() && allows_avx512_bf16() ? Instructions::avx512_bf16 : Instructions::amx_bf16;
  } catch (const dnnl::error&) {
    return Instructions::widened;
  }
}

std::unique_ptr<LibraryProduct> compile_product(const dnnl::engine& engine, int threads, const GemmSpec& slice) {
  const auto a = matrix(slice.m, slice.k, slice.transpose_a, slice.lda, slice.input);
  const auto b = matrix(slice.k, slice.n, slice.transpose_b, slice.ldb, slice.input);
  const auto c = matrix(slice.m, slice.n, Transpose::no, slice.ldc, slice.output);
  const auto bias = matrix(1, slice.n, Transpose::no, slice.n, slice.input);
  const auto residual = matrix(slice.m, slice.n, Transpose::no, slice.ld_residual, slice.input);

  dnnl::post_ops post_ops;
  // The library has no fast product whose factor comes before a sum as an operation of its own.
  const bool scales_output = DNNL_VERSION_MAJOR < 3 && slice.scale != 1 && slice.store == Store::add && !slice.has_residual;
  if (slice.scale != 1 && !scales_output) append_factor(post_ops, slice.scale);
  if (slice.store == Store::add) post_ops.append_sum(1.0f);
  if (slice.has_residual) post_ops.append_binary(dnnl::algorithm::binary_add, residual);
  const int before_residual = (slice.scale != 1 ? 1 : 0) + (slice.store == Store::add ? 1 : 0);
  const int residual_argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(before_residual) | DNNL_ARG_SRC_1;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_post_ops(post_ops);
#if DNNL_VERSION_MAJOR < 3
  if (scales_output) attributes.set_output_scales(0, {slice.scale});
#endif

  auto product = std::make_unique<LibraryProduct>();
  const auto compiled = describe_matmul(engine, a, b, slice.has_bias ? bias : dnnl::memory::desc(), c, attributes);
  product->primitive = dnnl::matmul(compiled);
  product->implementation = compiled.impl_info_str();
  product->scratchpad_bytes = static_cast<Bytes>(compiled.scratchpad_desc().get_size());
  for (int worker = 0; worker < threads; ++worker) {
    LibraryProduct::Call call;
    call.arguments[DNNL_ARG_SRC] = call.a = dnnl::memory(a, engine, nullptr);
    call.arguments[DNNL_ARG_WEIGHTS] = call.b = dnnl::memory(b, engine, nullptr);
    call.arguments[DNNL_ARG_DST] = call.c = dnnl::memory(c, engine, nullptr);
    call.arguments[DNNL_ARG_SCRATCHPAD] = call.scratchpad = dnnl::memory(compiled.scratchpad_desc(), engine, nullptr);
    if (slice.has_bias) call.arguments[DNNL_ARG_BIAS] = call.bias = dnnl::memory(bias, engine, nullptr);
    if (slice.has_residual) call.arguments[residual_argument] = call.residual = dnnl::memory(residual, engine, nullptr);
    product->calls.push_back(std::move(call));
  }
  return product;
}

void make_dense(GemmSpec& slice) {
  slice.lda = slice.k;
  slice.ldb = slice.transpose_b == Transpose::yes ? slice.k : slice.n;
  slice.ldc = slice.ld_residual = slice.n;
}

void copy_rows(std::int64_t rows, Bytes width, const std::byte* from, Bytes from_ld, std::byte* to, Bytes to_ld) {
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(to + row * to_ld, from + row * from_ld, static_cast<std::size_t>(width));
}

}  // namespace spillway::ops
