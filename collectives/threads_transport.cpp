#include "collectives/threads_transport.h"

#include <algorithm>
#include <cstring>

namespace spillway {

// A rank's place. Each call has a number, which is the same on all ranks: a rank counts `offered` up once its bytes may be read,
// and `taken` once it has read all that it wanted of others. Who waits for a count sleeps until it changes. kAborted in it wakes
// everybody for good.
class ThreadTeam::Seat final : public Transport {
 public:
  Seat(int rank, int ranks, int channel, Shared& team)
      : rank_(rank), ranks_(ranks), first_(static_cast<std::size_t>(channel * ranks)), team_(team) {}

  void receive_by(RankMemory* memory) { memory_ = memory; }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    sends_ = sends;
    offer();
    for (const Receive& receive : receives) {
      Seat& from = seat(receive.from);
      wait(from, from.offered_);
      begin_reading(from);
      const auto found = std::ranges::find(from.sends_, rank_, &Send::to);
      const Bytes sent = found == from.sends_.end() ? 0 : found->bytes;
      const bool is_expected = found != from.sends_.end() && sent == receive.bytes;
      try {
        if (is_expected) copy(receive.data, found->data, sent);
      } catch (...) {
        end_readings();  // others wait for that, also where a device fails
        throw;
      }
      end_readings();
      SPILLWAY_CHECK(is_expected, "rank {} expects {} bytes of rank {}, which sends {}", rank_, receive.bytes, receive.from,
                     sent);
    }
    count_up(taken_);
    for (const Send& send : sends) wait(seat(send.to), seat(send.to).taken_);
    check();
  }

  std::span<const std::byte* const> lend(std::span<const int> peers, const std::byte* mine) override {
    lent_ = mine;
    offer();
    addresses_.clear();
    for (const int peer : peers) {
      wait(seat(peer), seat(peer).offered_);
      begin_reading(seat(peer));
      addresses_.push_back(seat(peer).lent_);
    }
    return addresses_;
  }

  void take_back(std::span<const int> peers) override {
    end_readings();
    count_up(taken_);
    for (const int peer : peers) wait(seat(peer), seat(peer).taken_);
    check();
  }

  int waits_for() const override { return waits_for_.load(std::memory_order_relaxed); }

  void abort(const std::string& reason) noexcept override {
    {
      const std::lock_guard lock(team_.reason_mutex);
      if (!team_.is_aborted.load(std::memory_order_relaxed)) team_.reason = reason;
      team_.is_aborted.store(true);
    }
    for (const auto& seat : team_.seats) seat->wake();
  }

 private:
  using Count = std::atomic<std::uint64_t>;

  static constexpr std::uint64_t kAborted = std::uint64_t{1} << 63;

  void copy(std::byte* target, const std::byte* source, Bytes bytes) const {
    if (memory_ == nullptr) {
      std::memcpy(target, source, static_cast<std::size_t>(bytes));
    } else {
      memory_->copy(target, source, bytes);
      memory_->finish();
    }
  }
  Seat& seat(int rank) const { return *team_.seats[first_ + static_cast<std::size_t>(rank)]; }
  void offer() {
    check();
    ++call_;
    count_up(offered_);
  }
  static void count_up(Count& count) {
    count.fetch_add(1, std::memory_order_acq_rel);
    count.notify_all();
  }
  void wake() {
    for (Count* count : {&offered_, &taken_}) {
      count->fetch_or(kAborted, std::memory_order_acq_rel);
      count->notify_all();
    }
  }
  // A seat's count, `offered` or `taken`.
  void wait(const Seat& of, const Count& count) {
    waits_for_.store(of.rank_, std::memory_order_relaxed);
    for (std::uint64_t at = count.load(std::memory_order_acquire); at < call_; at = count.load(std::memory_order_acquire))
      count.wait(at, std::memory_order_acquire);
    waits_for_.store(-1, std::memory_order_relaxed);
    check();
  }
  // A rank whose bytes are being read does not leave its call meanwhile, not even for an abort: its memory may go with it.
  void begin_reading(Seat& of) {
    of.readers_.fetch_add(1);
    read_.push_back(&of);
    check();
  }
  void end_readings() {
    for (Seat* const of : read_) {
      of->readers_.fetch_sub(1);
      of->readers_.notify_all();
    }
    read_.clear();
  }
  void check() {
    if (!team_.is_aborted.load()) return;
    end_readings();  // first, as others wait for it, too
    for (int left = readers_.load(); left > 0; left = readers_.load()) readers_.wait(left);
    const std::lock_guard lock(team_.reason_mutex);
    throw AbortedError(team_.reason);
  }

  const int rank_, ranks_;
  const std::size_t first_;  // seat of the channel's rank 0
  Shared& team_;
  RankMemory* memory_ = nullptr;  // copies; null: threads of the host
  std::uint64_t call_ = 0;        // number of this rank's call
  std::span<const Send> sends_;
  const std::byte* lent_ = nullptr;
  std::vector<const std::byte*> addresses_;
  std::vector<Seat*> read_;  // ranks whose bytes this one reads, from lend() to take_back()
  std::atomic<int> waits_for_{-1};
  std::atomic<int> readers_{0};  // ranks that read this one's bytes
  Count offered_{0}, taken_{0};
};

ThreadTeam::ThreadTeam(int ranks, int channels) : ranks_(ranks) {
  for (int channel = 0; channel < channels; ++channel) {
    for (int rank = 0; rank < ranks; ++rank) shared_.seats.push_back(std::make_unique<Seat>(rank, ranks, channel, shared_));
  }
}
ThreadTeam::~ThreadTeam() = default;
Transport& ThreadTeam::of(int rank, int channel, RankMemory* memory) {
  Seat& seat = *shared_.seats.at(static_cast<std::size_t>(channel * ranks_ + rank));
  seat.receive_by(memory);
  return seat;
}

}  // namespace spillway
