#include "files/safetensors_writer.h"

#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tests/files/safetensors_testing.h"

namespace spillway {
namespace {

using testing::HasSubstr;

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

TEST_F(Safetensors, WriterWritesWhatTheReaderReads) {
  const fs::path path = directory_ / "out.safetensors";
  std::vector<float> a(1000);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i) * 0.25F;
  const std::vector<std::byte> data = bytes_of(a);
  {
    SafetensorsWriter writer(
        path, {{"a", ElementType::f32, {10, 100}}, {"none", ElementType::f32, {0}}, {"b \"é\"", ElementType::bf16, {2}}});
    writer.append("a", std::span(data).first(123));
    writer.append("a", std::span(data).subspan(123));
    EXPECT_FALSE(fs::exists(path));
    const std::uint16_t two[] = {0x3f80, 0xc000};
    writer.append("b \"é\"", std::as_bytes(std::span(two)));
    writer.finish();
  }
  const SafetensorsReader reader(path);
  EXPECT_EQ(reader.tensors().size(), 3U);
  EXPECT_EQ(reader.find("a")->offset % 64, 0);
  std::vector<float> out(1000);
  reader.read(*reader.find("a"), 0, std::span(out));
  EXPECT_EQ(out, a);
  std::vector<float> b(2);
  reader.read(*reader.find("b \"é\""), 0, std::span(b));
  EXPECT_EQ(b, (std::vector<float>{1, -2}));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST_F(Safetensors, WriterLeavesNothingHalfWritten) {
  const fs::path path = write("kept.safetensors", "before");
  {
    SafetensorsWriter writer(path, {{"a", ElementType::f32, {2}}});
    const std::vector<std::byte> half(4);
    writer.append("a", half);
  }
  EXPECT_EQ(read_all(path), "before");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
  try {
    const SafetensorsWriter writer(directory_ / "no" / "such" / "x.safetensors", {});
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_THAT(error.what(), HasSubstr("cannot be created"));
  }
  {
    // The disk is full from the first byte on.
    ASSERT_EQ(::symlink("/dev/full", (directory_ / "full.safetensors.partial").c_str()), 0);
    try {
      SafetensorsWriter writer(directory_ / "full.safetensors", {{"a", ElementType::f32, {2}}});
      FAIL();
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
      EXPECT_THAT(error.help(), HasSubstr("Free space"));
    }
    EXPECT_FALSE(fs::exists(fs::symlink_status(directory_ / "full.safetensors.partial")));
  }
}

TEST_F(Safetensors, ShardedWriter) {
  const std::vector<TensorToWrite> tensors = {
      {"a", ElementType::f32, {3}}, {"b", ElementType::f32, {2}}, {"c", ElementType::f32, {5}}, {"z", ElementType::f32, {0}}};
  const auto write_all = [&](Bytes shard_bytes) {
    ShardedSafetensorsWriter writer(directory_, tensors, shard_bytes);
    float next = 0;
    for (const TensorToWrite& tensor : tensors) {
      std::vector<float> values(static_cast<std::size_t>(tensor.shape[0]));
      for (float& value : values) value = next++;
      writer.append(tensor.name, bytes_of(values));
    }
    writer.finish();
  };
  const auto check = [&](std::size_t files) {
    const SafetensorsReader reader(directory_);
    EXPECT_EQ(reader.files().size(), files);
    float next = 0;
    for (const TensorToWrite& tensor : tensors) {
      std::vector<float> values(static_cast<std::size_t>(tensor.shape[0]));
      reader.read(*reader.find(tensor.name), 0, std::span(values));
      for (const float value : values) EXPECT_EQ(value, next++);
    }
  };
  write_all(20);
  EXPECT_TRUE(fs::exists(directory_ / "model-00001-of-00002.safetensors"));
  check(2);
  write_all(1'000'000);
  check(1);
  write_all(1);
  check(3);
}

}  // namespace
}  // namespace spillway
