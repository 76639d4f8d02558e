#include "lockstep/compute/switches.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::compute {
namespace {

TEST(Switches, EverythingIsOnAndCanBeOffForAWhile) {
  for (const auto speedup :
       {Speedup::kPlan, Speedup::kPatches, Speedup::kPool, Speedup::kMemory, Speedup::kDenormals}) {
    EXPECT_TRUE(is_enabled(speedup));
  }
  {
    const WithoutSpeedup outer(Speedup::kPlan);
    EXPECT_FALSE(is_enabled(Speedup::kPlan));
    EXPECT_TRUE(is_enabled(Speedup::kPool));
    {
      const WithoutSpeedup inner(Speedup::kPool);
      EXPECT_FALSE(is_enabled(Speedup::kPlan));
      EXPECT_FALSE(is_enabled(Speedup::kPool));
    }
    EXPECT_FALSE(is_enabled(Speedup::kPlan));
    EXPECT_TRUE(is_enabled(Speedup::kPool));
  }
  EXPECT_TRUE(is_enabled(Speedup::kPlan));
}

// Must be called in a separate process, because the environment is read only once.
int exit_code_with(const char* value) {
  ::setenv("LOCKSTEP_DISABLE", value, 1);
  try {
    return (is_enabled(Speedup::kPlan) ? 1 : 0) + (is_enabled(Speedup::kPool) ? 2 : 0) +
           (is_enabled(Speedup::kMemory) ? 4 : 0) + (is_enabled(Speedup::kDenormals) ? 8 : 0);
  } catch (const ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 99;
  }
}

TEST(SwitchesDeathTest, TheEnvironmentTurnsThemOff) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(std::exit(exit_code_with("")), ::testing::ExitedWithCode(15), "");
  EXPECT_EXIT(std::exit(exit_code_with("plan")), ::testing::ExitedWithCode(14), "");
  EXPECT_EXIT(std::exit(exit_code_with("pool,denormals")), ::testing::ExitedWithCode(5), "");
}

TEST(SwitchesDeathTest, AnUnknownNameIsRefused) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(std::exit(exit_code_with("plan,pol")), ::testing::ExitedWithCode(99),
              "LOCKSTEP_DISABLE: unknown 'pol'; did you mean 'pool'");
}

}  // namespace
}  // namespace lockstep::compute
