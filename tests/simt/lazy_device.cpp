#include "tests/simt/lazy_device.h"

#include <fmt/core.h>

#include <array>
#include <utility>

#include "memory/base/random.h"
#include "tests/simt/machine.h"

namespace spillway::simt {
namespace {

thread_local bool is_function_of_a_stream = false;

}  // namespace

LazyDevice::~LazyDevice() {
  for (Stream& stream : streams_) {
    if (stream.host.joinable()) stream.host.join();
  }
}

LazyDevice::Lock LazyDevice::locked() {
  if (is_function_of_a_stream) throw Error("a function that a stream runs calls the runtime");
  return Lock(mutex_);
}

void LazyDevice::tell() {
  if (!failure_) return;
  is_told_ = true;
  std::rethrow_exception(failure_);
}

void LazyDevice::close(Stream& stream) noexcept {
  const bool was_told = is_told_;
  try {
    finish(stream);
  } catch (const std::exception& error) {
    if (!was_told) fmt::print(stderr, "warning: a stream of the emulated device ends after an error: {}\n", error.what());
  }
}

LazyDevice::Stream* LazyDevice::open() {
  const Lock lock = locked();
  constexpr std::array<std::uint64_t, 4> haste = {0, 0, 4, 8};
  Stream& stream = streams_.emplace_back();
  stream.haste = seed_ == 0 ? 0 : haste[random() % haste.size()];
  return &stream;
}

void LazyDevice::enqueue(Stream& stream, std::function<void()> run, Work::Kind kind) {
  const Lock lock = locked();
  push(stream, {.kind = kind, .run = std::move(run)});
}

void LazyDevice::record(Stream& stream, const std::shared_ptr<Moments>& moments) {
  const Lock lock = locked();
  if (moments->stream != nullptr && moments->stream != &stream) throw Error("an event was recorded on a second stream");
  moments->stream = &stream;
  push(stream, {.kind = Work::Kind::record, .moments = moments, .which = ++moments->recorded});
}

void LazyDevice::wait(Stream& stream, const std::shared_ptr<Moments>& moments) {
  const Lock lock = locked();
  push(stream, {.kind = Work::Kind::wait, .moments = moments, .which = moments->recorded});
}

void LazyDevice::finish(Stream& stream) {
  Lock lock = locked();
  finish(lock, stream, [&stream, until = stream.enqueued] { return stream.done >= until; });
}

void LazyDevice::finish(const Moments& moments) {
  Lock lock = locked();
  if (moments.stream != nullptr)
    finish(lock, *moments.stream, [&moments, until = moments.recorded] { return moments.passed >= until; });
}

bool LazyDevice::is_passed(const Moments& moments) {
  const Lock lock = locked();
  const auto is_passed = [&] { return moments.passed >= moments.recorded; };
  if (!is_passed()) run_ahead();
  if (!is_passed()) advance(*moments.stream);
  tell();
  return is_passed();
}

void LazyDevice::at_rest(const std::function<void()>& f) {
  const Lock lock = locked();
  f();
}

void LazyDevice::push(Stream& stream, Work work) {
  stream.ahead.push_back(std::move(work));
  ++stream.enqueued;
  run_ahead();
}

void LazyDevice::finish(Lock& lock, Stream& stream, const std::function<bool()>& is_done) {
  while (!is_done()) {
    run_ahead();
    if (!is_done() && !advance(stream)) changed_.wait(lock);
  }
  tell();
}

// A wait is for something that was recorded before it, so that this comes to an end.
bool LazyDevice::advance(Stream& stream) {
  Stream* of = &stream;
  while (!of->is_at_host && of->ahead.front().kind == Work::Kind::wait && !can_run(*of)) of = of->ahead.front().moments->stream;
  if (of->is_at_host) return false;
  perform(*of);
  return true;
}

// Host functions are left out, because they may wait for this very thread.
void LazyDevice::run_ahead() {
  for (bool went_on = true; went_on;) {
    went_on = false;
    for (Stream& stream : streams_) {
      if (!can_run(stream) || stream.ahead.front().kind == Work::Kind::host || random() % 8 >= stream.haste) continue;
      perform(stream);
      went_on = true;
    }
  }
}

bool LazyDevice::can_run(const Stream& stream) {
  if (stream.is_at_host || stream.ahead.empty()) return false;
  const Work& first = stream.ahead.front();
  return first.kind != Work::Kind::wait || first.moments->passed >= first.which;
}

void LazyDevice::perform(Stream& stream) {
  const Work work = std::move(stream.ahead.front());
  if (work.kind == Work::Kind::host && !failure_) {
    stream.is_at_host = true;
    stream.host = std::jthread([this, &stream, run = work.run] {
      is_function_of_a_stream = true;
      std::exception_ptr failure;
      try {
        run();
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      if (failure && !failure_) failure_ = failure;
      stream.is_at_host = false, stream.ahead.pop_front(), ++stream.done;
      changed_.notify_all();
    });
    return;
  }
  stream.ahead.pop_front(), ++stream.done;
  if (work.kind == Work::Kind::record) work.moments->passed = work.which;
  if (work.kind == Work::Kind::device && !failure_) {
    try {
      work.run();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  changed_.notify_all();
}

std::uint64_t LazyDevice::random() { return mix64(random_state_++ * 0x9e3779b97f4a7c15u + seed_); }

}  // namespace spillway::simt
