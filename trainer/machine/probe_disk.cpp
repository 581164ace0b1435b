#include <algorithm>

#include "trainer/machine/probe_measure.h"
#include "trainer/machine/probe_work.h"

namespace spillway {
namespace {

Measurement sustained(std::string name, const SettlingRate& rate) {
  return {std::move(name), std::clamp(rate.value(), rate.least(), rate.most()), rate.least(), rate.most(), rate.windows()};
}

// Beside the other way a drive is no faster than alone.
Measurement at_most(Measurement mixed, double alone) {
  mixed.value = std::min(mixed.value, alone);
  mixed.least = std::min(mixed.least, alone);
  return mixed;
}

}  // namespace

std::vector<Measurement> measure_sustained(DiskMoves& disk, const Sampling& sampling) {
  const Measurement writes = sustained("nvme_write_bytes", disk.settle_writes(sampling.writes)),
                    reads = sustained("nvme_read_bytes", disk.settle_reads(sampling.reads));
  const DiskMoves::Both both = disk.settle_both(sampling.both);
  return {reads, writes, at_most(sustained("nvme_mixed_read_bytes", both.reads), reads.value),
          at_most(sustained("nvme_mixed_write_bytes", both.writes), writes.value)};
}

std::vector<Measurement> measure_requests(DiskMoves& disk, const Sampling& sampling) {
  const double reads = disk.small_reads_for(sampling.pass_s), writes = disk.small_writes_for(sampling.pass_s);
  return {figure("nvme_read_requests", reads), figure("nvme_write_requests", writes), figure("nvme_sync_s", disk.sync_s())};
}

}  // namespace spillway
