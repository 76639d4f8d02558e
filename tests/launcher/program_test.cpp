#include "lockstep/launcher/program.h"

#include <csignal>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::launcher {
namespace {

using testing::HasSubstr;

Program shell(const std::string& script) {
  return Program({.command = {"sh", "-c", script}, .environment = process::current_environment()});
}

process::ChildEnd wait_for_end(Program& program) {
  pollfd ended{program.process().ended_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 10'000), 1) << "it does not end";
  return program.reap();
}

std::string read_all(int fd) {
  std::string text;
  for (char byte = 0; ::read(fd, &byte, 1) == 1;) text += byte;
  return text;
}

TEST(Program, HasOutputErrorAndAnExitCode) {
  Program program = shell("echo out; echo err >&2; exit 3");
  const process::ChildEnd end = wait_for_end(program);
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_EQ(end.shell_code(), 3);
  EXPECT_EQ(to_string(end), "exit code 3");
  EXPECT_EQ(read_all(program.output_fd(0)), "out\n");
  EXPECT_EQ(read_all(program.output_fd(1)), "err\n");
}

TEST(Program, SeesItsEnvironmentAndNoInput) {
  Program program({.command = {"/bin/sh", "-c", "echo $GREETING; cat"},
                   .environment = {{"GREETING", "hello"}, {"PATH", "/bin:/usr/bin"}}});
  EXPECT_TRUE(wait_for_end(program).ok());
  EXPECT_EQ(read_all(program.output_fd(0)), "hello\n");
}

TEST(Program, GetsTheDescriptorThatIsHandedOnAndNoOther) {
  const FileDescriptor handed_on(::memfd_create("a", MFD_CLOEXEC));
  const FileDescriptor kept(::memfd_create("b", MFD_CLOEXEC));
  ASSERT_EQ(::write(handed_on.get(), "hello", 5), 5);
  Program program({.command = {"sh", "-c",
                               "head -c 5 /proc/self/fd/" + std::to_string(handed_on.get()) +
                                   "; [ -e /proc/self/fd/" + std::to_string(kept.get()) +
                                   " ] || echo ' alone'"},
                   .environment = process::current_environment(),
                   .inherited_fd = handed_on.get()});
  EXPECT_TRUE(wait_for_end(program).ok());
  EXPECT_EQ(read_all(program.output_fd(0)), "hello alone\n");
}

TEST(Program, ASignalIsTold) {
  Program program = shell("sleep 60");
  program.send(SIGTERM);
  const process::ChildEnd end = wait_for_end(program);
  EXPECT_EQ(end.signal, SIGTERM);
  EXPECT_EQ(end.shell_code(), 128 + SIGTERM);
  EXPECT_THAT(to_string(end), HasSubstr("killed by signal 15"));
}

TEST(Program, WhatCannotBeStartedIsSaidAtOnce) {
  try {
    Program program({.command = {"./no-such-program"}, .environment = {}});
    FAIL();
  } catch (const StartError& error) {
    EXPECT_THAT(error.what(), HasSubstr("./no-such-program: cannot be started: No such file"));
    EXPECT_EQ(error.shell_code(), 127);
  }
  try {
    Program program({.command = {"/etc/passwd"}, .environment = {}});
    FAIL();
  } catch (const StartError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/etc/passwd: cannot be started: Permission denied"));
    EXPECT_EQ(error.shell_code(), 126);
  }
  EXPECT_THROW(Program({.command = {}, .environment = {}}), WorkerError);
}

// A shell that ignores SIGCHLD could not find out how its children ended.
TEST(Program, StartsWithTheDefaultActionOfSigchld) {
  // It ends only after SIGCHLD is no longer ignored here; its exit status would be lost otherwise.
  const std::filesystem::path go = testing::TempDir() + "lockstep_go_" + std::to_string(::getpid());
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  Program program =
      shell("until [ -e " + go.string() + " ]; do sleep 0.01; done; grep SigIgn /proc/$$/status");
  ::signal(SIGCHLD, before);
  std::ofstream(go).close();
  EXPECT_TRUE(wait_for_end(program).ok());
  std::filesystem::remove(go);
  const std::string ignored = read_all(program.output_fd(0));
  EXPECT_EQ(std::stoull(ignored.substr(ignored.find(':') + 1), nullptr, 16) >> (SIGCHLD - 1) & 1,
            0U)
      << ignored;
}

TEST(Program, LeavesNoChildrenBehind) {
  Program program = shell("sleep 60 & echo $!; exit 0");
  EXPECT_TRUE(wait_for_end(program).ok());
  const pid_t child = std::stoi(read_all(program.output_fd(0)));
  // The killed orphan exists until init reaps it.
  for (int i = 0; i < 500 && ::kill(child, 0) == 0; ++i) ::usleep(10'000);
  EXPECT_NE(::kill(child, 0), 0);
}

}  // namespace
}  // namespace lockstep::launcher
