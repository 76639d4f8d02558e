#include "lockstep/train/supervised_keys.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string keys_error(const SupervisedKeys& keys) {
  return toy::error_of([&] { check_keys(keys); });
}

TEST(SupervisedKeys, ThatContradictEachOtherAreRefused) {
  EXPECT_EQ(keys_error({}), "");
  EXPECT_THAT(keys_error({.input_key = "x", .input_keys = {"a", "b"}}),
              HasSubstr("expected input_key or input_keys, got both; input_key is 'x'"));
  EXPECT_THAT(keys_error({.output_key = "x", .output_keys = {"a"}}), HasSubstr("output_keys"));
  EXPECT_THAT(keys_error({.input_keys = {"a", "a"}}), HasSubstr("'a' is there twice"));
  EXPECT_THAT(keys_error({.input_keys = {""}}), HasSubstr("empty"));
  EXPECT_THAT(keys_error({.output_keys = {"a", "b"}}), HasSubstr("losses: expected at least one"));
}

// With another key or weight, a rank would train another loss.
TEST(SupervisedKeys, ThatDifferHaveDifferentTexts) {
  const std::vector<SupervisedKeys> all = {{},
                                           {.input_key = "x"},
                                           {.output_key = "x"},
                                           {.target_key = "x"},
                                           {.loss_key = "x"},
                                           {.input_keys = {"x"}},
                                           {.output_keys = {"x"}},
                                           {.losses = {{.criterion = "x"}}},
                                           {.losses = {{.output = "x"}}},
                                           {.losses = {{.target = "x"}}},
                                           {.losses = {{.weight = 0.5}}},
                                           {.losses = {{.name = "x"}}}};
  std::set<std::string> texts;
  for (const SupervisedKeys& keys : all) texts.insert(describe(keys));
  EXPECT_EQ(texts.size(), all.size());
  EXPECT_EQ(describe(SupervisedKeys{}), describe(SupervisedKeys{.losses = {{}}}))
      << "the default, given explicitly";
}

TEST(SupervisedKeys, TermsOfTheLossHaveNames) {
  EXPECT_EQ(keys_error({.losses = {{.output = "std"}}}), "") << "one term is the loss itself";
  EXPECT_THAT(keys_error({.losses = {{.output = "a"}, {.output = "a"}}}),
              HasSubstr("two terms have the name 'a'"));
  EXPECT_EQ(keys_error({.losses = {{.output = "a"}, {.output = "a", .name = "b"}}}), "");
  EXPECT_THAT(keys_error({.losses = {{.output = "a"}, {.output = "std"}}}), HasSubstr("'std'"));
  EXPECT_THAT(keys_error({.losses = {{.weight = NAN}}}), HasSubstr("weight of 'logits'"));
  EXPECT_THAT(loss_metrics({.loss_key = "total", .losses = {{.output = "a"}, {.output = "b"}}}),
              ElementsAre("total/a", "total/b"));
  EXPECT_THAT(loss_metrics({.losses = {{.output = "a"}}}), ElementsAre());
}

TEST(SupervisedKeys, ATermHasTheKeysOfTheRunByDefault) {
  const LossTerm term = loss_terms({.output_key = "y", .target_key = "z"}).at(0);
  EXPECT_EQ(term, (LossTerm{.output = "y", .target = "z", .name = "y"}));
  EXPECT_EQ(loss_terms({.output_keys = {"only"}}).at(0).output, "only");
}

struct AddImpl : torch::nn::Module {
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& a, const torch::Tensor& b) {
    return {a + b, a - b};
  }
};

// Says which keys its batch has.
struct KeysImpl : torch::nn::Module {
  Batch forward(const Batch& batch) {
    seen = batch.keys();
    return {{"one", torch::ones({1})}, {"two", torch::ones({1})}};
  }
  std::vector<std::string> seen;
};

