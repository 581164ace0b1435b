#include "nvme/store_channel.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>

#include "memory/runtime/poison.h"
#include "nvme/store_channel_impl.h"

namespace spillway {
namespace {

constexpr int kMaxAttempts = 100;  // attempts of one request without a byte of progress

bool aligned(Bytes bytes) { return bytes % kExtentAlignment == 0; }

}  // namespace

StoreChannel::Impl::Impl(const ChannelContext& context, const StoreChannelOptions& options, std::unique_ptr<IoQueue> queue)
    : queue_(std::move(queue)),
      context_(context),
      operations_(static_cast<std::size_t>(options.max_operations)),
      issue_order_(static_cast<std::size_t>(options.max_operations)),
      segments_(static_cast<std::size_t>(options.max_segments)),
      requests_(static_cast<std::size_t>(queue_->depth())),
      completions_(static_cast<std::size_t>(queue_->depth())) {
  free_requests_.reserve(requests_.size());
  batch_.reserve(requests_.size());
  for (int slot = queue_->depth() - 1; slot >= 0; --slot) free_requests_.push_back(slot);
}

IoTicket StoreChannel::Impl::start(IoDirection direction, std::span<const IoSegment> segments) {
  throw_if_failed();
  SPILLWAY_CHECK(segments.size() <= segments_.size(), "an operation of {} segments in a channel for {}", segments.size(),
                 segments_.size());
  for (const IoSegment& segment : segments) {
    SPILLWAY_CHECK(aligned(segment.offset) && aligned(segment.bytes) && aligned(reinterpret_cast<std::intptr_t>(segment.memory)),
                   "segment at {} of {} bytes, memory {}: not multiples of {}", segment.offset, segment.bytes,
                   static_cast<const void*>(segment.memory), kExtentAlignment);
    SPILLWAY_CHECK(segment.offset >= 0 && segment.bytes > 0 && segment.bytes <= context_.map->bytes() - segment.offset,
                   "segment at {} of {} bytes in a store of {}", segment.offset, segment.bytes, context_.map->bytes());
  }
  Operation& operation = begin_operation(direction, segments.size());
  for (const IoSegment& segment : segments) operation.left += segment.bytes;
  if (!segments.empty()) {
    issue_order_[(issue_begin_ + issue_size_++) % issue_order_.size()] = static_cast<int>(&operation - operations_.data());
  }
  while (true) {
    segments = segments.subspan(enqueue(segments));
    issue();
    if (segments.empty()) break;
    // The ring is full. If depth were left, issue() would have emptied it; so something is in flight.
    advance_until_something_completes();
  }
  return static_cast<IoTicket>(last_ticket_);
}

bool StoreChannel::Impl::poll(IoTicket ticket, std::chrono::microseconds limit) {
  throw_if_failed();
  const Operation& operation = find(ticket);
  collect(operation.complete() ? std::chrono::microseconds(0) : limit);
  issue();
  return operation.complete();
}

void StoreChannel::Impl::wait(IoTicket ticket) {
  throw_if_failed();
  Operation& operation = find(ticket);
  while (!operation.complete()) advance_until_something_completes();
  SPILLWAY_CHECK(operation.left == 0, "a {} of the store is complete with {} bytes not moved", name_of(operation.direction),
                 operation.left);
  operation.ticket = 0;
}

void StoreChannel::Impl::sync() {
  throw_if_failed();
  const Operation& operation = begin_operation(IoDirection::sync, 0);
  for (std::size_t file = 0; file < context_.paths.size(); ++file) {
    while (free_requests_.empty()) advance_until_something_completes();
    add_request(static_cast<int>(&operation - operations_.data()),
                {.direction = IoDirection::sync, .file = static_cast<int>(file)}, Clock::now());
    submit_batch();
  }
  wait(static_cast<IoTicket>(operation.ticket));
}

StoreChannel::Impl::Operation& StoreChannel::Impl::begin_operation(IoDirection direction, std::size_t segments) {
  const auto free = std::find_if(operations_.begin(), operations_.end(), [](const Operation& o) { return o.ticket == 0; });
  SPILLWAY_CHECK(free != operations_.end(), "{} operations are started and not waited for", operations_.size());
  *free = {.ticket = ++last_ticket_, .direction = direction, .unissued_segments = static_cast<int>(segments), .in_flight = 0};
  return *free;
}

void StoreChannel::Impl::add_request(int operation, const IoRequest& request, Clock::time_point now) {
  const int slot = free_requests_.back();
  free_requests_.pop_back();
  Request& added = requests_[static_cast<std::size_t>(slot)];
  added = {.state = RequestState::in_flight, .operation = operation, .attempts = 0, .started = now, .io = request};
  added.io.tag = static_cast<std::uint64_t>(slot);
  batch_.push_back(added.io);
  ++operations_[static_cast<std::size_t>(operation)].in_flight;
}

StoreChannel::Impl::Operation& StoreChannel::Impl::find(IoTicket ticket) {
  const auto number = static_cast<std::uint64_t>(ticket);
  const auto found = std::find_if(operations_.begin(), operations_.end(), [&](const Operation& o) { return o.ticket == number; });
  SPILLWAY_CHECK(number != 0 && found != operations_.end(), "ticket {} is not of a started operation", number);
  return *found;
}

std::size_t StoreChannel::Impl::enqueue(std::span<const IoSegment> segments) {
  const std::size_t count = std::min(segments.size(), segments_.size() - segment_size_);
  for (const IoSegment& segment : segments.first(count)) {
    segments_[(segment_begin_ + segment_size_++) % segments_.size()] = segment;
  }
  return count;
}

void StoreChannel::Impl::issue() {
  if (segment_size_ == 0 || free_requests_.empty()) return;
  const auto now = Clock::now();
  while (segment_size_ > 0 && !free_requests_.empty()) {
    const int index = issue_order_[issue_begin_];
    Operation& operation = operations_[static_cast<std::size_t>(index)];
    IoSegment& segment = segments_[segment_begin_];
    const StripeMap::Place place = context_.map->place(segment.offset);
    const Bytes bytes = std::min({segment.bytes, place.run_bytes, context_.block_bytes});
    check_touch(segment.memory, bytes);
    add_request(
        index,
        {.direction = operation.direction, .file = place.file, .offset = place.offset, .memory = segment.memory, .bytes = bytes},
        now);
    segment.offset += bytes;
    segment.memory += bytes;
    segment.bytes -= bytes;
    if (segment.bytes > 0) continue;
    segment_begin_ = (segment_begin_ + 1) % segments_.size();
    --segment_size_;
    if (--operation.unissued_segments == 0) {
      issue_begin_ = (issue_begin_ + 1) % issue_order_.size();
      --issue_size_;
    }
  }
  submit_batch();
}

void StoreChannel::Impl::submit_batch() {
  if (!batch_.empty()) queue_->submit(batch_);
  batch_.clear();
}

void StoreChannel::Impl::advance_until_something_completes() {
  // Waits are short enough to notice a hung request well within twice the time-out.
  constexpr std::chrono::milliseconds shortest(1), longest(1000);
  collect(std::clamp(context_.timeout / 4, shortest, longest));
  issue();
}

void StoreChannel::Impl::collect(std::chrono::microseconds limit) {
  const int count = queue_->wait(completions_, limit);
  // All completions are booked before any is judged, so that an error does not lose the others.
  int broken = -1;
  Bytes broken_result = 0;
  for (const IoCompletion& completion : std::span(completions_).first(static_cast<std::size_t>(count))) {
    SPILLWAY_CHECK(completion.tag < requests_.size() && requests_[completion.tag].state == RequestState::in_flight,
                   "the drive answers request {}, which is not in flight", completion.tag);
    const auto slot = static_cast<int>(completion.tag);
    Request& request = requests_[completion.tag];
    SPILLWAY_CHECK(completion.result <= request.io.bytes, "the drive moved {} bytes of a {} of {}", completion.result,
                   name_of(request.io.direction), request.io.bytes);
    if (completion.result > 0) {
      auto& counter = request.io.direction == IoDirection::read ? context_.traffic->read_bytes : context_.traffic->written_bytes;
      counter.fetch_add(completion.result, std::memory_order_relaxed);
    }
    if (completion.result == request.io.bytes) {
      check_touch(request.io.memory, request.io.bytes);  // again: its memory may not go before its wait() is over
      request.state = RequestState::free;
      free_requests_.push_back(slot);
      Operation& operation = operations_[static_cast<std::size_t>(request.operation)];
      --operation.in_flight;
      operation.left -= request.io.bytes;
    } else if (completion.result == -EINTR || completion.result == -EAGAIN || completion.result >= 0) {
      resume(slot, completion.result);
      if (request.attempts > kMaxAttempts) broken = slot, broken_result = completion.result;
    } else {
      request.state = RequestState::free;
      broken = slot, broken_result = completion.result;
    }
  }
  if (broken >= 0) {
    const Request& request = requests_[static_cast<std::size_t>(broken)];
    const IoDirection direction = request.io.direction;
    fail(request,
         broken_result < 0
             ? fmt::format("{} (errno {})", std::generic_category().message(static_cast<int>(-broken_result)), -broken_result)
             : fmt::format("{} bytes moved, {} times in a row{}", broken_result, kMaxAttempts,
                           direction == IoDirection::read ? ": the file ends there" : ""),
         broken_result == -ENOSPC || broken_result == -EDQUOT ? "Free space in that directory, or give another one to --nvme."
         : direction == IoDirection::sync ? "What was written since the last sync may be lost: see the kernel's log."
                                          : "");
  }
  submit_batch();
  if (count == 0 || Clock::now() - last_check_ > std::chrono::seconds(1)) check_for_hung_requests();
}

void StoreChannel::Impl::resume(int slot, Bytes result) {
  Request& request = requests_[static_cast<std::size_t>(slot)];
  // Direct I/O needs aligned offsets: bytes that a short result moved beyond the last whole page are moved again.
  const Bytes moved = std::max<Bytes>(result, 0) / kExtentAlignment * kExtentAlignment;
  request.io.offset += moved;
  request.io.memory += moved;
  request.io.bytes -= moved;
  operations_[static_cast<std::size_t>(request.operation)].left -= moved;
  request.attempts = moved > 0 ? 0 : request.attempts + 1;
  if (request.attempts > kMaxAttempts) {
    request.state = RequestState::free;
    return;
  }
  if (result == -EAGAIN) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  batch_.push_back(request.io);
}

void StoreChannel::Impl::check_for_hung_requests() {
  last_check_ = Clock::now();
  for (const Request& request : requests_) {
    if (request.state == RequestState::in_flight && last_check_ - request.started > context_.timeout) {
      fail(request, fmt::format("no answer for {} ms", context_.timeout.count()),
           "The device may be failing or overloaded: see the kernel's log.");
    }
  }
}

void StoreChannel::Impl::fail(const Request& request, const std::string& reason, const std::string& help) {
  const IoRequest& io = request.io;
  const std::string& path = context_.paths[static_cast<std::size_t>(io.file)];
  error_.emplace(io.direction == IoDirection::sync ? fmt::format("sync of {} failed: {}", path, reason)
                                                   : fmt::format("{} of {} bytes at offset {} of {} failed: {}",
                                                                 name_of(io.direction), io.bytes, io.offset, path, reason),
                 help);
  // Requests that were prepared to be resumed are not in flight; all others must end before their memory may go.
  for (const IoRequest& prepared : batch_) requests_[prepared.tag].state = RequestState::free;
  batch_.clear();
  const auto deadline = Clock::now() + std::min<Clock::duration>(context_.timeout, std::chrono::seconds(5));
  auto in_flight = [&] {
    return std::any_of(requests_.begin(), requests_.end(), [](const Request& r) { return r.state == RequestState::in_flight; });
  };
  while (in_flight() && Clock::now() < deadline) {
    const int count = queue_->wait(completions_, std::chrono::milliseconds(10));
    for (int i = 0; i < count; ++i) requests_[completions_[static_cast<std::size_t>(i)].tag].state = RequestState::free;
  }
  throw *error_;
}

void StoreChannel::Impl::throw_if_failed() const {
  if (error_) throw *error_;
}

StoreChannel::StoreChannel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StoreChannel::~StoreChannel() = default;
StoreChannel::StoreChannel(StoreChannel&&) noexcept = default;
StoreChannel& StoreChannel::operator=(StoreChannel&&) noexcept = default;

IoTicket StoreChannel::start(IoDirection direction, std::span<const IoSegment> segments) {
  return impl_->start(direction, segments);
}
bool StoreChannel::poll(IoTicket ticket, std::chrono::microseconds limit) { return impl_->poll(ticket, limit); }
void StoreChannel::wait(IoTicket ticket) { impl_->wait(ticket); }
void StoreChannel::read(std::span<const IoSegment> segments) { wait(start(IoDirection::read, segments)); }
void StoreChannel::write(std::span<const IoSegment> segments) { wait(start(IoDirection::write, segments)); }
void StoreChannel::sync() { impl_->sync(); }
IoQueueKind StoreChannel::kind() const noexcept { return impl_->kind(); }

}  // namespace spillway
