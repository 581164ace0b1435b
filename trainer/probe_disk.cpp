#include <algorithm>
#include <thread>

#include "trainer/probe_measure.h"
#include "trainer/probe_work.h"

namespace spillway {
std::vector<Measurement> measure_disk(DiskMoves& disk, const Sampling& sampling) {
  std::vector<double> reads, writes, mixed_reads, mixed_writes, small_reads, small_writes;
  for (int pass = 0; pass < sampling.passes; ++pass) {
    reads.push_back(disk.read_for(sampling.pass_s));
    writes.push_back(disk.write_for(sampling.pass_s));
    // Both for the same time: each at the rate that the other leaves it.
    double read_rate = 0;
    std::thread other([&] { read_rate = disk.read_for(sampling.pass_s); });
    const double write_rate = disk.write_for(sampling.pass_s);
    other.join();
    mixed_reads.push_back(std::min(read_rate, reads.back()));
    mixed_writes.push_back(std::min(write_rate, writes.back()));
    small_reads.push_back(disk.small_reads_for(sampling.pass_s));
    small_writes.push_back(disk.small_writes_for(sampling.pass_s));
  }
  return {mean_of("nvme_read_bytes", reads), mean_of("nvme_write_bytes", writes),
          mean_of("nvme_mixed_read_bytes", mixed_reads), mean_of("nvme_mixed_write_bytes", mixed_writes),
          mean_of("nvme_read_requests", small_reads), mean_of("nvme_write_requests", small_writes)};
}

}  // namespace spillway
