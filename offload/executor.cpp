#include "offload/executor.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/threads_transport.h"
#include "memory/base/error.h"
#include "offload/rank_executor.h"

namespace spillway {

struct Executor::Impl {
  explicit Impl(const ExecutorOptions& given)
      : options(given), plan(*given.plan), graph(given.model->graph), sharding(plan.choices.sharding) {
    const auto others = std::ssize(given.other_ranks) + std::ssize(given.remote_ranks);
    SPILLWAY_CHECK(others == sharding.ranks - 1, "{} ranks for a plan of {}", others + 1, sharding.ranks);
    if (!given.other_ranks.empty()) team.emplace(sharding.ranks, kTeamChannels);
    add_local(0, given.rank);
    for (int rank = 1; rank <= std::ssize(given.other_ranks); ++rank)
      add_local(rank, given.other_ranks[static_cast<std::size_t>(rank - 1)]);
    ranks.insert(ranks.end(), given.remote_ranks.begin(), given.remote_ranks.end());
  }

  void add_local(int rank, const RankResources& with) {
    const bool is_only = sharding.ranks == 1;
    Communicator* const communicator = is_only ? nullptr : communicator_of(rank, with);
    Transport* const commits = is_only ? nullptr : &transport_of(rank, TeamChannel::commits);
    local.push_back(std::make_unique<RankExecutor>(options, with, communicator, commits));
    ranks.push_back(local.back().get());
  }

  Transport& transport_of(int rank, TeamChannel channel, RankMemory* memory = nullptr) {
    Transport& transport =
        team ? team->of(rank, static_cast<int>(channel), memory) : *options.transports.at(static_cast<std::size_t>(channel));
    return options.around_transport ? *transports.emplace_back(options.around_transport(transport, channel)) : transport;
  }
  Communicator* communicator_of(int rank, const RankResources& with) {
    RankMemory& memory = *memories.emplace_back(with.device->make_rank_memory(*with.pool));
    Transport& transport = transport_of(rank, TeamChannel::network, &memory);
    return communicators.emplace_back(std::make_unique<Communicator>(transport, sharding, memory, options.sum_by)).get();
  }
  // Ranks end one after the other; those that are under way must not wait for each other then.
  ~Impl() {
    if (under_way > 0) abort("the run ended");
  }

  void abort(const std::string& reason) noexcept {
    if (!communicators.empty()) communicators.front()->abort(reason);
  }

  // Calls `visit` for each rank, also where it fails for one: ranks that began a run wait for each other. Then throws the first
  // error that is not the others' hearing of it.
  template <typename Visit>
  void on_all(const Visit& visit) {
    std::exception_ptr error, heard;
    for (Rank* const rank : ranks) {
      try {
        visit(*rank);
      } catch (const AbortedError&) {
        if (!heard) heard = std::current_exception();
      } catch (const std::exception& failure) {
        if (!error) error = std::current_exception();
        abort(failure.what());
      }
    }
    if (error || heard) std::rethrow_exception(error ? error : heard);
  }

  // Begins a run on all ranks and waits for it, unless there is nothing to do, which all ranks agree on.
  template <typename Begin>
  void run(const Begin& begin) {
    bool begun = false;
    ++under_way;
    on_all([&](Rank& rank) { begun |= begin(rank); });
    if (begun) on_all([](Rank& rank) { rank.wait(); });
    --under_way;
  }

  RankExecutor& first() const { return *local.front(); }
  void check_idle(const char* what) const { first().check_idle(what); }

  // The tokens of a rank's micro-batches; those of the step are numbered over all ranks.
  FillTokens of_rank(std::size_t rank, int each, const FillTokens& fill) const {
    const int first = static_cast<int>(rank) * each;
    return [&fill, first](int micro_batch, const MicroBatchRows& rows) { fill(first + micro_batch, rows); };
  }

  // Visits the parts of a range of an array: the rank, the first element within its part, and the bytes' place in the range. An
  // array that is not sharded is one part.
  template <typename Visit>
  void for_each_part(int block, StateKind kind, std::int64_t begin, std::size_t bytes, const Visit& visit) const {
    const RestingArray* const array = plan.blocks.at(static_cast<std::size_t>(block)).find(kind);
    SPILLWAY_CHECK(array != nullptr, "block {} has no such array", block);
    const std::int64_t end = begin + static_cast<std::int64_t>(bytes) / array->each();
    for (int rank = 0; rank < sharding.ranks; ++rank) {
      const Shard part = shard_at_rest(sharding, graph.blocks[static_cast<std::size_t>(block)], kind, rank);
      const std::int64_t first = std::max(begin, part.begin), last = std::min(end, part.end());
      if (first >= last) continue;
      const auto place = static_cast<std::size_t>((first - begin) * array->each());
      // What lies behind the last element fills an extent.
      const auto count = last == end ? bytes - place : static_cast<std::size_t>((last - first) * array->each());
      visit(*ranks[static_cast<std::size_t>(rank)], first - part.begin, place, count);
    }
  }

  // Ranks that add the same words come to the same results.
  static void check_agreement(const StepOutcome& a, const StepOutcome& b) {
    const auto same = [](double x, double y) { return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y); };
    SPILLWAY_CHECK(a.step == b.step && same(a.loss, b.loss) && same(a.grad_norm, b.grad_norm) && a.stopped == b.stopped &&
                       a.skipped == b.skipped,
                   "ranks disagree on step {}: loss {} and {}, norm {} and {}, {} and {}", a.step, a.loss, b.loss, a.grad_norm,
                   b.grad_norm, a.stopped, b.stopped);
  }

