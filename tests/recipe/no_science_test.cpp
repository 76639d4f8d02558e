#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/recipe/targets.h"

namespace lockstep::recipe {
namespace {

TEST(NoScience, ConfigsNameAllButFields) {
  EXPECT_THAT(targets().datasets.names(), ::testing::Contains("MNIST"));
  EXPECT_THAT(targets().datasets.names(),
              ::testing::Not(::testing::Contains(::testing::HasSubstr("HDF5"))));
}

}  // namespace
}  // namespace lockstep::recipe