TEST(ForwardKeys, SendsSeveralInputsThroughTheModel) {
  const Batch from{{"b", torch::ones({2})}, {"a", torch::full({2}, 3.0)}};
  Batch to;
  const Model model = std::make_shared<AddImpl>();
  forward_keys(model, {.input_keys = {"a", "b"}, .output_keys = {"sum", "difference"}}, from, to);
  EXPECT_THAT(to.keys(), ElementsAre("sum", "difference"));
  EXPECT_EQ(to["difference"][0].item<double>(), 2) << "a minus b";
  EXPECT_THAT(toy::error_of([&] {
                forward_keys(model, {.input_keys = {"a", "b"}}, from, to);
              }),
              HasSubstr("name them with output_keys"));
}

TEST(ForwardKeys, AModelThatTakesABatchGetsAllOfItOrSomeKeys) {
  const Batch from{{"x", torch::ones({2})}, {"y", torch::ones({2})}, {"z", torch::ones({2})}};
  const auto module = std::make_shared<KeysImpl>();
  Batch to;
  forward_keys(Model(module), {}, from, to);
  EXPECT_THAT(module->seen, ElementsAre("x", "y", "z"));
  EXPECT_THAT(to.keys(), ElementsAre("one", "two"));
  Batch some;
  forward_keys(Model(module), {.input_keys = {"y"}, .output_keys = {"two"}}, from, some);
  EXPECT_THAT(module->seen, ElementsAre("y"));
  EXPECT_THAT(some.keys(), ElementsAre("two"));
}

State with_outputs() {
  State state;
  state.criterions = {{"l1", torch::nn::L1Loss()}, {"mse", torch::nn::MSELoss()}};
  state.batch = {{"a", torch::full({2}, 3.0)}, {"b", torch::full({2}, 5.0)}};
  state.batch.set("zero", torch::zeros({2}));
  return state;
}

TEST(SetLosses, AddsTermsUpByTheirWeights) {
  State state = with_outputs();
  const SupervisedKeys keys{
      .losses = {{.criterion = "l1", .output = "a", .target = "zero"},
                 {.criterion = "mse", .output = "b", .target = "zero", .weight = 0.1}}};
  set_losses(state, keys, loss_terms(keys));
  EXPECT_NEAR(state.batch["loss"].item<double>(), 3 + 0.1 * 25, 1e-5);
  EXPECT_EQ(state.loss_over(), mean_over_samples());
  EXPECT_EQ(state.batch_metrics.at("loss/a"), 3);
  EXPECT_EQ(state.batch_metrics.at("loss/b"), 25) << "without the weight";
}

TEST(SetLosses, OneTermIsTheLossItself) {
  State state = with_outputs();
  const SupervisedKeys keys{
      .losses = {{.criterion = "l1", .output = "a", .target = "zero", .weight = 2}}};
  set_losses(state, keys, loss_terms(keys));
  EXPECT_EQ(state.batch["loss"].item<double>(), 6);
  EXPECT_TRUE(state.batch_metrics.empty());
}

TEST(SetLosses, ASumIsShownPerSample) {
  State state = with_outputs();
  const Criterion sum = torch::nn::L1Loss(torch::nn::L1LossOptions().reduction(torch::kSum));
  state.criterions = {{"sum", sum}};
  const SupervisedKeys keys{.losses = {{.criterion = "sum", .output = "a", .target = "zero"},
                                       {.criterion = "sum", .output = "b", .target = "zero"}}};
  set_losses(state, keys, loss_terms(keys));
  EXPECT_EQ(state.batch["loss"].item<double>(), 6 + 10);
  EXPECT_EQ(state.loss_over(), sum_over_samples());
  EXPECT_EQ(state.batch_metrics.at("loss/a"), 3);
}

TEST(SetLosses, NeedTheirCriterions) {
  State state = with_outputs();
  const auto error = [&](const LossTerm& term) {
    return toy::error_of([&] { set_losses(state, {}, {term}); });
  };
  EXPECT_THAT(error({.criterion = "l2", .output = "a", .target = "zero"}), HasSubstr("'l2'"));
  EXPECT_THAT(error({.output = "a", .target = "zero", .name = "a"}),
              HasSubstr("'a': the run has no single criterion"));
  state.criterions = {};
  EXPECT_EQ(error({.criterion = "l2", .output = "a", .target = "zero"}), "");
  EXPECT_FALSE(state.batch.contains("loss")) << "without a criterion";
}

}  // namespace
}  // namespace lockstep
