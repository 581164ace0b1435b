#include "offload/remote_rank.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "memory/base/error.h"
#include "memory/runtime/arena.h"

namespace spillway {
namespace {

enum class Question : std::uint32_t {
  write_state,
  read_state,
  fill_step,
  fill_forward,
  begin_step,
  begin_forward,
  begin_flush,
  begin_commit,
  begin_again,
  wait,
  outcome,
  loss_sum,
  acknowledge
};
constexpr auto kQuestions = static_cast<std::uint32_t>(Question::acknowledge) + 1;
static_assert(kQuestions < kFirstOtherQuestion);

enum class Answer : std::uint32_t { done, error, aborted };

constexpr Bytes kLongest = Bytes{1} << 32;  // the tokens of a step, and more than any range of state

// A run takes as long as it takes; whether the other process lives is another connection's concern.
Deadline far_away() { return std::chrono::steady_clock::now() + std::chrono::hours(24 * 30); }

Message question_of(Question question) {
  Message message;
  message.put(question);
  return message;
}

void put(Message& message, const std::optional<LogitsRequest>& request) {
  message.put(request.has_value());
  message.put(request.value_or(LogitsRequest{}));
}
std::optional<LogitsRequest> get_request(Message& message) {
  const bool is_there = message.get<bool>();
  const auto request = message.get<LogitsRequest>();
  return is_there ? std::optional(request) : std::nullopt;
}

void put(Message& message, const StepOutcome& outcome) {
  message.put(outcome.step), message.put(outcome.loss), message.put(outcome.grad_norm);
  message.put(outcome.mixture.has_value()), message.put(outcome.mixture.value_or(MixtureOutcome{}));
  message.put_text(outcome.stopped), message.put_text(outcome.skipped);
  message.put(outcome.state_intact), message.put(outcome.seconds);
  for (const Lane lane : kAll<Lane>) message.put(outcome.moved[lane]);
  for (const Tier tier : kAll<Tier>) message.put(outcome.peak[tier]);
}
StepOutcome get_outcome(Message& message) {
  StepOutcome outcome;
  outcome.step = message.get<std::int64_t>();
  outcome.loss = message.get<double>();
  outcome.grad_norm = message.get<double>();
  const bool has_mixture = message.get<bool>();
  const auto mixture = message.get<MixtureOutcome>();
  if (has_mixture) outcome.mixture = mixture;
  outcome.stopped = message.get_text();
  outcome.skipped = message.get_text();
  outcome.state_intact = message.get<bool>();
  outcome.seconds = message.get<double>();
  for (const Lane lane : kAll<Lane>) outcome.moved[lane] = message.get<Bytes>();
  for (const Tier tier : kAll<Tier>) outcome.peak[tier] = message.get<Bytes>();
  return outcome;
}

}  // namespace

// --- asking ---

void send_question(Socket& control, const Message& question) { send_message(control, question, far_away()); }

Message ask(Socket& control, const Message& question) {
  send_question(control, question);
  return receive_answer(control);
}

Message receive_answer(Socket& control) {
  Message words = receive_message(control, kLongest, far_away());
  const auto kind = words.get<Answer>();
  if (kind == Answer::done) return words;
  const int exit_code = words.get<std::int32_t>();
  const std::string what = words.get_text(), help = words.get_text();
  if (kind == Answer::aborted) throw AbortedError(what);
  throw Error(exit_code, fmt::format("{}: {}", control.peer(), what), help);
}

void RemoteRank::write_state(int block, StateKind kind, std::int64_t begin, std::span<const std::byte> data) {
  Message question = question_of(Question::write_state);
  question.put(block), question.put(kind), question.put(begin), question.put_span(data);
  ask(control_, question);
}

void RemoteRank::read_state(int block, StateKind kind, std::int64_t begin, std::span<std::byte> data) {
  Message question = question_of(Question::read_state);
  question.put(block), question.put(kind), question.put(begin), question.put(static_cast<std::uint64_t>(data.size()));
  Message words = ask(control_, question);
  const std::span<const std::byte> read = words.get_span();
  if (read.size() != data.size())
    throw IoError(fmt::format("{} has {} bytes of state where {} are wanted", control_.peer(), read.size(), data.size()));
  std::ranges::copy(read, data.begin());
}

void RemoteRank::send_tokens(Message& question, int micro_batches, std::size_t rows, const FillTokens& fill) const {
  std::vector<std::int32_t> filled(rows * static_cast<std::size_t>(token_arrays(graph_)));
  const std::span all(filled);
  for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    std::ranges::fill(filled, 0);
    fill(micro_batch, {.tokens = all.first(rows), .targets = all.subspan(rows, rows), .documents = all.subspan(2 * rows)});
    question.put_span(std::as_bytes(all));
  }
}

void RemoteRank::fill_step(const FillTokens& fill) {
  Message question = question_of(Question::fill_step);
  send_tokens(question, micro_batches_, static_cast<std::size_t>(graph_.rows), fill);
  ask(control_, question);
}

void RemoteRank::fill_forward(const std::optional<LogitsRequest>& request, const FillTokens& fill) {
  Message question = question_of(Question::fill_forward);
  put(question, request);
  send_tokens(question, 1, request && request->single_row ? 1 : static_cast<std::size_t>(graph_.rows), fill);
  ask(control_, question);
}

