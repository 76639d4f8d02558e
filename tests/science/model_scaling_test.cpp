#include "lockstep/science/model_scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/science/prepared_fields.h"

namespace lockstep::science {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ModelScaling, SamplesWithAnotherOneAreRefused) {
  const data::DatasetPtr raw =
      std::make_shared<data::TensorDataset>(torch::ones({4, 1, 2}), torch::ones({4, 1, 2}));
  const data::ChannelScaling one{
      .kind = data::Normalization::kStandard, .shift = {1}, .scale = {2}};
  const data::Scaling scaling{.features = one, .targets = one};
  const data::Loader scaled(prepared(raw, {.scaling = scaling}), {.batch_size = 2});
  EXPECT_NO_THROW(check_scaling({.name = "net", .scaling = scaling}, scaled));
  EXPECT_NO_THROW(check_scaling({.name = "net", .scaling = {}}, data::Loader(raw)));
  try {
    check_scaling({.name = "net", .scaling = scaling}, data::Loader(raw));
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("net: expected samples with the scaling"),
                                    HasSubstr("shift [1] scale [2]"), HasSubstr("(none)")));
  }
  data::Scaling other = scaling;
  other.features.shift = {3};
  EXPECT_THROW(check_scaling({.name = "net", .scaling = other}, scaled), DataError);
}

}  // namespace
}  // namespace lockstep::science
