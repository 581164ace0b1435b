// Where libraries that pip installed are looked for, in made-up environments.
#include "memory/base/wheel_library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace spillway {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class WheelLibraryTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_); }
  void TearDown() override {
    fs::remove_all(root_);
    ::unsetenv("VIRTUAL_ENV");
    ::unsetenv("CONDA_PREFIX");
  }
  fs::path made(const fs::path& name) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << "not a library";
    return root_ / name;
  }

  const fs::path root_ = fs::path(::testing::TempDir()) / ("wheels_" + std::to_string(::getpid()));
};

TEST_F(WheelLibraryTest, LiesBesideTheProgramsPackageOrInAnEnvironment) {
  const fs::path beside = made("v/lib/python3.11/site-packages/nvidia/cu13/lib/libx.so.1");
  const fs::path other = made("v/lib/python3.11/site-packages/nvidia/cublas/lib/libx.so.1");
  const fs::path apart = made("w/lib/python3.13/site-packages/nvidia/cu13/lib/libx.so.1");
  const fs::path debian = made("usr/lib/python3/dist-packages/nvidia/cu13/lib/libx.so.1");
  const fs::path site = root_ / "v/lib/python3.11/site-packages";
  EXPECT_THAT(wheel_libraries("libx.so.1", site / "spillway_train/bin/spillway", {}), ElementsAre(beside, other));
  EXPECT_THAT(wheel_libraries("libx.so.1", root_ / "usr/lib/python3/dist-packages/spillway_train/bin/spillway", {}),
              ElementsAre(debian));
  EXPECT_THAT(wheel_libraries("libx.so.1", site / "spillway_train/bin/spillway", {root_ / "w"}),
              ElementsAre(beside, other, apart));
  EXPECT_THAT(wheel_libraries("libx.so.2", site / "spillway_train/bin/spillway", {root_ / "w"}), IsEmpty());
}

// Others may write to the folder that an archive was unpacked in.
TEST_F(WheelLibraryTest, IsNotTakenFromBesideAnArchive) {
  made("nvidia/cu13/lib/libx.so.1");
  EXPECT_THAT(wheel_libraries("libx.so.1", root_ / "spillway-1.0/bin/spillway", {}), IsEmpty());
}

TEST_F(WheelLibraryTest, MayLieAmongWhatIsNone) {
  fs::create_directories(root_ / "v/lib/python3.11/site-packages/nvidia/folder/lib/libx.so.1");
  fs::create_symlink("nowhere", root_ / "v/lib/python3.11/site-packages/nvidia/broken");
  made("v/lib/python3.11/site-packages/nvidia/file");
  made("v/lib/python3.12");
  made("v/lib/ruby/site-packages/nvidia/cu13/lib/libx.so.1");
  EXPECT_THAT(wheel_libraries("libx.so.1", "", {root_ / "v", root_ / "none", ""}), IsEmpty());
}

TEST_F(WheelLibraryTest, IsOpenedFromTheActiveEnvironment) {
  std::string why;
  ASSERT_EQ(open_library("libspillway_made.so.1", why), nullptr);
  EXPECT_NE(why.find("libspillway_made.so.1"), std::string::npos) << why;

  // One that cannot be opened comes first; the other is this process's C library by another name.
  made("v/lib/python3.11/site-packages/nvidia/a/lib/libspillway_made.so.1");
  const fs::path real = root_ / "v/lib/python3.11/site-packages/nvidia/b/lib/libspillway_made.so.1";
  fs::create_directories(real.parent_path());
  Dl_info where{};
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(&::strtol), &where), 0);
  fs::create_symlink(fs::canonical(where.dli_fname), real);
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    ::setenv(variable, (root_ / "v").c_str(), 1);
    void* const library = open_library("libspillway_made.so.1", why);
    ASSERT_NE(library, nullptr) << why;
    EXPECT_NE(::dlsym(library, "strtol"), nullptr);
    ::unsetenv(variable);
  }
}

}  // namespace
}  // namespace spillway