  const ExecutorOptions options;
  const Plan& plan;
  const UnitGraph& graph;
  const Sharding sharding;
  std::optional<ThreadTeam> team;                      // where all ranks are threads of this process
  std::vector<std::unique_ptr<Transport>> transports;  // those of options.around_transport
  std::vector<std::unique_ptr<RankMemory>> memories;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::unique_ptr<RankExecutor>> local;  // those of this process, rank 0 first
  std::vector<Rank*> ranks;                          // all
  int under_way = 0;                                 // runs that were begun and not waited for
};

Executor::Executor(const ExecutorOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Executor::~Executor() = default;

void Executor::submit(const StepSettings& settings, const FillTokens& fill) {
  Impl& impl = *impl_;
  for (std::size_t rank = 0; rank < impl.ranks.size(); ++rank) {
    impl.ranks[rank]->acknowledge();
    impl.ranks[rank]->fill_step(impl.of_rank(rank, impl.plan.choices.micro_batches, fill));
  }
  ++impl.under_way;
  impl.on_all([&](Rank& rank) { rank.begin_step(settings); });
}

StepOutcome Executor::wait() {
  Impl& impl = *impl_;
  for (Rank* const rank : impl.ranks) rank->acknowledge();
  impl.on_all([](Rank& rank) { rank.wait(); });
  --impl.under_way;
  impl.run([](Rank& rank) { return rank.begin_again(); });
  StepOutcome outcome = impl.ranks.front()->outcome();
  for (std::size_t rank = 1; rank < impl.ranks.size(); ++rank) {
    const StepOutcome other = impl.ranks[rank]->outcome();
    Impl::check_agreement(outcome, other);
    outcome.state_intact &= other.state_intact;
    outcome.seconds = std::max(outcome.seconds, other.seconds);
    for (const Lane lane : kAll<Lane>) outcome.moved[lane] += other.moved[lane];
    for (const Tier tier : kAll<Tier>) outcome.peak[tier] = std::max(outcome.peak[tier], other.peak[tier]);
  }
  return outcome;
}

void Executor::flush() {
  impl_->check_idle("flush");
  impl_->run([](Rank& rank) { return rank.begin_flush(); });
}

StateHold Executor::hold_state(std::int64_t step) {
  Impl& impl = *impl_;
  impl.check_idle("holding the state");
  SPILLWAY_CHECK(!impl.first().has_waiting_update(), "the state after step {} cannot be held: an update is waiting", step);
  SPILLWAY_CHECK(impl.ranks.size() == 1 || impl.options.rank.durability, "the state of {} ranks is held", impl.ranks.size());
  impl.run([step](Rank& rank) { return rank.begin_commit(step); });
  return impl.first().hold();
}

double Executor::evaluate(const FillTokens& fill) {
  Impl& impl = *impl_;
  impl.check_idle("evaluation");
  SPILLWAY_CHECK(impl.options.evaluation != nullptr, "no model was compiled for evaluation");
  flush();
  for (std::size_t rank = 0; rank < impl.ranks.size(); ++rank)
    impl.ranks[rank]->fill_forward(std::nullopt, impl.of_rank(rank, 1, fill));
  impl.run([](Rank& rank) {
    rank.begin_forward(std::nullopt);
    return true;
  });
  double sum = 0;
  for (Rank* const of : impl.ranks) sum += of->loss_sum();
  return sum;
}

std::span<const float> Executor::logits(const LogitsRequest& request, const FillTokens& fill) {
  Impl& impl = *impl_;
  impl.check_idle("evaluation");
  SPILLWAY_CHECK((request.single_row ? impl.options.one_row : impl.options.evaluation) != nullptr,
                 "no model was compiled for it");
  SPILLWAY_CHECK(impl.plan.logits_buffer >= 0, "the plan has no room for logits");
  flush();
  for (Rank* const rank : impl.ranks) rank->fill_forward(request, fill);  // all ranks, as they gather weights
  impl.run([&](Rank& rank) {
    rank.begin_forward(request);
    return true;
  });
  return impl.first().logits();
}

void Executor::write_state(int block, StateKind kind, std::int64_t begin, std::span<const std::byte> data) {
  impl_->check_idle("writing state");
  impl_->for_each_part(block, kind, begin, data.size(),
                       [&](Rank& rank, std::int64_t element, std::size_t place, std::size_t bytes) {
                         rank.write_state(block, kind, element, data.subspan(place, bytes));
                       });
}

void Executor::read_state(int block, StateKind kind, std::int64_t begin, std::span<std::byte> data) {
  Impl& impl = *impl_;
  impl.check_idle("reading state");
  SPILLWAY_CHECK(!impl.first().has_waiting_update(), "reading state with an update waiting");
  std::size_t read = 0;
  impl.for_each_part(block, kind, begin, data.size(),
                     [&](Rank& rank, std::int64_t element, std::size_t place, std::size_t bytes) {
                       if (place < read) return;  // a rank before has it, too
                       rank.read_state(block, kind, element, data.subspan(place, bytes));
                       read = place + bytes;
                     });
  SPILLWAY_CHECK(read == data.size(), "block {}: {} of {} bytes are on no rank", block, data.size() - read, data.size());
}

}  // namespace spillway
