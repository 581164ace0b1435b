#include "trainer/machine/drive_watch.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace spillway {
namespace {

// With this many bytes under way, a few large requests, a drive never waits for the next request.
constexpr double kBusyBytes = 4 * static_cast<double>(kRequestBytes);
// Moves that complete within this time of each other went through the drive together.
constexpr double kTogether_s = 0.5e-3;
// Older observations fade with this time constant, in seconds of a busy drive.
constexpr double kMemory_s = 120;
// Below these limits nothing is kept: the figure could be a cache's.
constexpr double kLeastSeconds = 5, kLeastBytes = 5e9, kLeastFlowSeconds = 1, kLeastFlowBytes = 1e9;
// Share of the time for which a drive must be busy: a drive that rests in between shows its rested rate.
constexpr double kLeastBusyShare = 0.5;
constexpr double kApart_s = 5;  // seconds of a busy drive between two figures that are kept

// The state of a lane over time; time only moves forward.
class Course {
 public:
  explicit Course(const std::vector<DriveMove>& moves) {
    double free_s = -std::numeric_limits<double>::infinity();
    for (const DriveMove& move : moves) {
      const double bytes = static_cast<double>(move.bytes);
      const double begin_s = std::max(move.begin_s, free_s), end_s = std::max(move.end_s, begin_s);
      free_s = end_s;
      if (!parts_.empty() && begin_s == parts_.back().end_s && end_s - begin_s < kTogether_s) {
        parts_.back().end_s = end_s;
        parts_.back().bytes += bytes;
      } else {
        parts_.push_back({move.begin_s, begin_s, end_s, bytes});
      }
    }
  }

  void edges(std::vector<double>& times) const {
    for (const Part& part : parts_) times.insert(times.end(), {part.asked_s, part.begin_s, part.end_s});
  }
  void go_to(double now_s) {
    for (; begun_ < parts_.size() && parts_[begun_].asked_s <= now_s; ++begun_) under_way_ += parts_[begun_].bytes;
    for (; ended_ < begun_ && parts_[ended_].end_s <= now_s; ++ended_) under_way_ -= parts_[ended_].bytes;
  }
  bool idle() const { return ended_ == begun_; }
  bool busy() const { return !idle() && under_way_ >= kBusyBytes; }
  double rate() const { return parts_[ended_].bytes / (parts_[ended_].end_s - parts_[ended_].begin_s); }

 private:
  struct Part {
    double asked_s, begin_s, end_s;  // the move waits from asked_s and has the lane from begin_s on
    double bytes;
  };
  std::vector<Part> parts_;
  std::size_t begun_ = 0, ended_ = 0;
  double under_way_ = 0;
};

void add(DriveFlow& flow, double seconds, double share, double rate) {
  flow.seconds += seconds * share;
  flow.bytes += seconds * rate;
}

void join(DriveFlow& flow, const DriveFlow& more) { flow.seconds += more.seconds, flow.bytes += more.bytes; }

}  // namespace

void DriveWork::add(const DriveWork& more) {
  join(read, more.read), join(write, more.write), join(mixed_read, more.mixed_read), join(mixed_write, more.mixed_write);
  busy_s += more.busy_s, elapsed_s += more.elapsed_s;
}

void DriveWork::fade(double share) {
  for (DriveFlow* flow : {&read, &write, &mixed_read, &mixed_write}) flow->seconds *= share, flow->bytes *= share;
  busy_s *= share, elapsed_s *= share;
}

DriveWork drive_work(const LaneSpans& lanes, double begin_s, double end_s, const BesideCompute& beside) {
  Course reads(lanes.reads), writes(lanes.writes);
  std::vector<double> times = {begin_s, end_s};
  reads.edges(times), writes.edges(times);
  for (const Span& span : lanes.compute) times.insert(times.end(), {span.begin_s, span.end_s});
  std::erase_if(times, [&](double time) { return time < begin_s || time > end_s; });
  std::ranges::sort(times);
  DriveWork work;
  work.elapsed_s = end_s - begin_s;
  std::size_t computed = 0;
  for (std::size_t i = 0; i + 1 < times.size(); ++i) {
    const double now_s = times[i], seconds = times[i + 1] - now_s;
    if (seconds <= 0) continue;
    reads.go_to(now_s), writes.go_to(now_s);
    while (computed < lanes.compute.size() && lanes.compute[computed].end_s <= now_s) ++computed;
    const bool computes = computed < lanes.compute.size() && lanes.compute[computed].begin_s <= now_s;
    const double read_share = computes ? beside.read : 1, write_share = computes ? beside.write : 1;
    if (reads.busy() && writes.busy()) {
      add(work.mixed_read, seconds, read_share, reads.rate());
      add(work.mixed_write, seconds, write_share, writes.rate());
    } else if (reads.busy() && writes.idle()) {
      add(work.read, seconds, read_share, reads.rate());
    } else if (writes.busy() && reads.idle()) {
      add(work.write, seconds, write_share, writes.rate());
    } else {
      continue;
    }
    work.busy_s += seconds;
  }
  return work;
}

