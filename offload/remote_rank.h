// A rank of another process: what the executor wants of it goes over a connection, one question and one answer at a time, and a
// service there asks its RankExecutor. An error there is thrown here, with the same words and exit code. Not for two threads at
// once. Not here: collectives, which go between the ranks themselves (collectives/tcp_transport.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>

#include "collectives/message.h"
#include "collectives/socket.h"
#include "offload/rank.h"
#include "offload/rank_executor.h"

namespace spillway {

class RemoteRank final : public Rank {
 public:
  // `control` and `graph`, of the plan, must outlive this. `micro_batches`: of a step.
  RemoteRank(Socket& control, int micro_batches, const UnitGraph& graph)
      : control_(control), micro_batches_(micro_batches), graph_(graph) {}

  void write_state(int block, StateKind kind, std::int64_t begin, std::span<const std::byte> data) override;
  void read_state(int block, StateKind kind, std::int64_t begin, std::span<std::byte> data) override;
  void fill_step(const FillTokens& fill) override;
  void fill_forward(const std::optional<LogitsRequest>& request, const FillTokens& fill) override;
  void begin_step(const StepSettings& settings) override;
  void begin_forward(const std::optional<LogitsRequest>& request) override;
  bool begin_flush() override;
  bool begin_commit(std::int64_t step) override;
  bool begin_again() override;
  void wait() override;
  StepOutcome outcome() override;
  double loss_sum() override;
  void acknowledge() override;

 private:
  void send_tokens(Message& question, int micro_batches, std::size_t rows, const FillTokens& fill) const;

  Socket& control_;
  const int micro_batches_;
  const UnitGraph& graph_;
};

// Answers what a RemoteRank asks of this process's rank, until something else is asked: returns that, which its caller answers.
// Throws IoError where the connection ends.
Message serve(Socket& control, RankExecutor& rank);

// What else is asked begins with a number from here on.
inline constexpr std::uint32_t kFirstOtherQuestion = 1000;
// Ask another process for something else; an answer that is an error is thrown. In two parts, others can be asked in between.
void send_question(Socket& control, const Message& question);
Message receive_answer(Socket& control);
Message ask(Socket& control, const Message& question);
// Answer it.
void answer(Socket& control, const Message& words = {});
void answer_error(Socket& control, const std::exception& error);
// The next question, whatever it is.
Message next_question(Socket& control);

}  // namespace spillway
