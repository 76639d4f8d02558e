#include "lockstep/plot/plot.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::plot {
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

// The path of the first line, such as "M1.00 2.00L3.00 4.00".
std::string path_in(const std::string& svg) {
  const std::string begin = "<path d=\"";
  const std::size_t at = svg.find(begin);
  if (at == std::string::npos) return "";
  return svg.substr(at + begin.size(), svg.find('"', at + begin.size()) - at - begin.size());
}

// A line has a gap where a point cannot be shown. All other points are shown.
TEST(Plot, WhatCannotBeShownIsLeftOut) {
  const auto path = [](std::vector<double> y, bool log) {
    const std::vector<double> x = {1, 2, 3, 4};
    return path_in(to_svg({LinePlot{.lines = {{"", x, std::move(y)}}, .log_y = log}}));
  };
  const std::string whole = path({1, 10, 10, 100}, true);
  ASSERT_THAT(whole, ::testing::MatchesRegex("M[0-9. ]+L[0-9. ]+L[0-9. ]+L[0-9. ]+"));
  const std::string first = whole.substr(0, whole.find('L'));
  const std::string last = whole.substr(whole.rfind('L') + 1);
  EXPECT_EQ(path({1, 0, NAN, 100}, true), first + "M" + last) << "0 has no logarithm";
  EXPECT_EQ(path({1, -5, HUGE_VAL, 100}, true), first + "M" + last);
  EXPECT_THAT(path({1, 0, NAN, 100}, false), ::testing::MatchesRegex("M[0-9. ]+L[0-9. ]+M[0-9. ]+"))
      << "0 can be shown on a linear axis";
}

TEST(Plot, OfNothingOrOnePointHasAnAxisWithNumbers) {
  for (const LinePlot& plot : {LinePlot{}, LinePlot{.lines = {{"", {5}, {5}}}}}) {
    const std::string svg = to_svg({plot});
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
    EXPECT_THAT(svg, ::testing::ContainsRegex(">[0-9.]+</text>"));
  }
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
}  // namespace lockstep::plot
