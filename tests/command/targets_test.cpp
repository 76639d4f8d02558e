#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/command/support.h"

namespace lockstep::command {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_command;

TEST(Targets, AllOneKindOneTargetOrTheConfigItself) {
  EXPECT_THAT(run_command({"targets"}).output,
              AllOf(HasSubstr("optimizer:\n"), HasSubstr("Conv3d"), HasSubstr("FashionMNIST")));
  EXPECT_THAT(
      run_command({"targets", "optimizer"}).output,
      AllOf(HasSubstr("AdamW (optimizer)"), HasSubstr("nesterov"), Not(HasSubstr("Conv3d"))));
  EXPECT_THAT(run_command({"targets", "Adam"}).output,
              AllOf(HasSubstr("lr "), HasSubstr("(default: 0.001)")));
  EXPECT_THAT(run_command({"targets", "Linear"}).output, HasSubstr("(required)"));
  EXPECT_THAT(run_command({"targets", "run"}).output,
              AllOf(HasSubstr("num_epochs"), HasSubstr("stages")));
  EXPECT_THAT(run_command({"targets", "loader"}).output, HasSubstr("batch_size"));
  const auto unknown = run_command({"targets", "Adan"});
  EXPECT_EQ(unknown.code, kBadUsage);
  EXPECT_THAT(unknown.errors, HasSubstr("did you mean 'Adam'"));
}

}  // namespace
}  // namespace lockstep::command
