// Valid records and identities, and what is refused in damaged ones.
#include "nvme/commit_record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "nvme/commit_log.h"
#include "nvme/content_hash.h"
#include "tests/nvme/store_fixture.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Bytes kEnd = kMiB;

CommitRecord small_record() {
  CommitRecord record{
      .store_id = 77, .sequence = 5, .step = 41, .seed = 1234, .model = 99, .form = 1, .arrays = {}, .hashes = {}};
  record.arrays.push_back({.name = "layers.0/v", .bytes = 3 * 4096, .begin = {0, 3 * 4096}, .slot = 1, .extent_bytes = 8192});
  record.arrays.push_back({.name = "head/weight", .bytes = 4096, .begin = {6 * 4096, 6 * 4096}, .slot = 0, .extent_bytes = 4096});
  record.hashes = {1, 2, 3};
  return record;
}

std::vector<std::byte> encoded(const CommitRecord& record) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(encoded_bytes(record)));
  encode_record(record, bytes);
  return bytes;
}

// The bytes with a correct checksum, as somebody who knows it would write them.
std::vector<std::byte> with_checksum(std::vector<std::byte> bytes) {
  const std::uint64_t hash = content_hash(std::span(bytes).first(bytes.size() - sizeof hash));
  std::memcpy(bytes.data() + bytes.size() - sizeof hash, &hash, sizeof hash);
  return bytes;
}

TEST(CommitRecord, comes_back_as_it_was) {
  const CommitRecord record = small_record();
  std::vector<std::byte> bytes = encoded(record);
  bytes.resize(bytes.size() + 5000, std::byte{0x5A});
  const DecodedRecord decoded = decode_record(bytes, 77, kEnd);
  ASSERT_TRUE(decoded.record) << decoded.refused;
  EXPECT_EQ(*decoded.record, record);
  const DecodedRecord blank = decode_record(std::vector<std::byte>(4096), 77, kEnd);
  EXPECT_FALSE(blank.record);
  EXPECT_EQ(blank.refused, "");
}

TEST(CommitRecord, every_flipped_bit_and_every_cut_is_refused) {
  const std::vector<std::byte> bytes = encoded(small_record());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::vector<std::byte> flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_FALSE(decode_record(flipped, 77, kEnd).record) << "bit " << bit;
  }
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    ASSERT_NE(decode_record(std::span(bytes).first(size), 77, kEnd).refused, "") << size << " bytes";
  }
  EXPECT_THAT(decode_record(bytes, 78, kEnd).refused, HasSubstr("another store"));
  std::vector<std::byte> newer = bytes;
  newer[8] = std::byte{4};
  EXPECT_THAT(decode_record(newer, 77, kEnd).refused, HasSubstr("of version 4; this program knows version 3"));
}

TEST(CommitRecord, fields_that_cannot_be_are_refused_though_the_checksum_is_right) {
  const auto refused = [](const std::function<void(CommitRecord&)>& change) {
    CommitRecord record = small_record();
    change(record);
    return decode_record(encoded(record), 77, kEnd).refused;
  };
  EXPECT_THAT(refused([](CommitRecord& r) { r.arrays[0].slot = 2; }), HasSubstr("array 0 (layers.0/v) cannot be"));
  EXPECT_THAT(refused([](CommitRecord& r) { r.arrays[0].first_element = -1; }), HasSubstr("cannot be"));
  EXPECT_THAT(refused([](CommitRecord& r) { r.arrays[0].elements = r.arrays[0].bytes + 1; }), HasSubstr("cannot be"));
  EXPECT_THAT(refused([](CommitRecord& r) { r.arrays[0].bytes = 4097; }), HasSubstr("cannot be"));
  EXPECT_THAT(refused([](CommitRecord& r) { r.arrays[0].bytes = Bytes{1} << 62; }), HasSubstr("cannot be"));
  EXPECT_THAT(refused([](CommitRecord& r) { r.arrays[1].begin[1] = kEnd; }), HasSubstr("array 1 (head/weight) cannot be"));
  EXPECT_THAT(refused([](CommitRecord& r) { r.arrays[1].begin[0] = -4096; }), HasSubstr("cannot be"));
  EXPECT_THAT(refused([](CommitRecord& r) { r.arrays[0].extent_bytes = 4096 - 1; }), HasSubstr("cannot be"));
  EXPECT_THAT(refused([](CommitRecord& r) { r.arrays[0].bytes = r.arrays[0].extent_bytes = kMostExtentBytes + 4096; }),
              HasSubstr("cannot be"));
  EXPECT_THAT(refused([](CommitRecord& r) { r.hashes.push_back(4); }), HasSubstr("4 checksums for 3 extents"));
  EXPECT_THAT(refused([](CommitRecord& r) { r.hashes.pop_back(); }), HasSubstr("2 checksums for 3 extents"));
  EXPECT_THAT(refused([](CommitRecord& r) { r.step = -1; }), HasSubstr("contradicts"));
  // Counts and lengths that claim more than there is are refused.
  const std::vector<std::byte> bytes = encoded(small_record());
  for (const std::size_t field : {16, 64, 68}) {
    for (const int value : {0x7F, 0xFF}) {
      std::vector<std::byte> large = bytes;
      std::fill_n(large.begin() + static_cast<std::ptrdiff_t>(field), 4, static_cast<std::byte>(value));
      EXPECT_NE(decode_record(with_checksum(large), 77, kEnd).refused, "") << "field at " << field;
    }
  }
}

