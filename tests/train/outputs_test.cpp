#include "lockstep/train/outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

Outputs two_outputs() {
  return Outputs::of(std::tuple(torch::zeros({2, 3}), torch::ones({2})));
}

TEST(Outputs, OfATensorIsTheTensor) {
  const auto x = torch::zeros({2});
  const Outputs outputs = Outputs::of(x);
  EXPECT_EQ(outputs.count(), 1U);
  EXPECT_TRUE(outputs.tensor().is_same(x));
  EXPECT_TRUE(outputs[0].is_same(x));
}

TEST(Outputs, TuplesAndVectorsBecomeOneSequence) {
  const auto a = torch::zeros({1}), b = torch::zeros({2}), c = torch::zeros({3});
  const Outputs lstm = Outputs::of(std::tuple(a, std::pair(b, c)));
  ASSERT_EQ(lstm.count(), 3U);
  EXPECT_TRUE(lstm[2].is_same(c));
  EXPECT_EQ(Outputs::of(std::vector{a, b}).count(), 2U);
  EXPECT_EQ(Outputs::of(std::array{a, b}).count(), 2U);
  EXPECT_EQ(Outputs::of(std::vector<std::tuple<torch::Tensor, torch::Tensor>>{{a, b}}).count(), 2U);
  static_assert(!ModelOutput<std::tuple<torch::Tensor, int>>);
  static_assert(!ModelOutput<void>);
}

TEST(Outputs, SeveralAreNotOne) {
  EXPECT_THAT(toy::error_of([] { (void)two_outputs().tensor(); }),
              HasSubstr("returned 2 tensors: Float [2, 3], Float [2], expected one tensor"));
  EXPECT_THAT(toy::error_of([] { (void)two_outputs()[2]; }), HasSubstr("output 2"));
  EXPECT_THAT(toy::error_of([] { (void)two_outputs()["angle"]; }), HasSubstr("have no names"));
}

TEST(Outputs, GetTheNamesOfTheKeys) {
  const Batch batch = two_outputs().to_batch({"class", "angle"});
  EXPECT_EQ(batch["class"].dim(), 2);
  EXPECT_EQ(batch["angle"].dim(), 1);
  EXPECT_THAT(toy::error_of([] { two_outputs().to_batch({"class"}); }),
              HasSubstr("returned 2 tensors: Float [2, 3], Float [2], but there is 1 key for "
                        "outputs: class"));
}

TEST(Outputs, OfABatchHaveTheirNames) {
  Batch named{{"class", torch::zeros({2, 3})}, {"angle", torch::ones({2})}};
  named.set("hidden", std::vector<torch::Tensor>{torch::zeros({1})});
  const Outputs outputs = Outputs::of(named);
  EXPECT_TRUE(outputs.is_named());
  EXPECT_EQ(outputs.count(), 2U) << "tensors";
  EXPECT_TRUE(outputs["angle"].is_same(outputs[1]));
  EXPECT_THAT(toy::error_of([&] { (void)outputs["angel"]; }), HasSubstr("did you mean 'angle'"));
  EXPECT_EQ(outputs.to_batch().keys().size(), 3U);
  EXPECT_THAT(outputs.to_batch({"hidden", "angle"}).keys(),
              testing::ElementsAre("angle", "hidden"));
  EXPECT_THAT(toy::error_of([&] { (void)outputs.tensor(); }), HasSubstr("a batch with class"));
}

}  // namespace
}  // namespace lockstep
