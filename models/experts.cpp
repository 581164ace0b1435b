#include "models/experts.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr std::int64_t kStripRows = 1024;  // rows of an expert that are worked on at a time
constexpr Bytes kFloat = sizeof(float);

// Values that the router and the experts of one layer share.
struct ExpertsValues {
  StreamValue input, output;
  int normalized = -1;   // [n,H], read by the router and the experts
  int dnormalized = -1;  // [n,H] float
  int routing = -1;      // int32 and float [n,k]: each row's experts and their weights
  int drouting = -1;     // float [n,k]
  int sum = -1;          // [n,H] float
};

void add_router(ModelBuilder& builder, const ExpertsSpec& spec, const ExpertsValues& values) {
  const Compute& compute = builder.compute();
  const std::int64_t n = compute.rows, H = spec.router.columns, E = spec.router.rows, k = spec.experts_per_row;
  const Bytes element = size_of(compute.dtype);
  const std::string name = spec.name + " router";
  BlockLayout layout;
  add_norm(layout, spec.norm);
  layout.align();
  layout.add(spec.router);

  Unit unit;
  unit.name = name;
  unit.blocks = unit.gradient_blocks = {builder.add_block(name, std::move(layout))};
  const int statistics = builder.add_value(name + " statistics", norm_statistics_bytes(compute, spec.norm));
  unit.forward = {{values.input.value, Access::read},
                  {statistics, Access::write},
                  {values.normalized, Access::write},
                  {values.routing, Access::write}};
  unit.backward = {
      {values.output.gradient, Access::read}, {values.input.value, Access::read},    {statistics, Access::read},
      {values.normalized, Access::read},      {values.routing, Access::read},        {values.dnormalized, Access::update},
      {values.drouting, Access::read},        {values.input.gradient, Access::write}};
  unit.saved = {statistics};
  const double product = 2.0 * static_cast<double>(n * H * E);
  unit.forward_work = {.gemm_flops = product, .bytes = static_cast<double>(2 * n * H * element + n * E * kFloat)};
  unit.backward_work = {.gemm_flops = 2 * product,
                        .bytes = static_cast<double>(n * H * (4 * element + 2 * kFloat) + n * (E + k) * kFloat)};
  unit.forward_workspace = round_up(n * E * kFloat, 64);
  unit.backward_workspace = round_up(n * E * kFloat, 64) + round_up(n * H * kFloat, 64);
  builder.add_planned_unit(std::move(unit));
}

void add_expert(ModelBuilder& builder, const ExpertsSpec& spec, const ExpertsValues& values, std::int64_t index) {
  const Compute& compute = builder.compute();
  const ExpertSpec& expert = spec.experts[static_cast<std::size_t>(index)];
  const std::int64_t H = expert.down_weight.rows, I = expert.down_weight.columns, experts = std::ssize(spec.experts);
  const bool is_first = index == 0, is_last = index + 1 == experts;
  const Bytes element = size_of(compute.dtype);
  const std::string name = fmt::format("{} expert {}", spec.name, index);
  BlockLayout layout;
  layout.add_stack(expert.up_weights);
  layout.add_stack({expert.down_weight});

  Unit unit;
  unit.name = name;
  unit.blocks = unit.gradient_blocks = {builder.add_block(name, std::move(layout))};
  if (index >= spec.experts_per_row) builder.set_idle(unit.blocks.front());  // a row goes to k experts; which ones varies
  unit.forward = {
      {values.normalized, Access::read}, {values.routing, Access::read}, {values.sum, is_first ? Access::write : Access::update}};
  if (is_last)
    unit.forward.insert(unit.forward.end(), {{values.input.value, Access::read}, {values.output.value, Access::write}});
  // The values between the two products are computed again: how many rows an expert has is not known before the step.
  const Access adds = is_last ? Access::write : Access::update;
  unit.backward = {{values.output.gradient, Access::read},
                   {values.normalized, Access::read},
                   {values.routing, Access::read},
                   {values.drouting, adds},
                   {values.dnormalized, adds}};

  const double rows = static_cast<double>(compute.rows * spec.experts_per_row) / static_cast<double>(experts);  // m
  const double up = 2 * rows * static_cast<double>(H * 2 * I), down = 2 * rows * static_cast<double>(I * H);
  const double row_bytes = static_cast<double>(2 * H * element + 3 * I * element + 2 * H * kFloat);
  unit.forward_work = {.gemm_flops = up + down, .bytes = rows * row_bytes, .gemm_rows = rows};
  unit.backward_work = {
      .gemm_flops = 2 * (up + down) + up, .bytes = 3 * rows * row_bytes, .repeated_flops = up, .gemm_rows = rows};
  const std::int64_t strip = std::min(compute.rows, kStripRows);
  unit.forward_workspace = round_up(strip * ((H + 3 * I) * element + H * kFloat), 64);
  unit.backward_workspace = round_up(strip * ((2 * H + 6 * I) * element + H * kFloat), 64);
  builder.add_planned_unit(std::move(unit));
}

}  // namespace

StreamValue add_experts(ModelBuilder& builder, StreamValue input, const std::string& output_name, const ExpertsSpec& spec) {
  const Compute& compute = builder.compute();
  const std::int64_t n = compute.rows, H = spec.router.columns, k = spec.experts_per_row;
  SPILLWAY_CHECK(std::ssize(spec.experts) == spec.router.rows && k >= 1 && k <= spec.router.rows,
                 "{}: {} experts of {}, {} a row", spec.name, spec.experts.size(), spec.router.rows, k);
  ExpertsValues values;
  values.input = input;
  values.output = builder.add_stream_value(output_name, H);
  values.normalized = builder.add_value(spec.name + " normalized", n * H * size_of(compute.dtype));
  values.dnormalized = builder.add_value("d " + spec.name + " normalized", n * H * kFloat);
  values.routing = builder.add_value(spec.name + " routing", n * k * (kFloat + static_cast<Bytes>(sizeof(std::int32_t))));
  values.drouting = builder.add_value("d " + spec.name + " routing", n * k * kFloat);
  values.sum = builder.add_value(spec.name + " sum", n * H * kFloat);
  add_router(builder, spec, values);
  for (std::int64_t index = 0; index < std::ssize(spec.experts); ++index) add_expert(builder, spec, values, index);
  return values.output;
}

}  // namespace spillway