void RemoteRank::begin_step(const StepSettings& settings) {
  Message question = question_of(Question::begin_step);
  question.put(settings);
  ask(control_, question);
}

void RemoteRank::begin_forward(const std::optional<LogitsRequest>& request) {
  Message question = question_of(Question::begin_forward);
  put(question, request);
  ask(control_, question);
}

bool RemoteRank::begin_flush() { return ask(control_, question_of(Question::begin_flush)).get<bool>(); }

bool RemoteRank::begin_commit(std::int64_t step) {
  Message question = question_of(Question::begin_commit);
  question.put(step);
  return ask(control_, question).get<bool>();
}

bool RemoteRank::begin_again() { return ask(control_, question_of(Question::begin_again)).get<bool>(); }
void RemoteRank::wait() { ask(control_, question_of(Question::wait)); }
double RemoteRank::loss_sum() { return ask(control_, question_of(Question::loss_sum)).get<double>(); }
void RemoteRank::acknowledge() { ask(control_, question_of(Question::acknowledge)); }

StepOutcome RemoteRank::outcome() {
  Message words = ask(control_, question_of(Question::outcome));
  return get_outcome(words);
}

// --- answering ---

namespace {

// Gives a RankExecutor the tokens that came, micro-batch after micro-batch.
FillTokens tokens_in(Message& question) {
  return [&question](int, const MicroBatchRows& rows) {
    std::span<const std::byte> from = question.get_span();
    if (from.size() != rows.tokens.size_bytes() + rows.targets.size_bytes() + rows.documents.size_bytes())
      throw IoError("rank 0 sent another number of tokens than the plan has");
    for (const std::span<std::int32_t> to : {rows.tokens, rows.targets, rows.documents}) {
      std::ranges::copy(from.first(to.size_bytes()), std::as_writable_bytes(to).begin());
      from = from.subspan(to.size_bytes());
    }
  };
}

// Memory for a range of state: the drive wants it aligned.
Arena staging_of(std::uint64_t bytes) {
  if (bytes > static_cast<std::uint64_t>(kLongest)) throw IoError("rank 0 asks for more state than there is");
  return Arena(round_up(std::max<Bytes>(static_cast<Bytes>(bytes), 1), kExtentAlignment), "state between ranks");
}

Message read_range(Message& question, RankExecutor& rank) {
  const int block = question.get<int>();
  const auto kind = question.get<StateKind>();
  const auto begin = question.get<std::int64_t>();
  const auto bytes = question.get<std::uint64_t>();
  const Arena staging = staging_of(bytes);
  const std::span<std::byte> data(staging.data(), static_cast<std::size_t>(bytes));
  rank.read_state(block, kind, begin, data);
  Message words;
  words.put_span(data);
  return words;
}

void write_range(Message& question, RankExecutor& rank) {
  const int block = question.get<int>();
  const auto kind = question.get<StateKind>();
  const auto begin = question.get<std::int64_t>();
  const std::span<const std::byte> data = question.get_span();
  const Arena staging = staging_of(data.size());
  std::ranges::copy(data, staging.data());
  rank.write_state(block, kind, begin, {staging.data(), data.size()});
}

Message answer_to(Question asked, Message& question, RankExecutor& rank) {
  Message words;
  switch (asked) {
    case Question::write_state: write_range(question, rank); break;
    case Question::read_state: return read_range(question, rank);
    case Question::fill_step: rank.fill_step(tokens_in(question)); break;
    case Question::fill_forward: {
      const std::optional<LogitsRequest> request = get_request(question);
      rank.fill_forward(request, tokens_in(question));
      break;
    }
    case Question::begin_step: rank.begin_step(question.get<StepSettings>()); break;
    case Question::begin_forward: rank.begin_forward(get_request(question)); break;
    case Question::begin_flush: words.put(rank.begin_flush()); break;
    case Question::begin_commit: words.put(rank.begin_commit(question.get<std::int64_t>())); break;
    case Question::begin_again: words.put(rank.begin_again()); break;
    case Question::wait: rank.wait(); break;
    case Question::outcome: put(words, rank.outcome()); break;
    case Question::loss_sum: words.put(rank.loss_sum()); break;
    case Question::acknowledge: rank.acknowledge(); break;
  }
  return words;
}

}  // namespace

void answer(Socket& control, const Message& words) {
  Message message;
  message.put(Answer::done);
  message.append(words);
  send_message(control, message, far_away());
}

void answer_error(Socket& control, const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  Message message;
  message.put(dynamic_cast<const AbortedError*>(&error) != nullptr ? Answer::aborted : Answer::error);
  message.put(std::int32_t{known != nullptr ? known->exit_code() : kExitBug});
  message.put_text(error.what());
  message.put_text(known != nullptr ? known->help() : "");
  send_message(control, message, far_away());
}

Message next_question(Socket& control) { return receive_message(control, kLongest, far_away()); }

Message serve(Socket& control, RankExecutor& rank) {
  for (;;) {
    Message question = next_question(control);
    Message unread = question.head();
    if (unread.get<std::uint32_t>() >= kQuestions) return question;
    try {
      answer(control, answer_to(question.get<Question>(), question, rank));
    } catch (const std::exception& error) {
      answer_error(control, error);
    }
  }
}

}  // namespace spillway
