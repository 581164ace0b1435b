#include "trainer/run/team_messages.h"

namespace spillway {

Message message_of(const BeginOrder& order) {
  Message message;
  message.put(TeamQuestion::begin);
  message.put_text(order.plan);
  message.put(order.durable.has_value());
  const DurableSteps durable = order.durable.value_or(DurableSteps{});
  message.put(durable.store_id);
  message.put_text(durable.run_directory);
  message.put(durable.yields), message.put(durable.interval);
  message.put(durable.from_step.has_value()), message.put(durable.from_step.value_or(0));
  message.put_span(std::as_bytes(std::span(order.orphans)));
  message.put(order.nccl.has_value()), message.put(order.nccl.value_or(NcclUniqueId()));
  return message;
}

BeginOrder begin_order_in(Message& question) {
  BeginOrder order{.plan = question.get_text(), .durable = {}, .orphans = {}, .nccl = {}};
  const bool is_durable = question.get<bool>();
  DurableSteps durable{.store_id = question.get<std::uint64_t>(), .run_directory = question.get_text()};
  durable.yields = question.get<bool>();
  durable.interval = question.get<std::int64_t>();
  const bool goes_on = question.get<bool>();
  const auto step = question.get<std::int64_t>();
  if (goes_on) durable.from_step = step;
  if (is_durable) order.durable = std::move(durable);
  const std::span<const std::byte> orphans = question.get_span();
  order.orphans.resize(orphans.size() / sizeof(std::uint64_t));
  std::memcpy(order.orphans.data(), orphans.data(), order.orphans.size() * sizeof(std::uint64_t));
  const bool by_nccl = question.get<bool>();
  const auto id = question.get<NcclUniqueId>();
  if (by_nccl) order.nccl = id;
  return order;
}

SumBy sum_by(const ParallelOptions& parallel) {
  if (parallel.collectives == CollectivesChoice::parameter_server) return SumBy::server;
  return parallel.reduce_algorithm == ReduceAlgorithm::ring ? SumBy::ring : SumBy::direct;
}

}  // namespace spillway
