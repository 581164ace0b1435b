#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "memory/arena.h"
#include "memory/random.h"
#include "nvme/store.h"
#include "trainer/probe_measure.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

// Moves segments round and round through [base, base + bytes), two in flight, until the time is over; bytes per second.
struct Pass {
  StoreChannel& channel;
  IoDirection direction;
  Bytes base, bytes, segment;
  std::byte* memory;  // a segment of it
  double rate = 0;
  Bytes moved = 0;

  enum class Rounds : std::uint8_t { once, many };
  void run(double seconds, Rounds rounds) {
    const auto begin = Clock::now();
    const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    std::optional<IoTicket> before;
    moved = 0;
    for (Bytes at = 0; moved == 0 || passed() < seconds; at += segment) {
      if (at + segment > bytes) {
        if (rounds == Rounds::once) break;
        at = 0;
      }
      const IoSegment move{base + at, memory, segment};
      const IoTicket ticket = channel.start(direction, {&move, 1});
      if (before) channel.wait(*before);
      before = ticket;
      moved += segment;
    }
    channel.wait(*before);
    rate = static_cast<double>(moved) / passed();
  }
};

}  // namespace

std::vector<Measurement> measure_disk(const std::vector<NvmeDirectory>& directories, const Sampling& sampling) {
  StoreOptions options;
  for (const NvmeDirectory& directory : directories) options.directories.push_back({directory.path, directory.size.value_or(0)});
  // Requests of the size and depth of training; the files are as large as the directories have room for, up to what is asked.
  constexpr Bytes least = 64 * kKiB;
  const Bytes half = std::clamp<Bytes>(store_capacity(options.directories) / 2 / least * least, least, sampling.disk_bytes);
  const Bytes segment = std::min<Bytes>(half, 16 * kMiB);
  options.bytes = 2 * half;
  Store store(options);
  const Arena arena(2 * segment, "probe of NVMe");
  // Disks may do without writing what is all alike.
  for (Bytes at = 0; at < 2 * segment; at += 8) {
    const std::uint64_t word = mix64(static_cast<std::uint64_t>(at));
    std::memcpy(arena.at(at), &word, sizeof word);
  }
  StoreChannel reader = store.open_channel({}), writer = store.open_channel({});
  // What was never written is read without a disk, and what is written for the first time costs the file system more.
  Pass first{writer, IoDirection::write, 0, half, segment, arena.at(0)};
  first.run(2 * sampling.pass_s, Pass::Rounds::once);
  const Bytes written = first.moved;
  Pass second{writer, IoDirection::write, half, half, segment, arena.at(segment)};
  second.run(sampling.pass_s, Pass::Rounds::once);
  const Bytes beside = second.moved;

  std::vector<double> reads, writes, mixed_reads, mixed_writes;
  for (int pass = 0; pass < sampling.passes; ++pass) {
    Pass read{reader, IoDirection::read, 0, written, segment, arena.at(0)}, write{writer, IoDirection::write, half, beside, segment, arena.at(segment)};
    read.run(sampling.pass_s, Pass::Rounds::many);
    reads.push_back(read.rate);
    write.run(sampling.pass_s, Pass::Rounds::many);
    writes.push_back(write.rate);
    // Both for the same time: each at the rate that the other leaves it.
    std::thread other([&] { read.run(sampling.pass_s, Pass::Rounds::many); });
    write.run(sampling.pass_s, Pass::Rounds::many);
    other.join();
    mixed_reads.push_back(std::min(read.rate, reads.back()));
    mixed_writes.push_back(std::min(write.rate, writes.back()));
  }
  return {middle_of("nvme_read_bytes", reads), middle_of("nvme_write_bytes", writes), middle_of("nvme_mixed_read_bytes", mixed_reads), middle_of("nvme_mixed_write_bytes", mixed_writes)};
}

}  // namespace spillway
