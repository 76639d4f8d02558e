#include "lockstep/science/pictures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::science {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Pictures, ASliceNamesItsAxes) {
  const torch::Tensor t = torch::rand({2, 4, 3, 2}), p = t + 1;
  const Picture slice = slice_picture(p, t);
  EXPECT_THAT(slice.report.svg, HasSubstr(">z</text>"));
  EXPECT_THAT(slice.report.svg, HasSubstr(">y</text>"));
  EXPECT_THAT(slice.csv, StartsWith("y,z,target,predicted,difference\n0,0,"));
  EXPECT_THAT(slice.csv, HasSubstr("\n2,1,"));
  EXPECT_THAT(slice_picture(p[0], t[0]).csv, StartsWith("x,y,target"));
}

TEST(Pictures, OneDimensionIsALine) {
  const torch::Tensor t = torch::rand({1, 5});
  const Picture line = slice_picture(t * 2, t);
  EXPECT_THAT(line.csv, StartsWith("x,target,predicted,difference\n0,"));
  EXPECT_EQ(line.report.svg.find("<image"), std::string::npos);
}

TEST(Pictures, ARangeCutsDistributions) {
  const torch::Tensor values = torch::arange(100.0);
  const Picture cut = distribution_picture(values, values, Range{.first = 10, .last = 20});
  EXPECT_THAT(cut.csv, HasSubstr(",10,0.11,10,0.11"));
  EXPECT_EQ(cut.csv.find(",21,"), std::string::npos);
}

TEST(Pictures, WhatIsNotFiniteIsLeftOut) {
  torch::Tensor broken = torch::rand({1, 4, 4, 4});
  const torch::Tensor whole = broken.clone();
  broken[0][2][1][1] = NAN;
  broken[0][2][1][2] = INFINITY;
  EXPECT_THAT(distribution_picture(broken, whole).report.svg, HasSubstr("</svg>"));
  EXPECT_THAT(slice_picture(broken, whole).report.svg, HasSubstr("</svg>"));
  EXPECT_THROW(distribution_picture(torch::full({3}, NAN), whole), DataError);
}

TEST(Pictures, CubesAndFieldsHaveSpectra) {
  const torch::Tensor cubes = torch::rand({3, 2, 8, 8, 8});
  EXPECT_THAT(cube_spectrum_picture(cubes, cubes).report.text, HasSubstr("Hann"));
  EXPECT_THAT(spectrum_picture(cubes, cubes).csv, HasSubstr("\n4,"));
}

TEST(Pictures, TheLossOfEveryLoader) {
  const Picture loss = loss_picture({{1, {{"train", {{"loss", 2}}}, {"valid", {{"loss", 3}}}}},
                                     {2, {{"train", {{"loss", 1}}}, {"valid", {{"loss", 2}}}}}});
  EXPECT_EQ(loss.csv, "epoch,train,valid\n1,2,3\n2,1,2\n");
}

}  // namespace
}  // namespace lockstep::science
