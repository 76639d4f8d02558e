#include "lockstep/metric/class_maps.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

torch::Tensor counts_of(const torch::Tensor& outputs, const torch::Tensor& targets,
                        const MapFormat& format) {
  ClassCounts counts(format.num_classes);
  count_maps(counts, outputs, targets, format);
  return counts.state().get<torch::Tensor>("counts");
}

// [N, …] to [N, C, …]
torch::Tensor flags_of(const torch::Tensor& labels, std::int64_t classes) {
  return torch::one_hot(labels, classes).movedim(-1, 1);
}

TEST(ClassMaps, LabelsCanBeWrittenInAllWays) {
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{6}, {3, 4, 5}, {2, 3, 2, 4}}) {
    const torch::Tensor labels = torch::randint(0, 3, sizes), guess = torch::randint(0, 3, sizes);
    const MapFormat format{.num_classes = 3, .metric = "m"};
    ClassCounts counts(3);
    counts.add_labels(guess, labels);
    const auto expected = counts.state().get<torch::Tensor>("counts");
    const torch::Tensor scores = flags_of(guess, 3) * 2.0 + torch::rand({1});
    for (const torch::Tensor& outputs :
         {scores, scores.to(torch::kFloat64), scores.to(torch::kBFloat16), guess,
          guess.to(torch::kUInt8)}) {
      for (const torch::Tensor& targets :
           {labels, labels.to(torch::kInt32), labels.unsqueeze(1), flags_of(labels, 3),
            flags_of(labels, 3).to(torch::kFloat32), flags_of(labels, 3).to(torch::kBool)}) {
        EXPECT_TRUE(counts_of(outputs, targets, format).equal(expected)) << targets.sizes();
      }
    }
  }
}

TEST(ClassMaps, OfEqualScoresTheFirstCounts) {
  const auto counts = counts_of(torch::zeros({1, 3, 2}), torch::tensor({{0, 2}}),
                                {.num_classes = 3, .metric = "m"});
  EXPECT_TRUE(counts.equal(torch::tensor({{1, 2, 1}, {0, 0, 0}, {0, 0, 1}})));
}

TEST(ClassMaps, FlagsCanBeWrittenInAllWays) {
  const torch::Tensor labels = torch::randint(0, 3, {4, 5, 2});
  const torch::Tensor scores = torch::randn({4, 3, 5, 2});
  const MapFormat format{.num_classes = 3, .limit = 0.25, .metric = "m"};
  ClassCounts counts(3);
  counts.add_flags((scores > 0.25).to(torch::kUInt8).contiguous(),
                   flags_of(labels, 3).to(torch::kUInt8).contiguous());
  const auto expected = counts.state().get<torch::Tensor>("counts");
  for (const torch::Tensor& targets :
       {labels, flags_of(labels, 3), flags_of(labels, 3).to(torch::kFloat32)}) {
    EXPECT_TRUE(counts_of(scores, targets, format).equal(expected));
    EXPECT_TRUE(counts_of(scores.to(torch::kFloat64), targets, format).equal(expected));
  }
  // One class with and without its dimension.
  const MapFormat one{.num_classes = 1, .limit = 0.0, .metric = "m"};
  const torch::Tensor map = torch::randn({4, 5, 2}), mask = torch::randint(0, 2, {4, 5, 2});
  const auto right = ((map > 0) & (mask == 1)).sum().item<std::int64_t>();
  for (const torch::Tensor& outputs : {map, map.unsqueeze(1)}) {
    for (const torch::Tensor& targets : {mask, mask.unsqueeze(1), mask.to(torch::kFloat32)}) {
      EXPECT_EQ(counts_of(outputs, targets, one)[0][0].item<std::int64_t>(), right);
    }
  }
}

TEST(ClassMaps, IgnoredTargetsDoNotCount) {
  const torch::Tensor labels = torch::tensor({{0, 255, 1}});
  const torch::Tensor guess = torch::tensor({{0, 1, 0}});
  EXPECT_TRUE(counts_of(guess, labels, {.num_classes = 2, .ignore_index = 255, .metric = "m"})
                  .equal(torch::tensor({{1, 2, 1}, {0, 0, 1}})));
  const torch::Tensor scores = torch::tensor({{{1.0, 1.0, 1.0}, {-1.0, 1.0, 1.0}}});
  EXPECT_TRUE(counts_of(scores, labels,
                        {.num_classes = 2, .limit = 0.0, .ignore_index = 255, .metric = "m"})
                  .equal(torch::tensor({{1, 2, 1}, {1, 1, 1}})));
}

TEST(ClassMaps, WhatDoesNotFitIsNamed) {
  const auto error = [](const torch::Tensor& outputs, const torch::Tensor& targets,
                        const MapFormat& format) {
    return [=] {
      ClassCounts counts(format.num_classes);
      count_maps(counts, outputs, targets, format);
    };
  };
  const MapFormat three{.num_classes = 3, .metric = "iou"};
  const MapFormat flags{.num_classes = 2, .limit = 0.0, .metric = "iou"};
  const torch::Tensor scores = torch::rand({2, 3, 4, 4});
  EXPECT_THAT(error(scores, torch::full({2, 4, 4}, 3), three),
              ThrowsMessage<DataError>(HasSubstr("iou: targets: sample 0 has the class 3, expected "
                                                 "0 to 2")));
  EXPECT_THAT(
      error(scores, torch::zeros({2, 4, 5}, torch::kInt64), three),
      ThrowsMessage<DataError>(HasSubstr("expected classes [2, 4, 4] or flags [2, 3, 4, 4], "
                                         "got the shape [2, 4, 5]")));
  EXPECT_THAT(error(scores, torch::zeros({2, 4, 4}), three),
              ThrowsMessage<DataError>(HasSubstr("expected classes as integers, got Float")));
  EXPECT_THAT(error(torch::rand({2, 4, 4, 4}), torch::zeros({2, 4, 4}, torch::kInt64), three),
              ThrowsMessage<DataError>(HasSubstr("outputs: expected scores [samples, 3, …]")));
  EXPECT_THAT(error(scores, torch::zeros({2, 3, 4, 4}), three),
              ThrowsMessage<DataError>(HasSubstr("a position without a class")));
  EXPECT_THAT(error(scores, torch::ones({2, 3, 4, 4}), three),
              ThrowsMessage<DataError>(HasSubstr("a second 1 at class 1")));
  EXPECT_THAT(error(scores * std::nan(""), torch::zeros({2, 4, 4}, torch::kInt64), three),
              ThrowsMessage<DataError>(HasSubstr("class 0 is NaN in sample 0")));
  EXPECT_THAT(error(torch::full({1, 2, 2}, 7), torch::zeros({1, 2, 2}, torch::kInt64), three),
              ThrowsMessage<DataError>(HasSubstr("outputs: sample 0 has the class 7")));
  EXPECT_THAT(error(torch::rand({2, 2}), torch::full({2, 2}, 0.5), flags),
              ThrowsMessage<DataError>(HasSubstr("has the value 0.5, expected 0 or 1")));
  EXPECT_THAT(error(torch::rand({2, 3}), torch::zeros({2, 3}), flags),
              ThrowsMessage<DataError>(HasSubstr("outputs: expected scores [samples, 2, …]")));
  EXPECT_THROW(error(torch::rand({2, 2}), torch::zeros({3, 2}), flags)(), DataError);
}

}  // namespace
}  // namespace lockstep::metric
