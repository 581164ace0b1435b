// A disk that loses power. Writes that were not synced are volatile: at the loss each is kept, dropped or torn at 512 bytes, in a
// new order, all drawn from a seed. The disk stands between a store's channels and its files. It can also fail a request, answer
// it short or never answer it. Not here: results that are late or out of order (faulty_queue.h).
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "nvme/store.h"

namespace spillway {

class SimulatedDisk {
 public:
  explicit SimulatedDisk(std::vector<std::string> files) : paths_(std::move(files)) {}
  ~SimulatedDisk() {
    for (const int fd : files_) close(fd);
  }
  SimulatedDisk(const SimulatedDisk&) = delete;
  SimulatedDisk& operator=(const SimulatedDisk&) = delete;

  // Puts the disk under a store. I/O is buffered, because the test reads the same files beside it.
  void attach(StoreOptions& options) {
    options.direct = DirectIo::off;
    options.queue = IoQueueKind::threads;
    options.depth = 1;  // depth of a queue that has nothing to do
    options.decorate = [this](const std::unique_ptr<IoQueue>&) { return std::make_unique<Queue>(*this); };
  }

  // Requests are counted from 0, syncs among them. From number `at` on the power is off: nothing is written, and every answer is
  // EIO.
  void cut_power_at(long at) { cut_at_ = at; }

  // A request to the disk. The log lists requests by number.
  struct Event {
    IoDirection asked = IoDirection::read;
    int file = 0;
    Bytes offset = 0;
    bool operator==(const Event&) const = default;
  };
  const std::vector<Event>& log() const { return log_; }
  long events() const { return std::ssize(log_); }

  // The `place`-th (from 0) request like this one fails and changes nothing, is half done, or never comes back. Requests are
  // named like this because lanes run beside each other, so that a number means another request from run to run.
  struct Target {
    Event event;
    int place = 0;
  };
  void fail(const Target& target, int error) { target_ = target, fault_ = Fault::error, error_ = error; }
  void shorten(const Target& target) { target_ = target, fault_ = Fault::short_result; }
  void hang(const Target& target) { target_ = target, fault_ = Fault::hang; }
  // The request with this number fails, whatever it is.
  void fail_at(long at, int error) { fault_at_ = at, fault_ = Fault::error, error_ = error; }
  // The disk says that it synced, but did not.
  void ignore_syncs() { ignores_syncs_ = true; }

  // Call it when the store is gone: leaves in the files what a disk could hold after the cut.
  void lose_power(std::uint64_t seed) {
    open_files();
    std::mt19937_64 random(seed);
    for (auto write = writes_.rbegin(); write != writes_.rend(); ++write) put(write->file, write->offset, write->before.span());
    std::shuffle(writes_.begin(), writes_.end(), random);
    // The share that survives differs from loss to loss: now and then nothing survives, or everything except the order.
    constexpr int kept_of_four[] = {0, 1, 2, 3, 4};
    const int kept = kept_of_four[random() % std::size(kept_of_four)];
    const auto survives = [&] { return static_cast<int>(random() % 4) < kept; };
    for (const Write& write : writes_) {
      const bool torn = random() % 3 == 0;
      const std::span<const std::byte> after = write.after.span();
      if (!torn && survives()) put(write.file, write.offset, after);
      constexpr std::size_t sector = 512;
      for (std::size_t at = 0; torn && at < after.size(); at += sector) {
        if (survives())
          put(write.file, write.offset + static_cast<Bytes>(at), after.subspan(at, std::min(sector, after.size() - at)));
      }
    }
    writes_.clear();
  }

 private:
  class Content {
   public:
    explicit Content(std::size_t bytes) : bytes_(bytes), memory_(std::make_unique_for_overwrite<std::byte[]>(bytes)) {}
    std::span<std::byte> span() const { return {memory_.get(), bytes_}; }

   private:
    std::size_t bytes_;
    std::unique_ptr<std::byte[]> memory_;
  };
  struct Write {
    int file;
    Bytes offset;
    Content before, after;
    std::uint64_t number;
    bool complete = false;
  };

  enum class Fault : std::uint8_t { none, error, short_result, hang };

  // The fate of a request, and the errno if it fails.
  struct Admission {
    Fault fault = Fault::none;
    int error = 0;
  };
  Admission admit(const Event& event) {
    const long number = events();
    log_.push_back(event);
    if (cut_at_ >= 0 && number >= cut_at_) return {Fault::error, EIO};
    const bool meets = target_ ? event == target_->event && target_->place-- == 0 : number == fault_at_;
    return meets ? Admission{fault_, error_} : Admission{};
  }
  bool off() const { return cut_at_ >= 0 && events() > cut_at_; }

