#include "trainer/text/tokenizer_bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "memory/base/error.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

// In words of up to this many symbols each merge searches all ranks, which is cheaper than a heap: they fill a few cache lines.
constexpr std::size_t kShortWord = 48;

// Bounds memory: merging takes about 30 bytes for each byte of a word.
constexpr std::size_t kLongestWord = 16 << 20;

std::uint64_t hash_of(std::string_view word) {
  std::uint64_t hash = word.size() * 0x9e3779b97f4a7c15U;
  const char* data = word.data();
  std::size_t left = word.size();
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0xd6e8feb86659fd93U;
    hash ^= hash >> 32;
  };
  for (; left >= 8; left -= 8, data += 8) {
    std::uint64_t value;
    std::memcpy(&value, data, 8);
    mix(value);
  }
  if (left > 0) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < left; ++i) value |= static_cast<std::uint64_t>(static_cast<unsigned char>(data[i])) << (8 * i);
    mix(value);
  }
  return hash;
}

}  // namespace

void WordTable::reserve(std::size_t words, std::size_t bytes) {
  slots_.assign(std::bit_ceil(words * 4 / 3 + 2), Slot{});
  arena_.reserve(bytes);
}

std::size_t WordTable::slot_of(std::string_view word, std::uint32_t hash) const {
  std::size_t slot = hash & (slots_.size() - 1);
  while (slots_[slot].id != kNone) {
    const Slot& found = slots_[slot];
    if (found.hash == hash && found.length == word.size() &&
        std::memcmp(arena_.data() + found.begin, word.data(), word.size()) == 0)
      return slot;
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

void WordTable::insert(std::string_view word, std::int32_t id) {
  const auto hash = static_cast<std::uint32_t>(hash_of(word) >> 16);
  Slot& slot = slots_[slot_of(word, hash)];
  if (slot.id == kNone) {
    slot = {hash, static_cast<std::uint32_t>(arena_.size()), static_cast<std::uint32_t>(word.size()), id};
    arena_.append(word);
  }
  slot.id = id;
}

std::int32_t WordTable::find(std::string_view word) const {
  if (slots_.empty()) return kNone;
  return slots_[slot_of(word, static_cast<std::uint32_t>(hash_of(word) >> 16))].id;
}

void MergeTable::reserve(std::size_t merges) {
  const std::size_t slots = std::bit_ceil(merges * 3 / 2 + 2);
  slots_.assign(slots, Slot{});
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
}

void MergeTable::insert(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key = key_of(left, right);
  std::size_t slot = slot_of(key);
  while (slots_[slot].key != key && slots_[slot].key != kEmpty) slot = (slot + 1) & mask_;
  slots_[slot] = {key, merge};
}

BpeEncoder::BpeEncoder(const BpeModel& model) : model_(&model), cache_(kCacheLines) {}

void BpeEncoder::encode(std::string_view word, std::vector<std::int32_t>& out) {
  if (word.size() > CacheLine::kLongestWord || word.empty()) {
    merge(word, out);
    return;
  }
  CacheLine& line = cache_[static_cast<std::size_t>(hash_of(word) >> 8) & (kCacheLines - 1)];
  if (line.length == word.size() && std::memcmp(line.word, word.data(), word.size()) == 0) {
    out.insert(out.end(), line.id, line.id + line.ids);
    return;
  }
  const std::size_t before = out.size();
  merge(word, out);
  const std::size_t ids = out.size() - before;
  if (ids > CacheLine::kMostIds) return;
  line.length = static_cast<std::uint8_t>(word.size());
  line.ids = static_cast<std::uint8_t>(ids);
  std::memcpy(line.word, word.data(), word.size());
  std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(before), ids, line.id);
}

BpeEncoder::Symbol BpeEncoder::symbol_at(std::string_view word, std::size_t at) const {
  if (model_->symbols == Symbols::bytes) return {1, model_->byte_ids[static_cast<unsigned char>(word[at])] != WordTable::kNone};
  const auto bytes = static_cast<std::size_t>(decode_utf8(word.data() + at).bytes);
  return {bytes, model_->falls_back || model_->characters.find(word.substr(at, bytes)) != WordTable::kNone};
}

std::size_t BpeEncoder::end_of_token(std::string_view word, std::size_t at, std::int32_t id, std::size_t bytes) const {
  if (model_->knows_all) return std::min(at + bytes, word.size());
  if (at < word.size() && id == model_->unknown_id && model_->unknown != Unknown::dropped && !symbol_at(word, at).is_known) {
    do {
      at += symbol_at(word, at).bytes;
    } while (model_->unknown == Unknown::one_token_a_run && at < word.size() && !symbol_at(word, at).is_known);
    return at;
  }
  for (std::size_t taken = 0; taken < bytes && at < word.size();) {
    const Symbol symbol = symbol_at(word, at);
    at += symbol.bytes;
    if (symbol.is_known) taken += symbol.bytes;  // the others were dropped
  }
  return at;
}

void BpeEncoder::merge(std::string_view word, std::vector<std::int32_t>& out) {
  if (model_->takes_whole_words) {
    const std::int32_t id = model_->words.find(word);
    if (id != WordTable::kNone) {
      out.push_back(id);
      return;
    }
  }
  if (word.size() > kLongestWord)
    throw InputError(fmt::format("a word of {} bytes without a place to cut it, allowed: at most {}", word.size(), kLongestWord));
  begin_with_symbols_of(word);
  if (symbols_.size() > kShortWord)
    merge_long();
  else if (symbols_.size() > 1)
    merge_short(symbols_.size());
  out.insert(out.end(), symbols_.begin(), symbols_.end());
}

void BpeEncoder::begin_with_symbols_of(std::string_view word) {
  symbols_.clear();
  const bool by_character = model_->symbols == Symbols::characters;
  const auto id_of_byte = [this](char byte) { return model_->byte_ids[static_cast<unsigned char>(byte)]; };
  bool in_unknown_run = false;
  for (std::size_t at = 0, bytes = 1; at < word.size(); at += bytes) {
    if (by_character) bytes = static_cast<std::size_t>(decode_utf8(word.data() + at).bytes);
    const std::string_view symbol = word.substr(at, bytes);
    const std::int32_t id = by_character ? model_->characters.find(symbol) : id_of_byte(symbol[0]);
    const bool is_known = id != WordTable::kNone || model_->falls_back;
    if (id != WordTable::kNone) {
      symbols_.push_back(id);
    } else if (model_->falls_back) {
      for (const char byte : symbol) symbols_.push_back(id_of_byte(byte));
    } else if (model_->unknown == Unknown::one_token_each || (model_->unknown == Unknown::one_token_a_run && !in_unknown_run)) {
      symbols_.push_back(model_->unknown_id);
    }
    in_unknown_run = !is_known;
  }
}

void BpeEncoder::merge_short(std::size_t count) {
  next_merge_.resize(kShortWord);
  std::int32_t* const symbols = symbols_.data();
  MergeTable::Merge* const merges = next_merge_.data();
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = model_->merges.find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == MergeTable::kNoRank) break;
    symbols[best] = merges[best].id;
    std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
    if (best + 2 < count) std::copy(merges + best + 2, merges + count - 1, merges + best + 1);
    --count;
    if (best > 0) merges[best - 1] = model_->merges.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) merges[best] = model_->merges.find(symbols[best], symbols[best + 1]);
  }
  symbols_.resize(count);
}

