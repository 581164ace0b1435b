#include "offload/committer.h"

#include <algorithm>

#include "memory/base/error.h"

namespace spillway {
namespace {

Bytes longest_extent(const DurableLayout& layout) {
  Bytes longest = kExtentAlignment;
  for (const DurableArray& array : layout.state.arrays) longest = std::max(longest, array.extent_bytes);
  return longest;
}

}  // namespace

Committer::Committer(const DurabilityOptions& options, const Plan& plan, std::uint64_t seed, std::uint64_t model, Store& store,
                     StateExtents& extents, TierMemory& memory, Transport* others)
    : options_(options),
      plan_(plan),
      extents_(extents),
      memory_(memory),
      beside_nvme_(memory.beside_nvme()),
      staging_(longest_extent(options.layout), "extent to check"),
      log_(store, options.identity, {&beside_nvme_, 1}),
      others_(others) {
  for (int rank = 0; others != nullptr && rank < others->ranks(); ++rank) {
    if (rank == others->rank()) continue;
    sends_.push_back({.to = rank});
    receives_.push_back({.from = rank});
  }
  record_ = {.store_id = options.identity.store_id,
             .sequence = options.from ? options.from->sequence : 0,
             .seed = seed,
             .model = model,
             .form = static_cast<std::uint32_t>(plan.choices.form),
             .arrays = {}};
  const std::span<const DurableArray> committed = committed_arrays(options.layout);
  record_.arrays.assign(committed.begin(), committed.end());
  std::int64_t extents_of_all = 0;
  for (const DurableArray& array : record_.arrays) extents_of_all += array.extents();
  record_.hashes.resize(static_cast<std::size_t>(extents_of_all));
}

Generation Committer::resume() {
  const CommitRecord& from = *options_.from;
  log_.erase_newer_than(from);  // of a step that another rank did not come to: what is its state is written over from now on
  int slot = 0;
  auto hash = from.hashes.begin();
  for (int index = 0; index < static_cast<int>(from.arrays.size()); ++index) {
    const DurableArray& array = from.arrays[static_cast<std::size_t>(index)];
    const auto extents = static_cast<std::ptrdiff_t>(array.extents());
    const int buffer = options_.layout.state.buffer[static_cast<std::size_t>(index)];
    const Buffer& home = plan_.resident[static_cast<std::size_t>(buffer)];
    const auto take_hashes = [&](int known) {
      std::copy(hash, hash + extents, extents_.hashes(index, known).begin());
      std::ranges::fill(extents_.known(index, known), std::uint8_t{1});
    };
    take_hashes(array.slot);
    if (!in_memory(home.tier)) {
      // Nobody uses the contents of the other slot; it is written before it is read.
      std::ranges::fill(extents_.known(index, 1 - array.slot), std::uint8_t{array.begin[0] == array.begin[1]});
      slot = array.slot;
    } else {
      put_back(index, array.slot);
      take_hashes(0);  // from here on the hashes are those of memory, in slot 0
    }
    hash += extents;
  }
  return {from.step, slot};
}

void Committer::acknowledge(std::int64_t step) {
  {
    const std::lock_guard lock(mutex_);
    acknowledged_ = std::max(acknowledged_, step);
  }
  changed_.notify_all();
}

void Committer::end() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
}

bool Committer::wait_for_acknowledgement(std::int64_t step) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_over_ || acknowledged_ >= step; });
  return acknowledged_ >= step;
}

void Committer::commit(const Generation& state) {
  const std::uint64_t sequence = record_.sequence + 1;
  copy_state(static_cast<int>(sequence % 2));
  auto hash = record_.hashes.begin();
  for (int index = 0; index < static_cast<int>(record_.arrays.size()); ++index) {
    DurableArray& array = record_.arrays[static_cast<std::size_t>(index)];
    const int buffer = options_.layout.state.buffer[static_cast<std::size_t>(index)];
    const bool rests_in_memory = in_memory(tier_of(buffer));
    array.slot = rests_in_memory ? static_cast<int>(sequence % 2) : state.slot;
    find_unknown(index);
    hash = std::ranges::copy(extents_.hashes(index, rests_in_memory ? 0 : array.slot), hash).out;
  }
  record_.sequence = sequence;
  record_.step = state.step;
  log_.commit(record_);
  if (others_ != nullptr) others_->exchange(sends_, receives_);
}

