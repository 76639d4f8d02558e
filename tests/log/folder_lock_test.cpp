#include "lockstep/log/folder_lock.h"

#include <csignal>
#include <fstream>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(FolderLock, TheErrorOfTheSecondNamesTheProcessThatHoldsIt) {
  const TemporaryDirectory folder;
  const FolderLock lock(folder.path());
  EXPECT_THAT(
      [&] { FolderLock again(folder.path()); },
      ThrowsMessage<Error>(AllOf(HasSubstr(folder.path().string()), HasSubstr("in use by process"),
                                 HasSubstr(std::to_string(::getpid())), HasSubstr("since 20"))));
}

TEST(FolderLock, EndsWithItsOwnerAndLeavesNothing) {
  const TemporaryDirectory folder;
  { const FolderLock lock(folder.path()); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_NO_THROW(FolderLock(folder.path()));
}

TEST(FolderLock, AKilledProcessHasItNoLonger) {
  const TemporaryDirectory folder;
  int taken[2];
  ASSERT_EQ(::pipe(taken), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder.path());
    if (::write(taken[1], "x", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(taken[0], &byte, 1), 1);
  EXPECT_THAT([&] { FolderLock lock(folder.path()); },
              ThrowsMessage<Error>(HasSubstr("process " + std::to_string(child))));
  ::kill(child, SIGKILL);
  // The test does not wait for the process, which may still be dying.
  EXPECT_NO_THROW(FolderLock(folder.path()));
  ::waitpid(child, nullptr, 0);
  ::close(taken[0]);
  ::close(taken[1]);
}

// A run of another user was killed, and its lock file is still there.
TEST(FolderLock, AStaleLockOfAnotherUserIsNoObstacle) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  const TemporaryDirectory folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  std::ofstream(folder / ".lock") << "process 1 on elsewhere";
  std::filesystem::permissions(folder / ".lock", std::filesystem::perms(0644));
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::setuid(kNobody) != 0) ::_exit(2);
    try {
      const FolderLock lock(folder.path());
    } catch (const Error&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(FolderLock, AForkedChildTakesNothingAway) {
  const TemporaryDirectory folder;
  auto lock = std::make_unique<FolderLock>(folder.path());
  const pid_t child = ::fork();
  if (child == 0) {
    lock.reset();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_THROW(FolderLock(folder.path()), Error);
}

// Another user may have written the text of the lock.
TEST(FolderLock, WhatItSaysIsMadePrintable) {
  const TemporaryDirectory folder;
  const FolderLock lock(folder.path());
  FileDescriptor fd(::open((folder / ".lock").c_str(), O_WRONLY | O_TRUNC));
  ASSERT_EQ(::write(fd.get(), "\x1b[2J", 4), 4);
  EXPECT_THAT([&] { FolderLock again(folder.path()); },
              ThrowsMessage<Error>(HasSubstr("\\x1b[2J")));
}

}  // namespace
}  // namespace lockstep
