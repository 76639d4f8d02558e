#include "lockstep/science/fft.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/science/support.h"

namespace lockstep::science {
namespace {

TEST(Fft, ThereAndBack) {
  for (const auto& shape : testing::kShapes) {
    const torch::Tensor field = testing::field(shape, 4);
    EXPECT_TRUE(torch::allclose(irfftn(rfftn(field), field.sizes()), field, 1e-12, 1e-12));
  }
}

TEST(Fft, AWaveIsOneMode) {
  const torch::Tensor x = torch::arange(16, torch::kFloat64);
  const torch::Tensor modes = rfftn(torch::cos(2 * M_PI * 3 * x / 16)).abs();
  EXPECT_NEAR(modes[3].item<double>(), 8, 1e-9);
  EXPECT_NEAR(modes.sum().item<double>(), 8, 1e-9);
}

TEST(Fft, WaveNumbersAreNumPys) {
  EXPECT_TRUE(wave_numbers({5, 4}, {1, 1})
                  .select(1, 0)
                  .equal(torch::tensor({0., 1., 2., 2., 1.}, torch::kFloat64)));
  EXPECT_TRUE(wave_numbers({6}).equal(torch::tensor({0., 1., 2., 3.}, torch::kFloat64)));
}

TEST(Fft, WaveNumbersCountWavesInTheShortestSide) {
  EXPECT_TRUE(wave_numbers({4, 8}).select(0, 0).equal(
      torch::tensor({0., 0.5, 1., 1.5, 2.}, torch::kFloat64)));
  EXPECT_TRUE(wave_numbers({4, 8}, {2, 2})
                  .select(0, 0)
                  .equal(torch::tensor({0., 1., 2., 3., 4.}, torch::kFloat64)));
}

TEST(Fft, RefusesOtherShapes) {
  EXPECT_THROW(rfftn(torch::ones({2, 2, 2, 2})), DataError);
  EXPECT_THROW(rfftn(torch::ones({0})), DataError);
  EXPECT_THROW(irfftn(rfftn(torch::ones({8})), {12}), DataError);
}

}  // namespace
}  // namespace lockstep::science
