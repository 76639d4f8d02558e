#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "tests/command/support.h"

namespace lockstep::command {
namespace {

using ::testing::HasSubstr;
using testing::run_command;

TEST(Create, RefusesWhatProjectRefuses) {
  const auto ran = run_command({"create", "-n", "3d"});
  EXPECT_EQ(ran.code, kBadUsage);
  EXPECT_THAT(ran.errors, HasSubstr("name: expected letters, digits"));
  EXPECT_EQ(run_command({"create"}).code, kBadUsage);
}

}  // namespace
}  // namespace lockstep::command
