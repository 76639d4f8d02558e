#include "lockstep/science/plot.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::science {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Ticks, AreRound) {
  EXPECT_THAT(linear_ticks(0, 1), ElementsAre(0, DoubleNear(0.2, 1e-9), DoubleNear(0.4, 1e-9),
                                              DoubleNear(0.6, 1e-9), DoubleNear(0.8, 1e-9), 1));
  EXPECT_THAT(linear_ticks(-2.7, 2.7), ElementsAre(-2, -1, 0, 1, 2));
  EXPECT_THAT(log_ticks(1, 1000), ElementsAre(1, 10, 100, 1000));
  EXPECT_THAT(log_ticks(1, 8), ElementsAre(1, 2, 5));
  EXPECT_LE(log_ticks(1e-12, 1e12).size(), 9u);
  EXPECT_THAT(tick_labels({0, 0.1 + 0.2, 1e-5}), ::testing::ElementsAre("0", "0.3", "1e-05"));
  EXPECT_THAT(tick_labels({101325.2, 101325.4}), ::testing::ElementsAre("101325.2", "101325.4"));
  EXPECT_THAT(linear_ticks(1, 1 + 2.3e-16), ::testing::ElementsAre(1));
  EXPECT_LT(linear_ticks(1, 1 + 1e-12).size(), 20u);
}

TEST(Plot, HasItsTitleLabelsLegendAndLines) {
  const std::string svg = to_svg(
      {LinePlot{.title = "A < B",
                .x_label = "time",
                .y_label = "speed",
                .lines = {{"first", {0, 1, 2}, {1, 2, 3}}, {"second", {0, 1}, {3, 1}, true}}}});
  EXPECT_THAT(svg, HasSubstr("A &lt; B"));
  for (const char* const part :
       {">time<", ">speed<", ">first<", ">second<", "stroke-dasharray", "<path d=\"M"})
    EXPECT_THAT(svg, HasSubstr(part));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
}

TEST(Plot, WhatCannotBeShownIsLeftOut) {
  const std::string svg =
      to_svg({LinePlot{.lines = {{"", {1, 2, 3, 4}, {1, 0, NAN, 100}}}, .log_y = true}});
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_THAT(to_svg({LinePlot{}}), Not(HasSubstr("nan"))) << "of nothing at all";
  EXPECT_THAT(to_svg({LinePlot{.lines = {{"", {5}, {5}}}}}), Not(HasSubstr("nan")))
      << "of one point";
}

TEST(Plot, AFieldIsAPictureWithAScale) {
  const std::string svg = to_svg({FieldPlot{
      .title = "u",
      .raster = {.width = 2, .height = 2, .values = {0, 1, 2, 3}, .low = 0, .high = 3}}});
  EXPECT_THAT(svg, HasSubstr("data:image/png;base64,iVBORw0KGgo"));
  const std::size_t first = svg.find("<image");
  EXPECT_NE(svg.find("<image", first + 1), std::string::npos) << "the scale";
}

}  // namespace
}  // namespace lockstep::science
