#include "lockstep/science/filters.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/science/support.h"

namespace lockstep::science {
namespace {

TEST(Filters, AreNumPysAndSciPys) {
  const auto golden = testing::golden();
  for (const auto& shape : testing::kShapes) {
    const std::string key = std::to_string(shape.size());
    const torch::Tensor field = testing::field(shape, 1);
    const BoxLengths equal(shape.size(), 1.0);  // as in NumPy's script
    testing::expect_near(spectral_filter(field, 3, equal), golden["spectral"][key]);
    testing::expect_near(box_filter(field, 3), golden["box"][key]["3"]);
    testing::expect_near(box_filter(field, 4), golden["box"][key]["4"]);
    testing::expect_near(gaussian_filter(field, 0.8), golden["gaussian"][key]);
  }
}

TEST(Filters, KeepTheMean) {
  const torch::Tensor field = testing::field({12, 10, 8}, 2);
  for (const auto& filtered :
       {spectral_filter(field, 0), box_filter(field, 5), gaussian_filter(field, 2)}) {
    EXPECT_NEAR(filtered.mean().item<double>(), field.mean().item<double>(), 1e-9);
    EXPECT_LT(filtered.std().item<double>(), field.std().item<double>());
  }
  EXPECT_TRUE(torch::allclose(box_filter(field, 1), field));
}

TEST(Filters, RefuseWhatMakesNoSense) {
  EXPECT_THROW(box_filter(torch::ones({4}), 0), ConfigError);
  EXPECT_THROW(gaussian_filter(torch::ones({4}), 0), ConfigError);
  EXPECT_THROW(spectral_filter(torch::ones({4}), -1), ConfigError);
  EXPECT_THROW(box_filter(torch::ones({2, 2, 2, 2}), 1), DataError);
}

}  // namespace
}  // namespace lockstep::science
