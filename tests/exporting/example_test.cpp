#include "lockstep/exporting/example.h"

#include <cmath>

#include <gmock/gmock.h>

#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Example, AnotherNumberOfSamplesRepeatsRows) {
  const Batch inputs = {{"x", torch::tensor({{1}, {2}})}, {"scale", torch::ones({3})}};
  const Batch more = with_batch_size(inputs, 5);
  EXPECT_TRUE(torch::equal(more["x"], torch::tensor({{1}, {2}, {1}, {2}, {1}})));
  EXPECT_EQ(more["scale"].size(0), 3);  // not the dimension of the batch
  EXPECT_EQ(with_batch_size(inputs, 1)["x"].size(0), 1);
}

TEST(Example, OtherValuesHaveTheSameShapes) {
  const torch::Tensor numbers = torch::tensor({{1.0F, 0.0F}, {3.0F, 4.0F}});
  const torch::Tensor tokens = torch::tensor({{5, 6, 7}, {8, 9, 5}}),
                      lengths = torch::tensor({3, 1});
  const torch::Tensor mask = lengths.unsqueeze(1) <= torch::arange(3);
  const Batch inputs = {
      {"numbers", numbers}, {"tokens", tokens}, {"lengths", lengths}, {"mask", mask}};
  const Batch other = with_other_values(inputs);
  EXPECT_EQ(other["numbers"].sizes(), numbers.sizes());
  EXPECT_EQ(other["numbers"].scalar_type(), torch::kFloat32);
  EXPECT_LT(other["numbers"].sum().item<float>(), 0);
  EXPECT_FALSE((other["numbers"] == numbers).any().item<bool>());
  EXPECT_LE(other["numbers"].abs().max().item<float>(), 4);
  // The rows of all inputs change places together. Tokens stay in the range that they have.
  testing::expect_equal(other["tokens"], torch::tensor({{9, 9, 5}, {6, 6, 7}}));
  testing::expect_equal(other["lengths"], torch::tensor({1, 3}));
  testing::expect_equal(other["mask"], mask.flip({0}));
  testing::expect_equal(with_other_values(inputs, {.positions = false})["tokens"],
                        tokens.flip({0}));
  testing::expect_equal(with_other_values(inputs)["numbers"], other["numbers"]);
}

TEST(Example, OtherValuesOfZeroAndNan) {
  const Batch inputs = {{"x", torch::zeros({1, 3})},
                        {"y", torch::tensor({{NAN, 1.0F}})},
                        {"none", torch::ones({1, 0})}};
  const Batch other = with_other_values(inputs);
  EXPECT_FALSE((other["x"] == 0).any().item<bool>());
  EXPECT_TRUE(std::isfinite(other["y"][0][1].item<float>()));
  EXPECT_EQ(other["none"].numel(), 0);
}

struct NamedModelImpl : torch::nn::Module {
  Batch forward(const Batch& batch) {
    return {{"sum", batch["a"] + batch["b"]}, {"a", batch["a"]}};
  }
};
TORCH_MODULE(NamedModel);

TEST(Example, OutputsHaveNames) {
  const Model one = torch::nn::Linear(2, 2);
  EXPECT_THAT(call(one, {{"x", torch::ones({1, 2})}}).names, ElementsAre("output"));
  EXPECT_THAT(call(one, {{"x", torch::ones({1, 2})}}, {"logits"}).names, ElementsAre("logits"));
  const Model named = NamedModel();
  const Batch inputs = {{"a", torch::ones({2})}, {"b", torch::ones({2})}};
  EXPECT_THAT(call(named, inputs).names, ElementsAre("sum", "a"));
  EXPECT_THAT(testing::error_of([&] {
                call(one, {{"x", torch::ones({1, 2})}}, {"a", "b"});
              }),
              HasSubstr("names of outputs"));
}

TEST(Example, WrongInputsAreRefused) {
  EXPECT_THAT(testing::error_of([&] { check_example({}); }), HasSubstr("none"));
  EXPECT_THAT(testing::error_of([&] {
                check_example({{"x", torch::ones({0, 2})}});
              }),
              HasSubstr("'x'"));
  Batch lists;
  lists.set("x", std::vector<torch::Tensor>{torch::ones({2})});
  EXPECT_THAT(testing::error_of([&] { check_example(lists); }), HasSubstr("list"));
}

TEST(Example, TheModelKeepsItsMode) {
  torch::nn::Sequential net(torch::nn::BatchNorm1d(2), torch::nn::Dropout(0.5));
  net[0]->eval();  // as FreezeCallback does
  const Model model = net;
  {
    const EvaluationMode mode(model);
    EXPECT_FALSE(model.is_training());
    EXPECT_FALSE(net[1]->is_training());
    EXPECT_FALSE(torch::GradMode::is_enabled());
  }
  EXPECT_TRUE(model.is_training());
  EXPECT_TRUE(net[1]->is_training());
  EXPECT_FALSE(net[0]->is_training());
  EXPECT_TRUE(torch::GradMode::is_enabled());
}

}  // namespace
}  // namespace lockstep::exporting
