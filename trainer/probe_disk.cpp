#include <algorithm>
#include <thread>

#include "trainer/probe_measure.h"
#include "trainer/probe_work.h"

namespace spillway {

std::vector<Measurement> measure_disk(DiskMoves& disk, const Sampling& sampling) {
  const double reads = disk.read_for(sampling.pass_s), writes = disk.write_for(sampling.pass_s);
  // Both for the same time: each at the rate that the other leaves it.
  double mixed_reads = 0;
  std::thread other([&] { mixed_reads = disk.read_for(sampling.pass_s); });
  const double mixed_writes = disk.write_for(sampling.pass_s);
  other.join();
  const double small_reads = disk.small_reads_for(sampling.pass_s), small_writes = disk.small_writes_for(sampling.pass_s);
  return {figure("nvme_read_bytes", reads),
          figure("nvme_write_bytes", writes),
          figure("nvme_mixed_read_bytes", std::min(mixed_reads, reads)),
          figure("nvme_mixed_write_bytes", std::min(mixed_writes, writes)),
          figure("nvme_read_requests", small_reads),
          figure("nvme_write_requests", small_writes)};
}

}  // namespace spillway
