#include "lockstep/metric/predictions.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::metric {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Predictions, ScoresAreReadInPlaceWhereTheyCanBe) {
  const torch::Tensor scores = torch::rand({4, 3}, torch::requires_grad());
  EXPECT_EQ(to_scores(scores).data_ptr(), scores.data_ptr());
  const torch::Tensor transposed = torch::rand({3, 4}).t();
  EXPECT_TRUE(to_scores(transposed).is_contiguous());
  EXPECT_TRUE(torch::equal(to_scores(transposed), transposed));
}

TEST(Predictions, ScoresOfOtherTypesBecomeFloats) {
  const torch::Tensor scores = torch::tensor({{0, 2}, {1, 0}});
  for (const auto type : {torch::kHalf, torch::kBFloat16, torch::kFloat32}) {
    EXPECT_EQ(to_scores(scores.to(type)).scalar_type(), torch::kFloat32);
  }
  for (const auto type : {torch::kFloat64, torch::kInt64, torch::kBool}) {
    EXPECT_EQ(to_scores(scores.to(type)).scalar_type(), torch::kFloat64);
  }
}

TEST(Predictions, LabelsMayBeAnyIntegers) {
  for (const auto type : {torch::kInt64, torch::kInt32, torch::kUInt8}) {
    const torch::Tensor labels = to_labels(torch::tensor({2, 0, 1}).to(type), 3);
    EXPECT_THAT(elements<std::int64_t>(labels), ElementsAre(2, 0, 1));
  }
  const torch::Tensor column = to_labels(torch::tensor({{2}, {0}}), 3);
  EXPECT_THAT(elements<std::int64_t>(column), ElementsAre(2, 0));
}

TEST(Predictions, ABadTargetIsNamed) {
  EXPECT_THAT(
      [] {
        to_labels(torch::tensor({0, 1, 10}), 10);
      },
      ThrowsMessage<DataError>(HasSubstr("targets: sample 2 is 10, expected a class from 0 to 9")));
  EXPECT_THAT(
      [] {
        to_labels(torch::tensor({0, -1}), 10);
      },
      ThrowsMessage<DataError>(HasSubstr("sample 1 is -1")));
  EXPECT_THAT([] { to_labels(torch::rand({3}), 10); },
              ThrowsMessage<DataError>(HasSubstr("expected integers, got Float")));
  EXPECT_THAT(
      [] {
        to_labels(torch::zeros({3, 2}, torch::kInt64), 10);
      },
      ThrowsMessage<DataError>(HasSubstr("got [3, 2]")));
}

TEST(Predictions, TheFirstOfEqualScoresIsPredicted) {
  const torch::Tensor scores = torch::tensor({{0.0, 1.0, 1.0}, {2.0, 2.0, 2.0}, {0.0, 1.0, 3.0}});
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kHalf}) {
    const torch::Tensor predicted = predicted_classes(scores.to(type), 3);
    EXPECT_THAT(elements<std::int64_t>(predicted), ElementsAre(1, 0, 2));
  }
}

TEST(Predictions, WholeNumbersArePredictionsAlready) {
  const torch::Tensor predicted = predicted_classes(torch::tensor({1.0, 0.0, 2.0}), 3);
  EXPECT_THAT(elements<std::int64_t>(predicted), ElementsAre(1, 0, 2));
  EXPECT_THAT(
      [] {
        predicted_classes(torch::tensor({1.0, 0.5}), 2);
      },
      ThrowsMessage<DataError>(HasSubstr("sample 1 is 0.5")));
  EXPECT_THROW(predicted_classes(torch::tensor({1, 3}), 3), DataError);
  EXPECT_THROW(predicted_classes(torch::tensor({HUGE_VAL}), 3), DataError);
}

TEST(Predictions, WhatCannotBePredictedFromIsNamed) {
  EXPECT_THAT(
      [] {
        predicted_classes(torch::tensor({{0.0, 1.0}, {1.0, std::nan("")}}), 2);
      },
      ThrowsMessage<DataError>(HasSubstr("score of class 1 is NaN in sample 1")));
  EXPECT_THAT(
      [] {
        predicted_classes(torch::rand({4, 5}), 3);
      },
      ThrowsMessage<DataError>(HasSubstr("expected scores of 3 classes, got the shape [4, 5]")));
  EXPECT_THROW(to_scores(torch::rand({4, 5, 6})), DataError);
}

TEST(Predictions, OutputsAndTargetsHaveTheSameSamples) {
  EXPECT_NO_THROW(expect_same_samples(torch::rand({4, 5}), torch::zeros({4})));
  EXPECT_THAT(
      [] {
        expect_same_samples(torch::rand({4, 5}), torch::zeros({3}));
      },
      ThrowsMessage<DataError>(HasSubstr("outputs [4, 5] and targets [3]")));
  EXPECT_THROW(expect_same_samples(torch::tensor(1.0), torch::zeros({1})), DataError);
}

}  // namespace
}  // namespace lockstep::metric
