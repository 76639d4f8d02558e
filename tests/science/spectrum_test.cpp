#include "lockstep/science/spectrum.h"

#include <numeric>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/science/picae.h"
#include "tests/science/support.h"

namespace lockstep::science {
namespace {

TEST(Spectrum, IsNumPys) {
  const auto golden = testing::golden();
  for (const auto& shape : testing::kShapes) {
    // NumPy's script assumes sides of equal length.
    const BoxLengths equal(shape.size(), 1.0);
    testing::expect_near(power_spectrum(testing::field(shape, 1).unsqueeze(0), equal).energy,
                         golden["spectrum"][std::to_string(shape.size())]);
  }
  testing::expect_near(power_spectrum(testing::velocity()).energy, golden["vector_spectrum"]);
}

TEST(Spectrum, OfAWaveIsItsEnergy) {
  const torch::Tensor x = torch::arange(32, torch::kFloat64) / 32;
  const Spectrum spectrum = power_spectrum(3 * torch::sin(2 * M_PI * 5 * x).unsqueeze(0));
  EXPECT_NEAR(spectrum.energy[4], 0.5 * 9.0 / 2, 1e-9);
  EXPECT_NEAR(std::accumulate(spectrum.energy.begin(), spectrum.energy.end(), 0.0), 0.5 * 9.0 / 2,
              1e-9);
}

// A field with `waves` waves along one axis of a box. Its energy is 1/4.
torch::Tensor wave_along(const std::vector<std::int64_t>& shape, std::size_t axis, double waves) {
  std::vector<std::int64_t> view(shape.size(), 1);
  view[axis] = shape[axis];
  const torch::Tensor x =
      torch::arange(shape[axis], torch::kFloat64) / static_cast<double>(shape[axis]);
  return torch::sin(2 * M_PI * waves * x).reshape(view).expand(shape);
}

// The same wavelength in all directions: 8 waves in a side of 32 points, 16 in one of 64.
TEST(Spectrum, OfABoxThatIsNoCubeIsByLengths) {
  const std::vector<std::int64_t> shape = {32, 32, 64};
  const torch::Tensor field =
      torch::stack({wave_along(shape, 0, 8), wave_along(shape, 1, 8), wave_along(shape, 2, 16)});
  const Spectrum spectrum = power_spectrum(field);
  ASSERT_EQ(spectrum.wave_number.size(), 16u) << "up to the Nyquist wave number";
  for (std::size_t i = 0; i < spectrum.energy.size(); ++i) {
    EXPECT_NEAR(spectrum.energy[i], spectrum.wave_number[i] == 8 ? 0.75 : 0, 1e-12) << i + 1;
  }
}

TEST(Spectrum, OfGivenLengths) {
  const std::vector<std::int64_t> shape = {32, 32, 64};
  const torch::Tensor field = wave_along(shape, 2, 8).unsqueeze(0);
  EXPECT_NEAR(power_spectrum(field).energy[3], 0.25, 1e-12) << "4 waves in half the side";
  EXPECT_NEAR(power_spectrum(field, {6.28, 6.28, 6.28}).energy[7], 0.25, 1e-12);
  EXPECT_THROW(power_spectrum(field, {1, 1}), ConfigError);
  EXPECT_THROW(power_spectrum(field, {1, 1, 0}), ConfigError);
}

TEST(Spectrum, NoEnergyIsLostInALongBox) {
  const std::vector<std::int64_t> shape = {8, 8, 64};
  const torch::Tensor field = (wave_along(shape, 2, 1) + wave_along(shape, 2, 3)).unsqueeze(0);
  const Spectrum spectrum = power_spectrum(field);
  EXPECT_NEAR(spectrum.energy[0], 0.5, 1e-12) << "waves longer than the shortest side";
}

// A cube cut out of a smooth field is not periodic. Without a window it would seem to have energy
// at all scales.
TEST(Spectrum, AWindowKeepsTheEdgesOfAPartFromSpilling) {
  const torch::Tensor x = torch::arange(32, torch::kFloat64) / 32;
  const torch::Tensor part = torch::sin(2 * M_PI * 2.5 * x).unsqueeze(0);
  const Spectrum plain = power_spectrum(part), windowed = windowed_spectrum(part);
  EXPECT_GT(plain.energy[11], 100 * windowed.energy[11]);
  const auto sum = [](const Spectrum& s) {
    return std::accumulate(s.energy.begin(), s.energy.end(), 0.0);
  };
  EXPECT_NEAR(sum(windowed), 0.25, 0.05) << "the energy stays about the same";
}

TEST(Spectrum, RefusesWhatIsNoField) {
  EXPECT_THROW(power_spectrum(torch::ones({8})), DataError);
}

TEST(Spectrum, TheLineFallsByFiveThirds) {
  const Spectrum spectrum{.wave_number = {1, 2, 4, 8}, .energy = {9, 5, 2, 1}};
  const auto line = kolmogorov_line(spectrum);
  EXPECT_DOUBLE_EQ(line[2], 2);
  EXPECT_NEAR(line[3] / line[2], std::pow(2, -5.0 / 3), 1e-12);
  EXPECT_NEAR(spectral_slope({spectrum.wave_number, line}, {1, 8}), -5.0 / 3, 1e-9);
}

TEST(Turbulence, HasTheSpectrumThatWasAskedFor) {
  const torch::Tensor field =
      synthetic_turbulence({.shape = {48, 48, 48}, .seed = 3, .components = 3});
  EXPECT_NEAR(field.std(false).item<double>(), 1, 1e-5);
  EXPECT_NEAR(field.mean().item<double>(), 0, 1e-5);
  EXPECT_NEAR(spectral_slope(power_spectrum(field), {3, 20}), -5.0 / 3, 0.1);
  EXPECT_TRUE(
      field.equal(synthetic_turbulence({.shape = {48, 48, 48}, .seed = 3, .components = 3})));
  EXPECT_FALSE(
      field.equal(synthetic_turbulence({.shape = {48, 48, 48}, .seed = 4, .components = 3})));
}

TEST(Turbulence, IsTheSameInAllDirectionsOfALongBox) {
  const torch::Tensor field =
      synthetic_turbulence({.shape = {24, 24, 96}, .seed = 3, .components = 3});
  EXPECT_NEAR(spectral_slope(power_spectrum(field), {2, 10}), -5.0 / 3, 0.25);
  // The mean square of the difference between a point and its neighbour.
  const auto roughness = [&](std::int64_t axis) {
    return (field - torch::roll(field, 1, axis)).square().mean().item<double>();
  };
  EXPECT_NEAR(roughness(3) / roughness(1), 1, 0.2);
}

TEST(Turbulence, OfAsManyComponentsAsDimensionsDoesNotDiverge) {
  // The divergence is zero in Fourier space. Central differences only approximate it, so a small
  // remainder is allowed.
  const torch::Tensor smooth =
      synthetic_turbulence({.shape = {32, 32, 32}, .slope = -9, .components = 3});
  const double divergent = divergence(smooth.unsqueeze(0)).square().mean().item<double>();
  const torch::Tensor apart = torch::stack({smooth[0], smooth[0], smooth[0]});
  EXPECT_LT(divergent, 0.01 * divergence(apart.unsqueeze(0)).square().mean().item<double>());
}

}  // namespace
}  // namespace lockstep::science