DriveRates rates_of(const DriveWork& work) {
  const auto rate = [](const DriveFlow& flow) {
    return flow.seconds >= kLeastFlowSeconds && flow.bytes >= kLeastFlowBytes ? flow.rate() : 0;
  };
  DriveRates rates = {.read = rate(work.read),
                      .write = rate(work.write),
                      .mixed_read = rate(work.mixed_read),
                      .mixed_write = rate(work.mixed_write)};
  // A drive is no faster while it also moves data the other way. If it seems to be, the rate that was seen for longer holds for
  // both.
  const auto settle = [](double& alone, const DriveFlow& alone_flow, double& mixed, const DriveFlow& mixed_flow) {
    if (alone > 0 && mixed > alone) alone = mixed = mixed_flow.seconds > alone_flow.seconds ? mixed : alone;
  };
  settle(rates.read, work.read, rates.mixed_read, work.mixed_read);
  settle(rates.write, work.write, rates.mixed_write, work.mixed_write);
  return rates;
}

DriveWatch::DriveWatch(const Plan& plan, const MachineProfile& machine)
    : plan_(plan), beside_{machine.read_beside_compute, machine.write_beside_compute} {
  for (const Op& op : plan.step.ops) {
    const Bytes bytes = times_in(op.when, turns_of(plan.choices)) * op.bytes;
    if (op.lane == Lane::nvme_read) read_bytes_ += bytes;
    if (op.lane == Lane::nvme_write) written_bytes_ += bytes;
  }
}

std::optional<SeenDrive> DriveWatch::observe(const Timeline& timeline, Bytes read, Bytes written) {
  const bool first = lanes_.reads.empty() && lanes_.writes.empty() && lanes_.compute.empty();
  const int turns = turns_of(plan_.choices);
  // With more turns, the times of some turns are not recorded.
  if (read_bytes_ + written_bytes_ == 0 || turns > kShownTurns) return std::nullopt;
  // The step before may reach into this one, but into no later step: all moves before this step's origin are known now.
  if (!first) take_until(timeline.origin_s);
  if (read != read_bytes_ || written != written_bytes_) {
    lanes_ = {};
    return std::nullopt;
  }
  if (first) taken_s_ = timeline.origin_s;
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    const auto& [op, turn] = op_of_span(plan_, i);
    if ((op.when & turn_set(turn, turns, true)) == 0) continue;
    const Span span = {timeline.origin_s + timeline.spans[i].begin_s, timeline.origin_s + timeline.spans[i].end_s};
    const DriveMove move = {span.begin_s, span.end_s, op.bytes};
    if (op.lane == Lane::nvme_read) lanes_.reads.push_back(move);
    if (op.lane == Lane::nvme_write) lanes_.writes.push_back(move);
    if (op.lane == Lane::compute) lanes_.compute.push_back(span);
  }
  if (unsaid_s_ < kApart_s) return std::nullopt;
  std::optional<SeenDrive> worth = seen();
  if (worth) unsaid_s_ = 0;
  return worth;
}

std::optional<SeenDrive> DriveWatch::finish() {
  double end_s = taken_s_;
  for (const auto* moves : {&lanes_.reads, &lanes_.writes}) {
    for (const DriveMove& move : *moves) end_s = std::max(end_s, move.end_s);
  }
  if (end_s > taken_s_) take_until(end_s);
  lanes_ = {};
  return seen();
}

void DriveWatch::take_until(double now_s) {
  const DriveWork more = drive_work(lanes_, taken_s_, now_s, beside_);
  work_.fade(std::exp(-more.busy_s / kMemory_s));
  work_.add(more);
  unsaid_s_ += more.busy_s;
  taken_s_ = now_s;
  const auto is_over = [&](const auto& span) { return span.end_s <= now_s; };
  std::erase_if(lanes_.reads, is_over), std::erase_if(lanes_.writes, is_over), std::erase_if(lanes_.compute, is_over);
}

std::optional<SeenDrive> DriveWatch::seen() const {
  if (work_.busy_s < kLeastSeconds || work_.bytes() < kLeastBytes || work_.busy_s < kLeastBusyShare * work_.elapsed_s)
    return std::nullopt;
  const DriveRates rates = rates_of(work_);
  const bool any = std::ranges::any_of(kDriveRates, [&](const DriveRateName& figure) { return rates.*figure.rate > 0; });
  return any ? std::optional(SeenDrive{rates, utc_minute_now(), work_.busy_s, work_.bytes()}) : std::nullopt;
}

}  // namespace spillway
