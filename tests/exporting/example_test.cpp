#include "lockstep/exporting/example.h"

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
