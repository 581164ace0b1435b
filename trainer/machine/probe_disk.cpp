#include <algorithm>

#include "trainer/machine/probe_measure.h"
#include "trainer/machine/probe_work.h"

namespace spillway {
namespace {

Measurement sustained(std::string name, const SettlingRate& rate) {
  return {std::move(name), std::clamp(rate.value(), rate.least(), rate.most()), rate.least(), rate.most(), rate.windows()};
}

// A drive is no slower alone than beside the other direction: if it was, it had something else to do at that moment.
Measurement at_least(Measurement alone, double mixed) {
  alone.value = std::max(alone.value, mixed);
  alone.most = std::max(alone.most, mixed);
  return alone;
}

}  // namespace

std::vector<Measurement> measure_sustained(DiskMoves& disk, const Sampling& sampling) {
  const Measurement writes = sustained("nvme_write_bytes", disk.settle_writes(sampling.writes)),
                    reads = sustained("nvme_read_bytes", disk.settle_reads(sampling.reads));
  const DiskMoves::Both both = disk.settle_both(sampling.both);
  const Measurement mixed_reads = sustained("nvme_mixed_read_bytes", both.reads),
                    mixed_writes = sustained("nvme_mixed_write_bytes", both.writes);
  return {at_least(reads, mixed_reads.value), at_least(writes, mixed_writes.value), mixed_reads, mixed_writes};
}

std::vector<Measurement> measure_requests(DiskMoves& disk, const Sampling& sampling) {
  const double reads = disk.small_reads_for(sampling.pass_s), writes = disk.small_writes_for(sampling.pass_s);
  return {figure("nvme_read_requests", reads), figure("nvme_write_requests", writes), figure("nvme_sync_s", disk.sync_s())};
}

}  // namespace spillway
