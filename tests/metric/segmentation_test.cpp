#include "lockstep/metric/segmentation.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

template <typename M>
Metrics values(M metric, const torch::Tensor& outputs, const torch::Tensor& targets) {
  metric.update(outputs, targets);
  expect_names_match(metric);
  return metric.compute();
}

void expect_overlaps(const Metrics& metrics, const std::string& name,
                     const nlohmann::json& expected) {
  for (const char* average : {"_micro", "_macro", "_weighted"}) {
    expect_near(metrics.at(name + "/" + average), expected.at(average).at(name), name + average);
  }
  EXPECT_EQ(metrics.at(name), metrics.at(name + "/_macro"));
  const auto& classes = expected.at("class").at(name);
  for (std::size_t c = 0; c < classes.size(); ++c) {
    expect_near(metrics.at(fmt::format("{}/class_{:02}", name, c)), classes[c], name);
  }
}

TEST(Segmentation, IsWhatScikitLearnSays) {
  for (const auto& set : catalogue().at("maps")) {
    SCOPED_TRACE(set.at("name").get<std::string>());
    const torch::Tensor scores = tensor_of_lists<float>(set.at("scores"));
    const torch::Tensor targets = tensor_of_lists<std::int64_t>(set.at("targets"));
    SegmentationOptions options{.num_classes = set.at("classes"), .per_class = true};
    if (!set.at("ignored").is_null()) options.ignore_index = set.at("ignored");
    const auto& expected = set.at("overlaps");
    expect_overlaps(values(IoU(options), scores, targets), "iou", expected);
    expect_overlaps(values(Dice(options), scores, targets), "dice", expected);
    expect_overlaps(values(Tversky({.alpha = 0.7, .maps = options}), scores, targets), "tversky",
                    expected);
    const Metrics pixels = values(PixelAccuracy(options), scores, targets);
    expect_near(pixels.at("pixel_accuracy"), set.at("accuracy"), "pixel accuracy");
    expect_near(pixels.at("pixel_accuracy/_macro"), set.at("macro_accuracy"), "macro");
    for (std::size_t c = 0; c < set.at("class_accuracy").size(); ++c) {
      expect_near(pixels.at(fmt::format("pixel_accuracy/class_{:02}", c)),
                  set.at("class_accuracy")[c], "class");
    }
  }
}

TEST(Segmentation, AThresholdTakesEachClassOnItsOwn) {
  const auto& set = catalogue().at("flag_maps");
  const torch::Tensor logits = tensor_of_lists<float>(set.at("logits"));
  const torch::Tensor targets = tensor_of_lists<std::int64_t>(set.at("targets"));
  SegmentationOptions options{.num_classes = 2, .threshold = 0.3, .per_class = true};
  expect_overlaps(values(IoU(options), logits, targets), "iou", set.at("overlaps"));
  expect_overlaps(values(Dice(options), logits, targets), "dice", set.at("overlaps"));
  const Metrics pixels = values(PixelAccuracy(options), logits, targets);
  expect_near(pixels.at("pixel_accuracy"), set.at("accuracy"), "pixel accuracy");
  expect_near(pixels.at("pixel_accuracy/class_01"), set.at("class_accuracy")[1], "class");
  options.scores = ScoreKind::kProbabilities;
  expect_overlaps(values(Tversky({.alpha = 0.7, .maps = options}), logits.sigmoid(), targets),
                  "tversky", set.at("overlaps"));
}

// One class against the background needs no threshold and no dimension of classes.
TEST(Segmentation, OneClassIsComparedWithOneHalf) {
  const torch::Tensor logits = torch::tensor({{{1.0, -1.0}, {2.0, -2.0}}});
  const torch::Tensor mask = torch::tensor({{{1, 1}, {0, 0}}});
  EXPECT_EQ(values(IoU({.num_classes = 1}), logits, mask).at("iou"), 1.0 / 3);
  EXPECT_EQ(values(Dice({.num_classes = 1}), logits, mask).at("dice"), 0.5);
  EXPECT_EQ(values(PixelAccuracy({.num_classes = 1}), logits, mask).at("pixel_accuracy"), 0.5);
}

TEST(Segmentation, WeightsAreThoseOfTheUser) {
  const torch::Tensor guess = torch::tensor({{0, 1, 1, 1}}), labels = torch::tensor({{0, 0, 1, 1}});
  const Metrics metrics = values(
      IoU({.num_classes = 2, .weights = {3, 1}, .prefix = "a_", .suffix = "_b"}), guess, labels);
  EXPECT_DOUBLE_EQ(metrics.at("a_iou_b/_weighted"), (3 * 0.5 + 2.0 / 3) / 4);
}