TEST(ExtentHash, is_that_of_the_hashes_of_its_pieces) {
  for (const Bytes bytes : {Bytes{4096}, kHashedPieceBytes, kHashedPieceBytes + 4096, kMostExtentBytes}) {
    std::vector<std::byte> extent(static_cast<std::size_t>(bytes));
    for (std::size_t i = 0; i < extent.size(); ++i) extent[i] = static_cast<std::byte>(i * i / 7);
    std::vector<std::uint64_t> pieces;
    for (Bytes at = 0; at < bytes; at += kHashedPieceBytes) {
      pieces.push_back(content_hash(std::span(extent).subspan(
          static_cast<std::size_t>(at), static_cast<std::size_t>(std::min(kHashedPieceBytes, bytes - at)))));
    }
    const std::uint64_t hash = extent_hash(extent);
    EXPECT_EQ(hash, extent_hash_of(pieces));
    extent[extent.size() - 1] ^= std::byte{1};
    EXPECT_NE(extent_hash(extent), hash);
    std::fill(extent.begin(), extent.end(), std::byte{0});
    EXPECT_EQ(extent_hash(extent), extent_hash_of_zeros(bytes));
  }
}

class StoreIdentities : public StoreFixture {
 protected:
  StoreOptions durable(int directories, std::uint64_t id, const std::string& prefix = "d") {
    StoreOptions given;
    for (int i = 0; i < directories; ++i) given.directories.push_back({directory(fmt::format("{}{}", prefix, i)), 0});
    given.bytes = 256 * kKiB;
    given.stripe_bytes = 64 * kKiB;
    given.identity = StoreIdentity{.store_id = id, .records_begin = 192 * kKiB, .place_bytes = 16 * kKiB};
    return given;
  }
  static std::vector<std::string> paths(const StoreOptions& options) {
    std::vector<std::string> paths;
    for (const StoreDirectory& directory : options.directories) paths.push_back(directory.path);
    return paths;
  }
  static std::string file(const StoreOptions& options, std::size_t index) {
    return options.directories[index].path + "/spillway-store.bin";
  }
  static std::string refusal(const StoreOptions& options) {
    return message_of<IoError>([&] { identify_store(paths(options)); });
  }
  static void make(StoreOptions options) { Store(std::move(options)).keep(); }
};

TEST_F(StoreIdentities, a_store_is_known_by_its_directories) {
  const StoreOptions given = durable(3, 5);
  make(given);
  StoreIdentity expected = *given.identity;
  expected.directories = 3, expected.bytes = given.bytes, expected.stripe_bytes = given.stripe_bytes;
  EXPECT_EQ(identify_store(paths(given)), expected);
  StoreOptions again = given;
  again.content = StoreContent::existing;
  Store store(again);
  EXPECT_EQ(store.place_of(64 * kKiB).file, file(given, 1));
  EXPECT_EQ(store.place_of(200 * kKiB).offset, 72 * kKiB);
  store.discard();
}

TEST_F(StoreIdentities, missing_swapped_and_mixed_directories_are_refused) {
  const StoreOptions first = durable(2, 5, "a"), second = durable(2, 6, "b");
  make(first);
  make(second);
  StoreOptions half = first;
  half.directories.pop_back();
  EXPECT_THAT(refusal(half), AllOf(HasSubstr("a0"), HasSubstr("the store has 2 directories, 1 are given")));
  StoreOptions swapped = first;
  std::swap(swapped.directories[0], swapped.directories[1]);
  EXPECT_THAT(refusal(swapped), AllOf(HasSubstr("a1"), HasSubstr("file of directory 2, not of directory 1")));
  StoreOptions mixed = first;
  mixed.directories[1] = second.directories[1];
  EXPECT_THAT(refusal(mixed), AllOf(HasSubstr("a0"), HasSubstr("b1"), HasSubstr("two stores")));
  swapped.content = StoreContent::existing;
  EXPECT_THAT(message_of<IoError>([&] { Store store(swapped); }), HasSubstr("not the file of directory 1 of 2"));
  // Files that changed places are found out, even though the directories did not change.
  std::filesystem::rename(file(first, 0), file(first, 0) + ".x");
  std::filesystem::rename(file(first, 1), file(first, 0));
  std::filesystem::rename(file(first, 0) + ".x", file(first, 1));
  EXPECT_THAT(refusal(first), HasSubstr("file of directory 2, not of directory 1"));
  std::filesystem::remove(file(first, 1));
  EXPECT_THAT(refusal(first), AllOf(HasSubstr("a0"), HasSubstr("not of directory 1")));
  EXPECT_THAT(refusal(durable(1, 1, "nothing")), HasSubstr("no state of a run is there"));
}

