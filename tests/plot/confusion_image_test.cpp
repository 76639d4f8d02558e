#include "lockstep/plot/confusion_image.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::plot {
namespace {

using Histogram = std::map<std::tuple<int, int, int>, int>;

Histogram colors_of(const Image& image) {
  Histogram histogram;
  for (std::size_t i = 0; i < image.rgb.size(); i += 3) {
    ++histogram[{image.rgb[i], image.rgb[i + 1], image.rgb[i + 2]}];
  }
  return histogram;
}

ConfusionPicture diagonal(int classes) {
  ConfusionPicture picture;
  for (int i = 0; i < classes; ++i) picture.class_names.push_back("c" + std::to_string(i));
  picture.cells.resize(static_cast<std::size_t>(classes) * classes, 0.0);
  for (int i = 0; i < classes; ++i) picture.cells[i * classes + i] = 100;
  return picture;
}

int luma_at(const Image& image, int x, int y) {
  const std::size_t at = (static_cast<std::size_t>(y) * image.width + x) * 3;
  return image.rgb[at] + image.rgb[at + 1] + image.rgb[at + 2];
}

TEST(ConfusionImage, RowsAreTrueClasses) {
  // The only error is a sample of class 0 that was predicted as class 1. Its cell is at the top, to
  // the right of the diagonal.
  ConfusionPicture picture{.class_names = {"a", "b"}, .cells = {0, 9, 0, 0}};
  const Image image = draw_confusion_matrix(picture);
  const ConfusionPicture transposed{.class_names = {"a", "b"}, .cells = {0, 0, 9, 0}};
  const Image other = draw_confusion_matrix(transposed);

  // The bar of the colour scale is dark, too, so only the cells to the left of it are searched.
  const auto darkest = [](const Image& from) {
    std::pair<int, int> at;
    int best = 765;
    for (int y = 0; y < from.height / 2 + 40; ++y) {
      for (int x = 60; x < 200; ++x) {
        int sum = 0;  // of several pixels, so that letters do not count
        for (int d = 0; d < 8; ++d) sum = std::max(sum, luma_at(from, x + d, y + d));
        if (sum < best) best = sum, at = {x, y};
      }
    }
    return at;
  };
  EXPECT_GT(darkest(image).first, darkest(other).first);
  EXPECT_LT(darkest(image).second, darkest(other).second);
}

TEST(ConfusionImage, ValuesAreWrittenWhereTheyFitAndNotFromFortyClassesOn) {
  const auto colors = [](int classes) {
    return colors_of(draw_confusion_matrix(diagonal(classes)));
  };
  const std::tuple faint{168, 180, 196};  // only zeros have this colour
  EXPECT_GT(colors(10)[faint], 0);
  EXPECT_GT(colors(39)[faint], 0);
  EXPECT_EQ(colors(40)[faint], 0);
  const std::tuple ink{38, 50, 66};
  EXPECT_GT(colors(10)[ink], colors(40)[ink]);  // at forty there are only the titles of the axes
}

TEST(ConfusionImage, StaysAHandySizeForAnyNumberOfClasses) {
  for (const int classes : {1, 2, 10, 39, 40, 100}) {
    const Image image = draw_confusion_matrix(diagonal(classes));
    EXPECT_LE(image.width, 1000) << classes;
    EXPECT_LE(image.height, 1000) << classes;
    EXPECT_FALSE(encode_png(image).empty());
  }
}

TEST(ConfusionImage, AClassWithoutSamplesIsGrey) {
  ConfusionPicture picture{
      .class_names = {"a", "b"}, .cells = {1.0, 0.0, NAN, NAN}, .normalized = true};
  const std::tuple grey{238, 238, 238};
  EXPECT_GT(colors_of(draw_confusion_matrix(picture))[grey], 5000);
  picture.cells = {1.0, 0.0, 0.5, 0.5};
  EXPECT_EQ(colors_of(draw_confusion_matrix(picture)).count(grey), 0u);
}

TEST(ConfusionImage, BadShapesAreRefused) {
  EXPECT_THROW(draw_confusion_matrix({}), ConfigError);
  EXPECT_THROW(draw_confusion_matrix({.class_names = {"a", "b"}, .cells = {1, 2, 3}}), ConfigError);
}

}  // namespace
}  // namespace lockstep::plot