Bytes Committer::at_a_time(int index) const {
  const DurableArray& array = record_.arrays[static_cast<std::size_t>(index)];
  const int buffer = options_.layout.state.buffer[static_cast<std::size_t>(index)];
  return memory_.is_beside_nvme(tier_of(buffer)) ? array.bytes : array.extent_bytes;
}

// Bytes of a resident buffer: in their place, or a copy in `staging_`.
std::span<std::byte> Committer::content(int buffer, Bytes begin, Bytes bytes) {
  const Buffer& home = plan_.resident[static_cast<std::size_t>(buffer)];
  const auto size = static_cast<std::size_t>(bytes);
  if (memory_.is_beside_nvme(home.tier)) return {memory_.at(home.tier, home.offset + begin), size};
  const std::span<std::byte> copy(staging_.data(), size);
  memory_.copy_out(home.tier, home.offset + begin, copy);
  return copy;
}

void Committer::copy_state(int copy) {
  for (int index = 0; index < static_cast<int>(record_.arrays.size()); ++index) {
    const DurableArray& array = record_.arrays[static_cast<std::size_t>(index)];
    const int buffer = options_.layout.state.buffer[static_cast<std::size_t>(index)];
    if (!in_memory(tier_of(buffer))) continue;
    const Bytes most = at_a_time(index);
    for (Bytes at = 0; at < array.bytes; at += most) {
      const Bytes bytes = std::min(most, array.bytes - at);
      const IoSegment segment{array.begin[static_cast<std::size_t>(copy)] + at, content(buffer, at, bytes).data(), bytes};
      log_.write({&segment, 1});
    }
  }
}

void Committer::put_back(int index, int slot) {
  const DurableArray& array = record_.arrays[static_cast<std::size_t>(index)];
  const int buffer = options_.layout.state.buffer[static_cast<std::size_t>(index)];
  const Buffer& home = plan_.resident[static_cast<std::size_t>(buffer)];
  const Bytes most = at_a_time(index);
  const bool in_place = memory_.is_beside_nvme(home.tier);
  for (Bytes at = 0; at < array.bytes; at += most) {
    const Bytes bytes = std::min(most, array.bytes - at);
    std::byte* const to = in_place ? memory_.at(home.tier, home.offset + at) : staging_.data();
    const IoSegment segment{array.begin[static_cast<std::size_t>(slot)] + at, to, bytes};
    log_.read({&segment, 1});
    const std::span<const std::byte> read(to, static_cast<std::size_t>(bytes));
    extents_.check(buffer, slot, at, read);
    if (!in_place) memory_.copy_in(home.tier, home.offset + at, read);
  }
}

// Hashes the extents whose hash is unknown, as parts of them were written. On NVMe each is read back once; in memory it is at
// hand.
void Committer::find_unknown(int index) {
  const DurableArray& array = record_.arrays[static_cast<std::size_t>(index)];
  const int buffer = options_.layout.state.buffer[static_cast<std::size_t>(index)];
  const bool rests_in_memory = in_memory(tier_of(buffer));
  const int slot = rests_in_memory ? 0 : array.slot;
  const std::span<std::uint8_t> known = extents_.known(index, slot);
  for (std::size_t extent = 0; extent < known.size(); ++extent) {
    if (known[extent] != 0) continue;
    const Bytes begin = static_cast<Bytes>(extent) * array.extent_bytes,
                bytes = std::min(array.extent_bytes, array.bytes - begin);
    if (rests_in_memory) {
      extents_.note(buffer, slot, begin, content(buffer, begin, bytes));
      continue;
    }
    const IoSegment segment{array.begin[static_cast<std::size_t>(slot)] + begin, staging_.data(), bytes};
    log_.read({&segment, 1});
    extents_.note(buffer, slot, begin, {staging_.data(), static_cast<std::size_t>(bytes)});
  }
}

}  // namespace spillway
