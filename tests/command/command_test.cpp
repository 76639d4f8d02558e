#include "lockstep/command/command.h"

#include <iostream>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "tests/command/support.h"

namespace lockstep::command {
namespace {

using ::testing::HasSubstr;
using testing::run_command;

TEST(Command, HelpIsEverywhereAndHasExamples) {
  EXPECT_THAT(run_command({"--help"}).output, HasSubstr("Examples:"));
  for (const char* const name : {"run", "evaluate", "predict", "launch", "create", "targets",
                                 "inspect", "swa", "doctor", "completion"}) {
    const auto ran = run_command({name, "--help"});
    EXPECT_EQ(ran.code, kDone) << name;
    EXPECT_THAT(ran.output, HasSubstr("Examples:")) << name;
  }
}

TEST(Command, TellsItsVersion) {
  const auto ran = run_command({"--version"});
  EXPECT_EQ(ran.code, kDone);
  EXPECT_THAT(ran.output, HasSubstr("lockstep "));
}

TEST(Command, AShortOptionTakesAnEqualsSign) {
  const auto ran = run_command({"run", "-C=/nowhere/config.yml", "--distributed"});
  EXPECT_EQ(ran.code, kBadUsage);
  EXPECT_THAT(ran.errors, HasSubstr(" /nowhere/config.yml"));
}

TEST(Command, WrongUsageIsCodeTwo) {
  EXPECT_EQ(run_command({}).code, kBadUsage);
  EXPECT_EQ(run_command({"train"}).code, kBadUsage);
  EXPECT_THAT(run_command({"lunch"}).errors,
              HasSubstr("unknown command 'lunch'; did you mean 'launch'?"));
  EXPECT_EQ(run_command({"run"}).code, kBadUsage);
  EXPECT_EQ(run_command({"run", "-C", "nowhere.yml"}).code, kBadUsage);
}

TEST(Command, AProgramsOwnCommandsAreListedAndRun) {
  std::vector<std::string> seen;
  const std::vector<OwnCommand> own = {
      {.name = "train", .about = "Train it all", .run = [&](int argc, char** argv) {
         seen.assign(argv, argv + argc);
         return 7;
       }}};
  const auto run = [&](std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = command_main(static_cast<int>(arguments.size()), arguments.data(), own);
    const std::string errors = ::testing::internal::GetCapturedStderr();
    return std::pair(code, ::testing::internal::GetCapturedStdout() + errors);
  };
  const auto [help_code, help] = run({"mine", "--help"});
  EXPECT_EQ(help_code, 0);
  EXPECT_THAT(help, ::testing::ContainsRegex("train +Train it all"));
  EXPECT_EQ(run({"mine", "train", "--field", "x.h5"}).first, 7);
  EXPECT_THAT(seen, ::testing::ElementsAre("train", "--field", "x.h5"));
  EXPECT_THAT(run({"mine", "trian"}).second, ::testing::HasSubstr("did you mean 'train'?"));
  const std::vector<OwnCommand> taken = {{.name = "run", .about = "", .run = {}}};
  std::string program = "mine";
  char* argv[] = {program.data()};
  EXPECT_THROW(command_main(1, argv, taken), ConfigError);
}

// As `lockstep targets > /dev/full`: every write fails as on a full disk.
TEST(Command, OutputThatCannotBeWrittenIsAFailure) {
  for (const char* const word : {"targets", "--help"}) {
    const pid_t child = ::fork();
    if (child == 0) {
      const int full = ::open("/dev/full", O_WRONLY), null = ::open("/dev/null", O_WRONLY);
      ::dup2(full, STDOUT_FILENO);
      ::dup2(null, STDERR_FILENO);
      std::string program = "lockstep", argument = word;
      char* arguments[] = {program.data(), argument.data(), nullptr};
      ::_exit(command_main(2, arguments));
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), kFailed) << word;
  }
}

// The results of a run are in its files, so it has not failed if its output cannot be written.
TEST(Command, ALaunchWhoseConsoleBrokeKeepsItsExitCode) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int full = ::open("/dev/full", O_WRONLY), null = ::open("/dev/null", O_WRONLY);
    ::dup2(full, STDOUT_FILENO);
    ::dup2(null, STDERR_FILENO);
    std::cout << "progress that is lost";
    std::vector<std::string> words = {"lockstep", "launch", "--nproc-per-node", "1", "true"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::_exit(command_main(static_cast<int>(words.size()), arguments.data()));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kDone);
}

}  // namespace
}  // namespace lockstep::command