  void sync(int file) {
    if (!ignores_syncs_) std::erase_if(writes_, [&](const Write& write) { return write.file == file && write.complete; });
  }

  // Moves data at once and reports it later: requests that were submitted and not collected are in flight.
  class Queue final : public IoQueue {
   public:
    explicit Queue(SimulatedDisk& disk) : disk_(disk), numbers_(kDepth) { ready_.reserve(kDepth); }
    void submit(std::span<const IoRequest> requests) override {
      const std::lock_guard lock(disk_.mutex_);
      for (IoRequest request : requests) {
        numbers_[request.tag] = 0;
        const Admission admission = disk_.admit({request.direction, request.file, request.offset});
        if (admission.fault == Fault::hang) continue;
        if (admission.fault == Fault::error) {
          ready_.push_back({request.tag, -admission.error});
          continue;
        }
        if (admission.fault == Fault::short_result) request.bytes /= 2;
        if (request.direction == IoDirection::sync) {
          disk_.sync(request.file);
        } else if (request.direction == IoDirection::read) {
          disk_.get(request.file, request.offset, {request.memory, static_cast<std::size_t>(request.bytes)});
        } else {
          numbers_[request.tag] = disk_.remember(request);
          disk_.put(request.file, request.offset, {request.memory, static_cast<std::size_t>(request.bytes)});
        }
        ready_.push_back({request.tag, request.bytes});
      }
    }
    int wait(std::span<IoCompletion> completions, std::chrono::microseconds timeout) override {
      const std::lock_guard lock(disk_.mutex_);
      const std::size_t count = std::min(completions.size(), ready_.size());
      if (count == 0) std::this_thread::sleep_for(timeout);
      for (IoCompletion& completion : completions.first(count)) {
        completion = ready_.back();
        ready_.pop_back();
        if (disk_.off()) {
          completion.result = -EIO;
        } else if (const std::uint64_t number = numbers_[completion.tag]; number > 0) {
          for (Write& write : disk_.writes_) write.complete |= write.number == number;
        }
      }
      return static_cast<int>(count);
    }
    int depth() const noexcept override { return kDepth; }
    IoQueueKind kind() const noexcept override { return IoQueueKind::threads; }

   private:
    static constexpr int kDepth = 4;
    SimulatedDisk& disk_;
    std::vector<std::uint64_t> numbers_;  // by tag, of the write under way
    std::vector<IoCompletion> ready_;
  };

  // Keeps a write that may be lost. Returns its number, or 0 if no loss is planned.
  std::uint64_t remember(const IoRequest& request) {
    if (cut_at_ < 0) return 0;
    const auto bytes = static_cast<std::size_t>(request.bytes);
    Write write{.file = request.file,
                .offset = request.offset,
                .before = Content(bytes),
                .after = Content(bytes),
                .number = ++last_write_};
    get(request.file, request.offset, write.before.span());
    std::copy_n(request.memory, bytes, write.after.span().data());
    writes_.push_back(std::move(write));
    return last_write_;
  }
  void get(int file, Bytes offset, std::span<std::byte> bytes) {
    open_files();
    if (pread(files_[static_cast<std::size_t>(file)], bytes.data(), bytes.size(), offset) != std::ssize(bytes)) {
      throw std::runtime_error("a simulated disk cannot read its file");
    }
  }
  void put(int file, Bytes offset, std::span<const std::byte> bytes) {
    open_files();
    if (pwrite(files_[static_cast<std::size_t>(file)], bytes.data(), bytes.size(), offset) != std::ssize(bytes)) {
      throw std::runtime_error("a simulated disk cannot write its file");
    }
  }
  void open_files() {
    for (std::size_t i = files_.size(); i < paths_.size(); ++i) files_.push_back(open(paths_[i].c_str(), O_RDWR | O_CLOEXEC));
  }

  std::vector<std::string> paths_;
  std::vector<int> files_;
  std::mutex mutex_;           // each lane has a channel of its own
  std::vector<Write> writes_;  // not synced yet, in the order in which they were submitted
  std::uint64_t last_write_ = 0;
  std::vector<Event> log_;
  long cut_at_ = -1, fault_at_ = -1;
  std::optional<Target> target_;
  Fault fault_ = Fault::none;
  int error_ = 0;
  bool ignores_syncs_ = false;
};

}  // namespace spillway
