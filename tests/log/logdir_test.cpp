#include "lockstep/log/logdir.h"

#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void leave_a_run(const fs::path& logdir, const std::string& mark) {
  make_directories(logdir / "logs");
  make_directories(logdir / "checkpoints");
  write_file_atomically(logdir / "logs/train.csv", mark);
  write_file_atomically(logdir / "summary.json", mark);
}

TEST(Logdir, IsCreatedWithItsParents) {
  TemporaryDirectory folder;
  const LogDirectory logdir = prepare_logdir(folder / "a/b");
  EXPECT_EQ(logdir.path, folder / "a/b");
  EXPECT_TRUE(fs::is_directory(folder / "a/b"));
  EXPECT_FALSE(logdir.moved_to.has_value());
}

TEST(Logdir, AFreshRunMovesAnEarlierOneAside) {
  TemporaryDirectory folder;
  leave_a_run(folder.path(), "first");
  write_file_atomically(folder / "notes.txt", "mine");
  EXPECT_EQ(prepare_logdir(folder.path()).moved_to, folder / "previous/1");
  EXPECT_EQ(read_file(folder / "previous/1/logs/train.csv"), "first");
  EXPECT_EQ(read_file(folder / "previous/1/summary.json"), "first");
  EXPECT_TRUE(fs::is_directory(folder / "previous/1/checkpoints"));
  EXPECT_FALSE(fs::exists(folder / "logs"));
  EXPECT_FALSE(fs::exists(folder / "summary.json"));
  EXPECT_EQ(read_file(folder / "notes.txt"), "mine");

  leave_a_run(folder.path(), "second");
  EXPECT_EQ(prepare_logdir(folder.path()).moved_to, folder / "previous/2");
  EXPECT_EQ(read_file(folder / "previous/1/logs/train.csv"), "first");
  EXPECT_EQ(read_file(folder / "previous/2/logs/train.csv"), "second");
}

TEST(Logdir, OfARunThatIsGoingOnIsLeftAlone) {
  TemporaryDirectory folder;
  const LogDirectory running = prepare_logdir(folder.path());
  leave_a_run(folder.path(), "running");
  for (const bool resume : {false, true}) {
    try {
      prepare_logdir(folder.path(), {.resume = resume});
      FAIL() << "two runs in one folder";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("in use by process " + std::to_string(::getpid())));
    }
  }
  EXPECT_EQ(read_file(folder / "summary.json"), "running");
  EXPECT_FALSE(fs::exists(folder / "previous"));
}

// A summary belongs to a run that has ended. If the resumed run fails, there must be none.
TEST(Logdir, AResumedRunHasNoSummaryUntilItEnds) {
  TemporaryDirectory folder;
  leave_a_run(folder.path(), "first");
  EXPECT_FALSE(prepare_logdir(folder.path(), {.resume = true}).moved_to.has_value());
  EXPECT_FALSE(fs::exists(folder / "summary.json"));
  EXPECT_EQ(read_file(folder / "logs/train.csv"), "first");
}

// Temporary files of a writer that was killed just before it renamed them.
TEST(Logdir, AbandonedWritesAreNotMovedAlong) {
  TemporaryDirectory folder;
  leave_a_run(folder.path(), "killed");
  for (const char* const name : {"summary.json", "checkpoints/last.pth", "logs/train.csv"}) {
    write_file_atomically(folder / (std::string(name) + ".tmp.123.456"), std::string_view("half"));
  }
  prepare_logdir(folder.path());
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path().string().find(".tmp."), std::string::npos) << entry.path();
  }
}

TEST(Logdir, NumbersGoOnAboveTheHighest) {
  TemporaryDirectory folder;
  make_directories(folder / "previous/9");
  leave_a_run(folder.path(), "x");
  EXPECT_EQ(prepare_logdir(folder.path()).moved_to, folder / "previous/10");
}

TEST(Logdir, AResumedRunFindsEverythingInPlace) {
  TemporaryDirectory folder;
  leave_a_run(folder.path(), "first");
  EXPECT_FALSE(prepare_logdir(folder.path(), {.resume = true}).moved_to.has_value());
  EXPECT_EQ(read_file(folder / "logs/train.csv"), "first");
}

TEST(Logdir, ForeignFilesAloneMoveNothing) {
  TemporaryDirectory folder;
  write_file_atomically(folder / "notes.txt", "mine");
  EXPECT_FALSE(prepare_logdir(folder.path()).moved_to.has_value());
  EXPECT_FALSE(fs::exists(folder / "previous"));
}

std::string failure(const fs::path& path) {
  try {
    prepare_logdir(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Logdir, AFileInItsPlaceIsNamed) {
  TemporaryDirectory folder;
  write_file_atomically(folder / "logs", "a file");
  EXPECT_THAT(failure(folder / "logs"), HasSubstr((folder / "logs").string()));
  EXPECT_EQ(read_file(folder / "logs"), "a file");
  EXPECT_THAT(failure(folder / "logs/below"), HasSubstr((folder / "logs/below").string()));
}

TEST(Logdir, AFolderThatCannotBeWrittenIsNamed) {
  TemporaryDirectory folder;
  make_directories(folder / "run");
  ASSERT_EQ(::chmod((folder / "run").c_str(), 0555), 0);
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  // Root may write anywhere, so the test tries as another user.
  EXPECT_EXIT(
      {
        if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
        const std::string message = failure(folder / "run");
        std::fputs(message.c_str(), stderr);
        ::_exit(message.empty() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "run: cannot be the log folder: not writable");
}

}  // namespace
}  // namespace lockstep
