// Byte-pair encoding of one word: turns bytes or characters into ids by merges, the lowest rank first and the leftmost among
// equals.
// Not here: how text becomes words (tokenizer_split.h), how the tables are read (tokenizer_load.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

// Maps the bytes of whole-word tokens to ids. Open addressing over an arena; filled once.
class WordTable {
 public:
  void reserve(std::size_t words, std::size_t bytes);
  void insert(std::string_view word, std::int32_t id);  // the last of equal words stays
  std::int32_t find(std::string_view word) const;       // kNone if there is none
  static constexpr std::int32_t kNone = -1;

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t begin = 0;
    std::uint32_t length = 0;
    std::int32_t id = kNone;
  };
  std::size_t slot_of(std::string_view word, std::uint32_t hash) const;

  std::vector<Slot> slots_;  // [a power of two, at most 3/4 full]
  std::string arena_;
};

// Maps a pair (left, right) to the merge's rank and the merged id.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank;
    std::int32_t id;
  };
  static constexpr std::uint32_t kNoRank = ~std::uint32_t{0};

  void reserve(std::size_t merges);
  void insert(std::int32_t left, std::int32_t right, Merge merge);  // the last of equal pairs stays
  Merge find(std::int32_t left, std::int32_t right) const {
    std::size_t slot = slot_of(key_of(left, right));
    const std::uint64_t key = key_of(left, right);
    while (slots_[slot].key != key) {
      if (slots_[slot].key == kEmpty) return {kNoRank, 0};
      slot = (slot + 1) & mask_;
    }
    return slots_[slot].merge;
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge = {kNoRank, 0};
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const { return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15U) >> shift_); }

  std::vector<Slot> slots_ = std::vector<Slot>(2);
  std::size_t mask_ = 1;
  int shift_ = 63;
};

// A word's symbols before any merge: its bytes; or its characters, with the bytes of characters that are no token.
enum class Symbols : std::uint8_t { bytes, characters };

// Treatment of symbols that are no token.
enum class Unknown : std::uint8_t { dropped, one_token_each, one_token_a_run };

struct BpeModel {
  Symbols symbols = Symbols::bytes;
  MergeTable merges;
  WordTable words;                 // filled if `takes_whole_words`
  WordTable characters;            // filled if characters are the symbols
  std::int32_t byte_ids[256];      // WordTable::kNone if the vocabulary lacks the byte
  bool falls_back = false;         // a character that is no token becomes its bytes, which are all tokens
  bool knows_all = false;          // no symbol is unknown
  bool takes_whole_words = false;  // "ignore_merges": a word of the vocabulary is one token
  Unknown unknown = Unknown::dropped;
  std::int32_t unknown_id = WordTable::kNone;
};

// Encodes words, with a cache of short words and scratch memory of its own: each caller needs its own encoder.
class BpeEncoder {
 public:
  explicit BpeEncoder(const BpeModel& model);  // must outlive the encoder
  void encode(std::string_view word, std::vector<std::int32_t>& out);
  // The offset in `word` at which a token that begins at `at` ends: `id` of `bytes` bytes, one of those that encode gives.
  std::size_t end_of_token(std::string_view word, std::size_t at, std::int32_t id, std::size_t bytes) const;

 private:
  // A cache line: a short word and its ids. Which words are in the cache never changes a result.
  struct alignas(64) CacheLine {
    static constexpr std::size_t kLongestWord = 37;
    static constexpr std::size_t kMostIds = 6;
    std::uint8_t length = 0;  // bytes of the word; 0: the line is empty
    std::uint8_t ids = 0;
    char word[kLongestWord + 1];
    std::int32_t id[kMostIds];
  };
  static_assert(sizeof(CacheLine) == 64);
  static constexpr std::size_t kCacheLines = std::size_t{1} << 14;

  struct Symbol {
    std::size_t bytes;
    bool is_known;  // it is a token, or its bytes are
  };
  Symbol symbol_at(std::string_view word, std::size_t at) const;
  void merge(std::string_view word, std::vector<std::int32_t>& out);
  void begin_with_symbols_of(std::string_view word);
  void merge_short(std::size_t count);
  void merge_long();

  const BpeModel* model_;
  std::vector<CacheLine> cache_;               // [kCacheLines]
  std::vector<std::int32_t> symbols_;          // of the current word
  std::vector<MergeTable::Merge> next_merge_;  // [symbols] merge of a symbol and the one after it
  std::vector<std::uint32_t> previous_;
  std::vector<std::uint32_t> following_;
  std::vector<std::uint64_t> heap_;  // rank and position of merges that were possible when they were pushed
};

}  // namespace spillway
