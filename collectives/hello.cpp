#include "collectives/hello.h"

#include <fmt/core.h>

#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr std::uint32_t kProtocol = 1;

}  // namespace

Message message_of(const Hello& hello) {
  Message message;
  message.put(kProtocol);
  for (const int number : {hello.rank, hello.ranks, hello.port}) message.put(std::int32_t{number});
  put_flags(message, hello.agreed);
  return message;
}

Hello hello_in(Message& message) {
  if (message.get<std::uint32_t>() != kProtocol) throw IoError("another protocol");
  Hello hello;
  hello.rank = message.get<std::int32_t>();
  hello.ranks = message.get<std::int32_t>();
  hello.port = message.get<std::int32_t>();
  if (hello.rank < 1 || hello.port < 1 || hello.port > 65535) throw IoError("no rank");
  hello.agreed = get_flags(message);
  return hello;
}

void put_flags(Message& message, const AgreedFlags& flags) {
  message.put(static_cast<std::uint32_t>(flags.size()));
  for (const auto& [name, value] : flags) message.put_text(name), message.put_text(value);
}

AgreedFlags get_flags(Message& message) {
  AgreedFlags flags;
  const auto count = message.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count; ++i) {
    std::string name = message.get_text();
    flags.emplace_back(std::move(name), message.get_text());
  }
  return flags;
}

std::string disagreement(const AgreedFlags& of_rank_0, int rank, const AgreedFlags& of_rank) {
  const auto words_of = [](const std::string& value) { return value.empty() ? "none" : value.c_str(); };
  const std::string other_version = fmt::format("rank {} has another version of Spillway than rank 0", rank);
  if (of_rank.size() != of_rank_0.size()) return other_version;
  for (std::size_t i = 0; i < of_rank_0.size(); ++i) {
    const auto& [name, value] = of_rank_0[i];
    const auto& [theirs_name, theirs] = of_rank[i];
    if (theirs_name != name) return other_version;
    if (theirs != value)
      return fmt::format("{}: rank {} has {}, and rank 0 has {}", name, rank, words_of(theirs), words_of(value));
  }
  return {};
}

Message message_of(const Roster& roster) {
  Message message;
  message.put_text(roster.refusal);
  message.put(roster.token);
  for (const RankAddress& place : roster.places) message.put_text(place.host), message.put(std::int32_t{place.port});
  return message;
}

Roster roster_in(Message& message, int ranks) {
  Roster roster;
  roster.refusal = message.get_text();
  roster.token = message.get<std::uint64_t>();
  for (int rank = 0; rank < ranks && roster.refusal.empty(); ++rank) {
    std::string host = message.get_text();
    roster.places.push_back({std::move(host), message.get<std::int32_t>()});
  }
  return roster;
}

Message message_of(const Caller& caller) {
  Message message;
  message.put(caller.token), message.put(std::int32_t{caller.rank}), message.put(std::int32_t{caller.channel});
  return message;
}

Caller caller_in(Message& message) {
  Caller caller;
  caller.token = message.get<std::uint64_t>();
  caller.rank = message.get<std::int32_t>();
  caller.channel = message.get<std::int32_t>();
  return caller;
}

}  // namespace spillway