void BpeEncoder::merge_long() {
  constexpr std::uint32_t kGone = ~std::uint32_t{0};  // no neighbour, or a symbol that was merged away
  const auto count = static_cast<std::uint32_t>(symbols_.size());
  next_merge_.resize(count);
  previous_.resize(count);
  following_.resize(count);
  heap_.clear();
  const auto entry = [](std::uint32_t rank, std::uint32_t position) { return static_cast<std::uint64_t>(rank) << 32 | position; };
  const auto look = [&](std::uint32_t i) {
    const std::uint32_t next = following_[i];
    next_merge_[i] = next == kGone ? MergeTable::Merge{MergeTable::kNoRank, 0} : model_->merges.find(symbols_[i], symbols_[next]);
    return next_merge_[i].rank != MergeTable::kNoRank;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    previous_[i] = i == 0 ? kGone : i - 1;
    following_[i] = i + 1 == count ? kGone : i + 1;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (look(i)) heap_.push_back(entry(next_merge_[i].rank, i));
  }
  std::ranges::make_heap(heap_, std::greater<>());
  const auto push = [&](std::uint32_t i) {
    if (!look(i)) return;
    heap_.push_back(entry(next_merge_[i].rank, i));
    std::ranges::push_heap(heap_, std::greater<>());
  };
  while (!heap_.empty()) {
    std::ranges::pop_heap(heap_, std::greater<>());
    const auto rank = static_cast<std::uint32_t>(heap_.back() >> 32);
    const auto i = static_cast<std::uint32_t>(heap_.back());
    heap_.pop_back();
    if (next_merge_[i].rank != rank) continue;  // the pair that it was made for no longer exists
    const std::uint32_t gone = following_[i];
    symbols_[i] = next_merge_[i].id;
    following_[i] = following_[gone];
    if (following_[i] != kGone) previous_[following_[i]] = i;
    next_merge_[gone].rank = MergeTable::kNoRank;
    push(i);
    if (previous_[i] != kGone) push(previous_[i]);
  }
  std::size_t kept = 0;
  for (std::uint32_t i = 0; i != kGone; i = following_[i]) symbols_[kept++] = symbols_[i];
  symbols_.resize(kept);
}

}  // namespace spillway
