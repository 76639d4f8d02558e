#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/recipe/prediction_file.h"
#include "lockstep/recipe/targets.h"

namespace lockstep::recipe {
namespace {

TEST(NoScience, ConfigsNameAllButFields) {
  EXPECT_THAT(targets().datasets.names(), ::testing::Contains("MNIST"));
  EXPECT_THAT(targets().datasets.names(),
              ::testing::Not(::testing::Contains(::testing::HasSubstr("HDF5"))));
}

TEST(NoScience, PredictionsInHdf5AreRefused) {
  EXPECT_THAT([] { hdf5_format("x.h5"); },
              ::testing::ThrowsMessage<ConfigError>(::testing::AllOf(
                  ::testing::HasSubstr("x.h5"), ::testing::HasSubstr("write .npy or .csv"))));
}

}  // namespace
}  // namespace lockstep::recipe