TEST_F(StoreIdentities, of_its_two_pages_one_must_be_whole) {
  const StoreOptions given = durable(1, 5);
  make(given);
  const auto size = static_cast<Bytes>(std::filesystem::file_size(file(given, 0)));
  for (const Bytes at : {8, 16, 24, 40, 2000, 4095}) {
    std::fstream stream(file(given, 0), std::ios::in | std::ios::out | std::ios::binary);
    const auto flip = [&](Bytes page) {
      stream.seekg(size - page * kExtentAlignment + at);
      const char was = static_cast<char>(stream.get());
      stream.seekp(size - page * kExtentAlignment + at);
      stream.put(static_cast<char>(was ^ 4)).flush();
    };
    flip(1);
    EXPECT_EQ(identify_store(paths(given)).store_id, 5U) << at;
    flip(2);
    EXPECT_THAT(refusal(given), HasSubstr("is damaged")) << at;
    flip(1);
    EXPECT_EQ(identify_store(paths(given)).store_id, 5U) << at;
    flip(2);
  }
  std::filesystem::resize_file(file(given, 0), static_cast<std::uintmax_t>(size - kIdentityBytes));
  EXPECT_THAT(refusal(given), HasSubstr("no state of a run is there"));
}

TEST_F(StoreIdentities, one_of_another_version_says_what_to_do) {
  std::vector<std::byte> page(static_cast<std::size_t>(kExtentAlignment));
  encode_identity({.store_id = 5, .bytes = kMiB, .stripe_bytes = kMiB, .records_begin = kMiB / 2, .place_bytes = 4096}, page);
  page[8] = std::byte{2};
  try {
    (void)decode_identity(with_checksum(page), "x/spillway-store.bin");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_STREQ(error.what(), "x/spillway-store.bin: a store of version 2; this program knows version 4");
    EXPECT_THAT(error.help(),
                AllOf(HasSubstr("the program that wrote it"), HasSubstr("remove x/spillway-store.bin and its run's store.json")));
  }
}

TEST_F(StoreIdentities, whose_store_it_is_is_brought_up_to_date_where_it_is_opened) {
  StoreOptions given = durable(2, 5);
  make(given);
  given.content = StoreContent::existing;
  given.identity->run_directory = "/somewhere/else";
  given.identity->yields = true;
  {
    Store store(given);
    store.keep();
  }
  const StoreIdentity found = identify_store(paths(given));
  EXPECT_EQ(found.run_directory, "/somewhere/else");
  EXPECT_TRUE(found.yields);
  given.identity->store_id = 6;
  EXPECT_THROW(Store store(given), IoError);
}

TEST_F(StoreIdentities, a_fresh_store_takes_the_place_of_an_orphan_alone) {
  const StoreOptions first = durable(2, 5);
  make(first);
  StoreOptions second = durable(2, 6);
  EXPECT_THAT(message_of<IoError>([&] { Store store(second); }), HasSubstr("holds the state of a run that can go on"));
  StoreOptions scratch = options(2, kMiB);
  EXPECT_THROW(Store store(scratch), IoError);
  EXPECT_EQ(identify_store(paths(first)).store_id, 5U);
  second.orphans = {5};
  make(second);
  EXPECT_EQ(identify_store(paths(first)).store_id, 6U);
  second.content = StoreContent::existing;
  Store(second).discard();
  for (const StoreDirectory& directory : second.directories) EXPECT_TRUE(empty(directory.path));
}

TEST_F(StoreIdentities, records_alternate_and_the_newest_that_is_whole_counts) {
  const StoreOptions given = durable(2, 77);
  Store store(given);
  const StoreIdentity identity = identify_store(paths(given));
  CommitLog log(store, identity);
  EXPECT_FALSE(log.newest());
  CommitRecord record = small_record();
  for (record.sequence = 1; record.sequence <= 5; ++record.sequence) {
    record.step = static_cast<std::int64_t>(10 * record.sequence);
    log.commit(record);
    ASSERT_EQ(log.newest()->step, record.step);
  }
  const auto damage = [&](Bytes offset) {
    const StorePlace place = store.place_of(offset);
    std::fstream stream(place.file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(place.offset + 100);
    stream.put('x');
  };
  damage(identity.records_begin + identity.place_bytes);  // sequence 5
  EXPECT_EQ(log.newest()->step, 40);
  damage(identity.records_begin);
  EXPECT_THAT(message_of<IoError>([&] { log.newest(); }),
              AllOf(HasSubstr("no record that can be read"), HasSubstr("checksum is wrong"), HasSubstr("spillway-store.bin")));
}

}  // namespace
}  // namespace spillway
