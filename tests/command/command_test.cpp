#include "lockstep/command/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/command/support.h"

namespace lockstep::command {
namespace {

using ::testing::HasSubstr;
using testing::run_command;

TEST(Command, HelpIsEverywhereAndHasExamples) {
  EXPECT_THAT(run_command({"--help"}).output, HasSubstr("Examples:"));
  for (const char* const name :
       {"run", "launch", "create", "targets", "inspect", "swa", "doctor", "completion"}) {
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

}  // namespace
}  // namespace lockstep::command
