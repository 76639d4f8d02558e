#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/engine/devices.h"
#include "tests/command/support.h"

namespace lockstep::command {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_command;

TEST(Doctor, LooksAtEverythingThatMatters) {
  const auto ran = run_command({"doctor"});
  EXPECT_THAT(ran.output, AllOf(HasSubstr("BLAS"), HasSubstr("cores"), HasSubstr("instructions"),
                                HasSubstr("loopback"), HasSubstr("host name"), HasSubstr("GPUs"),
                                HasSubstr("/dev/shm")));
  EXPECT_THAT(ran.output, AllOf(HasSubstr("process groups: gloo"),
                                HasSubstr(torch_has_cuda() ? ", CUDA " : ", without CUDA, ")));
  EXPECT_THAT(ran.output, HasSubstr("two workers      all-reduce of 4 bytes"));
  EXPECT_EQ(ran.code == kDone, ran.output.find("BAD ") == std::string::npos) << ran.output;
}

}  // namespace
}  // namespace lockstep::command
