// Every call of base/file to the system fails once.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "tests/support/io_faults.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(IoFaults, CountAndStrikeOnlyWhatThePlanNames) {
  FolderInMemory folder, other;
  const auto write = [&] { write_file_atomically(folder / "a", "text"); };
  {
    const IoFaults faults({.files = folder.path().string(), .calls = {IoCall::kWrite}});
    write_file_atomically(other / "a", "text");
    EXPECT_TRUE(faults.seen().empty());
    write();
    std::thread(write).join();
    ASSERT_EQ(faults.seen().size(), 2u);
    EXPECT_THAT(faults.seen()[0].thing, HasSubstr(folder.path().string()));
    EXPECT_FALSE(faults.struck());
  }
  const IoFaultPlan second{.files = folder.path().string(),
                           .calls = {IoCall::kWrite},
                           .thread = std::this_thread::get_id(),
                           .nth = 2,
                           .fault = {.error = ENOSPC}};
  {
    const IoFaults faults(second);
    std::thread(write).join();
    write();
    EXPECT_FALSE(faults.struck()) << "the other thread's call does not count";
    EXPECT_THROW(write(), Error);
    EXPECT_TRUE(faults.struck());
    EXPECT_NO_THROW(write()) << "a fault strikes once";
  }
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(write()) << "without a plan nothing fails";
}

TEST(IoFaults, ATornCallTransfersAPart) {
  FolderInMemory folder;
  write_file_atomically(folder / "a", "0123456789");
  const IoFaults faults({.files = folder.path().string(),
                         .calls = {IoCall::kRead},
                         .nth = 1,
                         .fault = {.torn = true}});
  EXPECT_EQ(read_file(folder / "a"), "0123456789");
  EXPECT_EQ(faults.seen().size(), 3u) << "one byte, the rest, the end";
}

// The parameter is what the file system lacks.
enum class Lacks { kNothing, kUnnamedFiles, kLinks };

class FileFaults : public ::testing::TestWithParam<Lacks> {
 protected:
  IoFaultPlan plan() const {
    return {.files = folder_.path().string(),
            .always = GetParam() == Lacks::kLinks ? std::map<IoCall, int>{{IoCall::kLink, EPERM}}
                                                  : std::map<IoCall, int>{},
            .no_unnamed_files = GetParam() == Lacks::kUnnamedFiles};
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      found.push_back(entry.path().filename().string());
    }
    return found;
  }

  // An error names the file and says why.
  static void expect_named(const FaultedRun& run, const fs::path& path) {
    EXPECT_THAT(run.error, HasSubstr(path.string()));
    EXPECT_THAT(run.error, HasSubstr(std::strerror(run.fault.error)));
  }

  FolderInMemory folder_;
  const fs::path file_ = folder_ / "file";
};

INSTANTIATE_TEST_SUITE_P(OnFileSystems, FileFaults,
                         ::testing::Values(Lacks::kNothing, Lacks::kUnnamedFiles, Lacks::kLinks));

TEST_P(FileFaults, AFileIsReplacedWholeOrNotAtAll) {
  const std::string earlier = "earlier", later(100'000, 'x');
  const auto runs =
      fail_each_call({.plan = plan(),
                      .prepare = [&] { write_file_atomically(file_, earlier); },
                      .operation =
                          [&] {
                            write_file_atomically(file_, [&](const WriteBytes& write) {
                              write(std::string_view(later).substr(0, 10));
                              write(std::string_view(later).substr(10));
                            });
                          },
                      .check =
                          [&](const FaultedRun& run) {
                            ASSERT_TRUE(run.struck);
                            EXPECT_THAT(names(), ElementsAre("file"));
                            const std::string content = read_file(file_);
                            if (run.error.empty()) {
                              EXPECT_TRUE(content == later) << "success without the new content";
                            } else {
                              EXPECT_FALSE(run.is_harmless()) << run.error;
                              EXPECT_EQ(content, earlier);
                              expect_named(run, file_);
                            }
                            EXPECT_NO_THROW(write_file_atomically(file_, later));
                          }});
  EXPECT_GE(runs, 15);
}

TEST_P(FileFaults, ANewFileIsThereWholeOrNotAtAll) {
  fail_each_call({.plan = plan(),
                  .prepare = [&] { fs::remove(file_); },
                  .operation = [&] { write_file_atomically(file_, "text"); },
                  .check =
                      [&](const FaultedRun& run) {
                        ASSERT_TRUE(run.struck);
                        if (run.error.empty()) {
                          EXPECT_THAT(names(), ElementsAre("file"));
                          EXPECT_EQ(read_file(file_), "text");
                        } else {
                          EXPECT_FALSE(run.is_harmless()) << run.error;
                          EXPECT_THAT(names(), ElementsAre());
                          expect_named(run, file_);
                        }
                      }});
}

TEST_P(FileFaults, ALinkIsReplacedWholeOrNotAtAll) {
  const fs::path link = folder_ / "link";
  fail_each_call({.plan = plan(),
                  .prepare =
                      [&] {
                        write_file_atomically(file_, "new");
                        write_file_atomically(link, "old");
                      },
                  .operation = [&] { link_file_atomically(file_, link); },
                  .check =
                      [&](const FaultedRun& run) {
                        ASSERT_TRUE(run.struck);
                        EXPECT_THAT(names(), UnorderedElementsAre("file", "link"));
                        EXPECT_EQ(read_file(link), run.error.empty() ? "new" : "old");
                        if (!run.error.empty()) {
                          EXPECT_FALSE(run.is_harmless()) << run.error;
                          expect_named(run, folder_.path());
                        }
                        EXPECT_NO_THROW(link_file_atomically(file_, link));
                        EXPECT_EQ(read_file(link), "new");
                      }});
}

TEST_P(FileFaults, AReadGivesAllBytesOrAnError) {
  const std::string content(10'000, 'c');
  write_file_atomically(file_, content);
  std::string found;
  fail_each_call({.plan = plan(),
                  .prepare = [&] { found = ""; },
                  .operation = [&] { found = read_file(file_); },
                  .check =
                      [&](const FaultedRun& run) {
                        ASSERT_TRUE(run.struck);
                        if (run.error.empty()) {
                          EXPECT_TRUE(found == content);
                        } else {
                          EXPECT_FALSE(run.is_harmless()) << run.error;
                          expect_named(run, file_);
                        }
                      }});
}

TEST_P(FileFaults, AFolderThatCannotBeMadeIsNamed) {
  fail_each_call({.plan = plan(),
                  .prepare = [&] { fs::remove_all(folder_ / "a"); },
                  .operation = [&] { make_directories(folder_ / "a" / "b"); },
                  .check = [&](const FaultedRun& run) { expect_named(run, folder_ / "a"); }});
}

}  // namespace
}  // namespace lockstep
