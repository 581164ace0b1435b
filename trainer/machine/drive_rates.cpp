#include "trainer/machine/drive_rates.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "trainer/words/quantity.h"

namespace spillway {
namespace {

// Ratio of each seen rate to the probe's; 0 if the rate was not seen.
DriveRates changes_of(const DriveRates& seen, const DriveRates& probed) {
  DriveRates changes;
  for (const DriveRateName& figure : kDriveRates) {
    if (probed.*figure.rate > 0) changes.*figure.rate = seen.*figure.rate / probed.*figure.rate;
  }
  return changes;
}

// Geometric mean of the ratios that were seen.
double middle_change(const DriveRates& changes) {
  double sum = 0;
  int count = 0;
  for (const DriveRateName& figure : kDriveRates) {
    if (changes.*figure.rate > 0) sum += std::log(changes.*figure.rate), ++count;
  }
  return count > 0 ? std::exp(sum / count) : 1;
}

// The share left beside a drive whose speed changed by `change`: a slower drive takes less memory bandwidth and processor time.
double beside(double share, double change) { return std::clamp(1 - (1 - share) * change, 0.001, 1.0); }

std::string hour_in_words(std::string_view minute) {  // "2026-11-23 09:00 UTC"
  return fmt::format("{} {} UTC", minute.substr(0, 10), minute.substr(11, 5));
}

std::string factor_in_words(const DriveRates& probed, const DriveRates& used) {
  double least = 1e300, most = 0;
  for (const DriveRateName& figure : kDriveRates) {
    const double factor = probed.*figure.rate / used.*figure.rate;
    least = std::min(least, factor), most = std::max(most, factor);
  }
  const std::string first = fmt::format("{:.2f}", least), last = fmt::format("{:.2f}", most);
  return first == last ? fmt::format("{} times as fast", first) : fmt::format("{} to {} times as fast", first, last);
}

}  // namespace

DriveRates drive_rates_of(const MachineProfile& machine) {
  DriveRates rates;
  for (const DriveRateName& figure : kDriveRates) rates.*figure.rate = machine.*figure.of_machine;
  return rates;
}

MachineProfile as_seen(const MeasuredProfile& measured) {
  MachineProfile machine = measured;
  if (!measured.seen || machine.nvme_read_bytes <= 0) return machine;
  const DriveRates& seen = measured.seen->rates;
  const DriveRates probed = drive_rates_of(machine);
  DriveRates changes = changes_of(seen, probed);
  const double middle = middle_change(changes);
  const auto fill = [&](double& alone, double& mixed) {
    if (alone == 0) alone = mixed > 0 ? mixed : middle;
    if (mixed == 0) mixed = alone;
  };
  fill(changes.read, changes.mixed_read);
  fill(changes.write, changes.mixed_write);
  for (const DriveRateName& figure : kDriveRates)
    machine.*figure.of_machine = std::clamp(probed.*figure.rate * (changes.*figure.rate), kLeastBytesPerS, kMostBytesPerS);
  // A drive is no faster while it also moves data the other way. If only one of the two rates was seen, that one wins.
  const auto order = [](double& alone, double& mixed, bool alone_was_seen) {
    (alone_was_seen ? mixed : alone) = alone_was_seen ? std::min(mixed, alone) : std::max(mixed, alone);
  };
  order(machine.nvme_read_bytes, machine.nvme_mixed_read_bytes, seen.read > 0);
  order(machine.nvme_write_bytes, machine.nvme_mixed_write_bytes, seen.write > 0);
  const double reads = machine.nvme_read_bytes / probed.read, writes = machine.nvme_write_bytes / probed.write;
  machine.compute_beside_read = beside(machine.compute_beside_read, reads);
  machine.update_beside_read = beside(machine.update_beside_read, reads);
  machine.compute_beside_write = beside(machine.compute_beside_write, writes);
  machine.update_beside_write = beside(machine.update_beside_write, writes);
  return machine;
}

std::string utc_minute_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                     parts.tm_min);
}

bool is_utc_minute(std::string_view text) {
  constexpr std::string_view form = "0000-00-00T00:00Z";
  return std::ranges::equal(text, form,
                            [](char c, char of_form) { return of_form == '0' ? c >= '0' && c <= '9' : c == of_form; });
}

std::string drive_rates_in_words(const DriveRates& rates) {
  return fmt::format("{}B/s read, {}B/s written, {}B/s and {}B/s both at once", rounded_count(rates.read),
                     rounded_count(rates.write), rounded_count(rates.mixed_read), rounded_count(rates.mixed_write));
}

std::string drive_in_words(const MeasuredProfile& measured) {
  const DriveRates probed = drive_rates_of(measured);
  if (probed.read <= 0) return {};
  if (!measured.seen) {
    if (measured.probed_at.empty()) return fmt::format("as the profile says: {}", drive_rates_in_words(probed));
    return fmt::format("as probed ({}): {}; no run has kept it busy for long since", hour_in_words(measured.probed_at),
                       drive_rates_in_words(probed));
  }
  const SeenDrive& seen = *measured.seen;
  const DriveRates used = drive_rates_of(as_seen(measured));
  const std::string probe = measured.probed_at.empty() ? "" : fmt::format(" ({})", hour_in_words(measured.probed_at));
  return fmt::format("as a run saw it ({}, over {} of a busy drive): {}; as probed{} it was {}", hour_in_words(seen.at),
                     rounded_seconds(seen.seconds), drive_rates_in_words(used), probe, factor_in_words(probed, used));
}

}  // namespace spillway
