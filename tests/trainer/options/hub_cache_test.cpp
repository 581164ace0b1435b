// Names of the hub, and what its cache has of them.
#include "trainer/options/hub_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
const std::string kHash(40, 'a'), kOther = std::string(39, 'b') + "1";

TEST(HubCache, Names) {
  EXPECT_EQ(hub_name_in("Qwen/Qwen2.5-0.5B"), (HubName{"Qwen/Qwen2.5-0.5B", ""}));
  EXPECT_EQ(hub_name_in("a/b@refs/pr/1"), (HubName{"a/b", "refs/pr/1"}));
  EXPECT_EQ(hub_name_in("a/b@" + kHash), (HubName{"a/b", kHash}));
  for (const std::string text : {"", "a", "/a/b", "a/b/c", "../b", "a/..", "./b", "a/b@", "a/b@../x", "a/b@/x", "a@b/c", "a/b c",
                                 "a--b/c", "a/b@x y", "a/"})
    EXPECT_EQ(hub_name_in(text), std::nullopt) << text;
}

class HubCacheFiles : public ::testing::Test {
 protected:
  // As the hub's own programs lay it out.
  void SetUp() override {
    for (const std::string& hash : {kHash, kOther}) {
      fs::create_directories(model() / "blobs");
      fs::create_directories(model() / "snapshots" / hash);
      std::ofstream(model() / "blobs" / ("config" + hash)) << "{}";
      fs::create_symlink("../../blobs/config" + hash, model() / "snapshots" / hash / "config.json");
    }
    write_reference("main", kHash);
    write_reference("v1", kOther + "\n");
  }
  fs::path model() const { return fs::path(directory_.path()) / "models--Org--Name-1.5"; }
  void write_reference(const std::string& name, const std::string& content) const {
    fs::create_directories((model() / "refs" / name).parent_path());
    std::ofstream(model() / "refs" / name) << content;
  }
  std::optional<HubSnapshot> find(const std::string& text) const {
    return find_in_hub_cache(hub_name_in(text).value(), directory_.path());
  }
  TemporaryDirectory directory_;
};

TEST_F(HubCacheFiles, AreFoundByBranchTagAndHash) {
  EXPECT_EQ(find("Org/Name-1.5")->words(), "Org/Name-1.5@" + kHash);
  EXPECT_EQ(find("Org/Name-1.5")->directory, model() / "snapshots" / kHash);
  EXPECT_EQ(find("Org/Name-1.5@v1")->hash, kOther);
  EXPECT_EQ(find("Org/Name-1.5@" + kOther)->directory, model() / "snapshots" / kOther);
  EXPECT_TRUE(fs::is_regular_file(find("Org/Name-1.5")->directory / "config.json"));
}

TEST_F(HubCacheFiles, OrNot) {
  EXPECT_EQ(find("Org/Name"), std::nullopt);
  EXPECT_EQ(find("Org/Name-1.5@v2"), std::nullopt);
  EXPECT_EQ(find("Org/Name-1.5@" + std::string(40, 'c')), std::nullopt);
  write_reference("refs/pr/1", std::string(40, 'd'));
  EXPECT_EQ(find("Org/Name-1.5@refs/pr/1"), std::nullopt);  // the commit is known, and its files are gone
  EXPECT_EQ(find_in_hub_cache(hub_name_in("a/b").value(), {}), std::nullopt);
  const std::vector<std::string> damaged = {"", "../../..", "main", std::string(41, 'a'), std::string(2000, 'a')};
  for (const std::string& content : damaged) {
    write_reference("bad", content);
    EXPECT_THROW(find("Org/Name-1.5@bad"), Error) << content;
  }
}

}  // namespace
}  // namespace spillway
