// tests/command/create.sh checks that a project builds, trains and passes its test.
#include "lockstep/command/project.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::command {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Project, EveryFileIsThereAndFilledIn) {
  const TemporaryDirectory folder;
  const auto project = create_project({.name = "My-Net",
                                       .with_backend = true,
                                       .parent = folder.path(),
                                       .package = "/opt/lockstep"});
  EXPECT_EQ(project, folder / "my-net");
  for (const char* const name :
       {"CMakeLists.txt", "Makefile", "README.md", "config.yml", "main.cpp", "my-net.h",
        "backend.h", "data/README.md", "tests/two_ranks.sh", ".gitignore"}) {
    ASSERT_TRUE(fs::exists(project / name)) << name;
    EXPECT_THAT(read_file(project / name), Not(::testing::ContainsRegex("@[A-Z_]+@"))) << name;
  }
  EXPECT_THAT(read_file(project / "my-net.h"), HasSubstr("namespace my_net {"));
  EXPECT_THAT(read_file(project / "my-net.h"), HasSubstr("\"MyNetNet\""));
  EXPECT_THAT(read_file(project / "Makefile"), HasSubstr("/opt/lockstep"));
  EXPECT_NE(fs::status(project / "tests/two_ranks.sh").permissions() & fs::perms::owner_exec,
            fs::perms::none);
}

TEST(Project, TheBackendIsThereIfWanted) {
  const TemporaryDirectory folder;
  const auto project =
      create_project({.name = "plain", .parent = folder.path(), .package = "/opt"});
  EXPECT_FALSE(fs::exists(project / "backend.h"));
  EXPECT_THAT(read_file(project / "plain.h"), Not(HasSubstr("backend")));
  EXPECT_THAT(read_file(project / "plain.h"), HasSubstr("\"PlainData\""));
}

TEST(Project, NothingIsOverwrittenAndNamesAreChecked) {
  const TemporaryDirectory folder;
  fs::create_directory(folder / "taken");
  const auto create = [&](const std::string& name) {
    create_project({.name = name, .parent = folder.path(), .package = "/opt"});
  };
  EXPECT_THROW(create("Taken"), ConfigError);
  for (const char* const name : {"", "3d", "a/b", "../up", "a b", "-n", "test", "Test", "namespace",
                                 "Int", "backend", "c10"}) {
    EXPECT_THROW(create(name), ConfigError) << name;
  }
  EXPECT_THROW(create(std::string(65, 'a')), ConfigError);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1)
      << "files were left in the folder";
}

}  // namespace
}  // namespace lockstep::command