TEST(Segmentation, AbsentClassesCountAsZeroDivision) {
  for (const double value : {0.0, 1.0}) {
    const SegmentationOptions options{.num_classes = 3, .per_class = true, .zero_division = value};
    for (const auto& [name, number] : IoU(options).compute()) EXPECT_EQ(number, value) << name;
    const torch::Tensor zeros = torch::zeros({1, 4}, torch::kInt64);
    EXPECT_EQ(values(IoU(options), zeros, zeros).at("iou/class_02"), value);
    EXPECT_EQ(values(PixelAccuracy(options), zeros, zeros).at("pixel_accuracy/class_02"), value);
    // With beta 0 a wrong position costs nothing, but the class is not absent.
    EXPECT_EQ(
        values(Tversky({.alpha = 1, .maps = options}), zeros, zeros + 1).at("tversky/class_00"), 0);
  }
}

// The first two positions do not count. Of the others, the first 1 is found and the second is not.
TEST(Segmentation, AClassThatIsIgnoredIsLeftOut) {
  const torch::Tensor labels = torch::tensor({{0, 0, 1, 1, 2, 2}});
  const torch::Tensor guess = torch::tensor({{0, 1, 1, 0, 2, 2}});
  SegmentationOptions options{.num_classes = 3, .ignore_index = 0, .per_class = true};
  const Metrics iou = values(IoU(options), guess, labels);
  EXPECT_EQ(iou, (Metrics{{"iou", 0.75},
                          {"iou/_macro", 0.75},
                          {"iou/_micro", 0.6},
                          {"iou/_weighted", 0.75},
                          {"iou/class_01", 0.5},
                          {"iou/class_02", 1.0}}));
  EXPECT_DOUBLE_EQ(values(Dice(options), guess, labels).at("dice"), (2.0 / 3 + 1) / 2);
  const Metrics pixels = values(PixelAccuracy(options), guess, labels);
  EXPECT_EQ(pixels.at("pixel_accuracy"), 0.75);
  EXPECT_EQ(pixels.at("pixel_accuracy/_macro"), 0.75);
  options.weights = {5, 1, 3};
  EXPECT_EQ(values(IoU(options), guess, labels).at("iou/_weighted"), (1 * 0.5 + 3 * 1) / 4);
}

TEST(Segmentation, LargerIsBetter) {
  EXPECT_EQ(IoU({.num_classes = 2}).better("iou"), Better::kLarger);
  EXPECT_EQ(PixelAccuracy({.num_classes = 2}).better("pixel_accuracy/_macro"), Better::kLarger);
}

TEST(Segmentation, MergesToTheBit) {
  for (const auto& set : catalogue().at("maps")) {
    SegmentationOptions options{.num_classes = set.at("classes"), .per_class = true};
    if (!set.at("ignored").is_null()) options.ignore_index = set.at("ignored");
    const Batches batches{tensor_of_lists<float>(set.at("scores")),
                          tensor_of_lists<std::int64_t>(set.at("targets")), 1};
    expect_merges_exactly([&] { return IoU(options); }, batches.size(), batches);
    expect_merges_exactly([&] { return PixelAccuracy(options); }, batches.size(), batches);
    expect_batches_do_not_matter([&] { return Dice(options); }, batches.outputs, batches.targets);
  }
}

TEST(Segmentation, BadOptionsAreNamed) {
  EXPECT_THAT([] { IoU(SegmentationOptions{}); },
              ThrowsMessage<ConfigError>(HasSubstr("iou: num_classes: expected 1 or more, got 0")));
  EXPECT_THAT([] { Dice({.num_classes = 2, .threshold = 2}); },
              ThrowsMessage<ConfigError>(HasSubstr("dice: threshold")));
  EXPECT_THAT([] { IoU({.num_classes = 2, .weights = {1}}); },
              ThrowsMessage<ConfigError>(HasSubstr("expected num_classes = 2 numbers, got 1")));
  EXPECT_THROW(IoU({.num_classes = 2, .weights = {1, -1}}), ConfigError);
  EXPECT_THROW(IoU({.num_classes = 2, .weights = {0, 0}}), ConfigError);
  EXPECT_THROW(IoU({.num_classes = 2, .zero_division = 0.5}), ConfigError);
  EXPECT_THAT(
      [] { Trevsky({.alpha = 1.5, .maps = {.num_classes = 2}}); },
      ThrowsMessage<ConfigError>(HasSubstr("tversky: alpha: expected a number from 0 to 1")));
  EXPECT_THROW(Tversky({.beta = -1, .maps = {.num_classes = 2}}), ConfigError);
}

}  // namespace
}  // namespace lockstep::metric
