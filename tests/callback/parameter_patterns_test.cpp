#include "lockstep/callback/parameter_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(ParameterPatterns, OneOfThemMustMatch) {
  EXPECT_TRUE(matches_any({"4.*", "0.weight"}, "0.weight"));
  EXPECT_FALSE(matches_any({"4.*", "0.weight"}, "0.bias"));
  EXPECT_FALSE(matches_any({}, "0.bias"));
}

TEST(ParameterPatterns, APatternWithoutAParameterIsRefused) {
  State state;
  state.model = toy::model();
  check_parameter_patterns({"0.*", "4.bias"}, state, "MyCallback");
  EXPECT_THAT(
      toy::error_of([&] { check_parameter_patterns({"4.biass"}, state, "MyCallback"); }),
      HasSubstr("MyCallback: names: '4.biass' matches no parameter; did you mean '4.bias'?"));
}

}  // namespace
}  // namespace lockstep
