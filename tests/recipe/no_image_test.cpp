#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/recipe/targets.h"

namespace lockstep::recipe {
namespace {

TEST(NoImage, ConfigsNameAllButImages) {
  EXPECT_THAT(targets().datasets.names(), ::testing::Contains("MNIST"));
  EXPECT_THAT(targets().datasets.names(), ::testing::Not(::testing::Contains("ImageFolder")));
}

}  // namespace
}  // namespace lockstep::recipe
