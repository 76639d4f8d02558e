#include "lockstep/compute/planned_sequential.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/compute/switches.h"

namespace lockstep::compute {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

bool is_planned(const Tensor& output) {
  return output.grad_fn() != nullptr && output.grad_fn()->name() == "LockstepSequentialBackward";
}

struct Example {
  const char* name;
  std::function<nn::Sequential()> make;
  std::vector<std::int64_t> input;
};

std::ostream& operator<<(std::ostream& out, const Example& example) {
  return out << example.name;
}

nn::Sequential make_mlp() {
  return nn::Sequential(nn::Flatten(), nn::Linear(24, 16), nn::ReLU(), nn::Linear(16, 8),
                        nn::ReLU(), nn::Linear(nn::LinearOptions(8, 4).bias(false)));
}

nn::Sequential make_cnn() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)), nn::ReLU(),
                        nn::MaxPool2d(2), nn::Conv2d(nn::Conv2dOptions(4, 6, 3).stride(2)),
                        nn::ReLU(), nn::Flatten(), nn::Linear(54, 3));
}

nn::Sequential make_cnn3d() {
  const auto conv = [](std::int64_t in, std::int64_t out) {
    return nn::Conv3d(nn::Conv3dOptions(in, out, 2).stride(2).padding(1).bias(in == 2));
  };
  return nn::Sequential(conv(2, 4), nn::MaxPool3d(nn::MaxPool3dOptions(2).padding(1)), nn::ReLU(),
                        conv(4, 4), nn::MaxPool3d(2), nn::Flatten(), nn::Linear(4, 5), nn::ReLU());
}

class PlannedSequentialTest : public ::testing::TestWithParam<Example> {};

INSTANTIATE_TEST_SUITE_P(
    Models, PlannedSequentialTest,
    ::testing::Values(
        Example{"mlp", make_mlp, {6, 2, 12}}, Example{"cnn", make_cnn, {5, 1, 14, 14}},
        Example{"cnn3d", make_cnn3d, {3, 2, 8, 8, 8}},
        Example{"grouped",
                [] {
                  return nn::Sequential(
                      nn::Conv2d(nn::Conv2dOptions(4, 6, 3).groups(2).dilation(2)), nn::ReLU(),
                      nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(1)));
                },
                {3, 4, 9, 8}},
        Example{"words", [] { return nn::Sequential(nn::Linear(7, 3), nn::ReLU()); }, {2, 5, 7}},
        Example{"signal",
                [] { return nn::Sequential(nn::Conv1d(2, 4, 3), nn::ReLU(), nn::Flatten()); },
                {3, 2, 9}}));

std::vector<Tensor> grads_of(const nn::Sequential& module) {
  std::vector<Tensor> grads;
  for (const Tensor& parameter : module->parameters()) grads.push_back(parameter.grad().clone());
  return grads;
}

void expect_close(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined());
    EXPECT_TRUE(!a[i].defined() || torch::allclose(a[i], b[i], 1e-4, 1e-6)) << i;
  }
}

TEST_P(PlannedSequentialTest, BothWaysAgree) {
  torch::manual_seed(5);
  nn::Sequential module = GetParam().make();
  PlannedSequential planned(module.ptr());
  // Several times, in memory that is used again, with a batch of another size in between.
  for (const std::int64_t samples : {GetParam().input[0], std::int64_t{1}, GetParam().input[0]}) {
    auto shape = GetParam().input;
    shape[0] = samples;
    const Tensor input = torch::randn(shape);
    module->zero_grad();
    const Tensor slow = module->forward(input);
    (slow * slow).sum().backward();
    const auto expected = grads_of(module);

    module->zero_grad();
    const Tensor fast = planned.forward(input);
    EXPECT_TRUE(is_planned(fast));
    EXPECT_TRUE(torch::allclose(fast, slow, 1e-5, 1e-6));
    (fast * fast).sum().backward();
    expect_close(grads_of(module), expected);

    // Gradients are added to the existing ones.
    (planned.forward(input).square()).sum().backward();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::allclose(module->parameters()[i].grad(), expected[i] * 2, 1e-4, 1e-5));
    }
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(torch::allclose(planned.forward(input), slow, 1e-5, 1e-6));
  }
}

TEST_P(PlannedSequentialTest, TheSameStepHasTheSameBits) {
  torch::manual_seed(5);
  nn::Sequential module = GetParam().make();
  PlannedSequential planned(module.ptr());
  const Tensor input = torch::randn(GetParam().input);
  const auto run = [&] {
    module->zero_grad();
    const Tensor output = planned.forward(input);
    output.square().sum().backward();
    return std::pair(output, grads_of(module));
  };
  const auto [output, grads] = run();
  const auto [again, grads_again] = run();
  EXPECT_TRUE(output.equal(again));
  for (std::size_t i = 0; i < grads.size(); ++i) EXPECT_TRUE(grads[i].equal(grads_again[i]));
}

TEST_P(PlannedSequentialTest, OutputsAreTheCallersToKeep) {
  nn::Sequential module = GetParam().make();
  PlannedSequential planned(module.ptr());
  const Tensor one = torch::randn(GetParam().input);
  const Tensor two = torch::randn(GetParam().input);
  for (const bool grad : {true, false}) {
    const torch::AutoGradMode mode(grad);
    const Tensor first = planned.forward(one);
    const Tensor copy = first.detach().clone();
    const Tensor second = planned.forward(two);
    EXPECT_TRUE(first.equal(copy));
    EXPECT_FALSE(first.equal(second));
  }
}

// Two forwards before their backwards, as with two halves of a batch.
TEST_P(PlannedSequentialTest, PassesDoNotDisturbEachOther) {
  torch::manual_seed(6);
  nn::Sequential module = GetParam().make();
  PlannedSequential planned(module.ptr());
  const Tensor one = torch::randn(GetParam().input);
  const Tensor two = torch::randn(GetParam().input);
  (module->forward(one).square().sum() - module->forward(two).square().sum()).backward();
  const auto expected = grads_of(module);
  module->zero_grad();
  (planned.forward(one).square().sum() - planned.forward(two).square().sum()).backward();
  expect_close(grads_of(module), expected);
}

TEST_P(PlannedSequentialTest, GradientsCanBeAskedForAndHaveGradients) {
  torch::manual_seed(7);
  nn::Sequential module = GetParam().make();
  PlannedSequential planned(module.ptr());
  const Tensor input = torch::randn(GetParam().input);
  const auto asked = [&](const Tensor& output) {
    return torch::autograd::grad({output.square().sum()}, module->parameters());
  };
  expect_close(asked(planned.forward(input)), asked(module->forward(input)));
  EXPECT_FALSE(module->parameters()[0].grad().defined() &&
               module->parameters()[0].grad().abs().sum().item<float>() > 0);

  const auto penalty = [&](const Tensor& output) {
    const auto grads = torch::autograd::grad({output.square().sum()}, {module->parameters()[0]}, {},
                                             true, /*create_graph=*/true);
    module->zero_grad();
    grads[0].square().sum().backward();
    return grads_of(module);
  };
  expect_close(penalty(planned.forward(input)), penalty(module->forward(input)));
}

TEST_P(PlannedSequentialTest, DirectGradientsAreTheSame) {
  torch::manual_seed(8);
  nn::Sequential module = GetParam().make();
  PlannedSequential planned(module.ptr());
  const Tensor input = torch::randn(GetParam().input);
  planned.forward(input).square().sum().backward();
  const auto expected = grads_of(module);
  module->zero_grad();
  Tensor loss;
  {
    const DirectGradients direct(true);
    loss = planned.forward(input).square().sum();
    const DirectGradients not_direct(false);
    EXPECT_EQ(planned.forward(input).grad_fn()->num_outputs(), module->parameters().size());
  }
  loss.backward();
  const auto grads = grads_of(module);
  for (std::size_t i = 0; i < grads.size(); ++i) EXPECT_TRUE(grads[i].equal(expected[i]));
}

TEST_P(PlannedSequentialTest, SwitchesAndThreadsChangeNothingButRounding) {
  torch::manual_seed(9);
  nn::Sequential module = GetParam().make();
  PlannedSequential planned(module.ptr());
  const Tensor input = torch::randn(GetParam().input);
  const auto run = [&] {
    module->zero_grad();
    // A gradient with another memory layout than the output.
    const Tensor turned = planned.forward(input).transpose(0, -1);
    (turned * torch::linspace(-1, 1, turned.numel()).view(turned.sizes())).sum().backward();
    return grads_of(module);
  };
  const auto expected = run();
  {
    const WithoutSpeedup without(Speedup::kPatches);
    expect_close(run(), expected);
  }
  const int threads = torch::get_num_threads();
  torch::set_num_threads(3);
  const auto with_threads = run();
  expect_close(with_threads, expected);
  const auto again = run();
  for (std::size_t i = 0; i < again.size(); ++i) EXPECT_TRUE(again[i].equal(with_threads[i]));
  torch::set_num_threads(threads);
}

TEST(PlannedSequential, ALayerThatComesTwiceIsTrainedOnce) {
  nn::Linear shared(4, 4);
  nn::Sequential module(shared, nn::ReLU(), shared);
  PlannedSequential planned(module.ptr());
  const Tensor input = torch::randn({3, 4});
  const auto grads = [&](const Tensor& output, bool create_graph) {
    module->zero_grad();
    output.square().sum().backward({}, create_graph, create_graph);
    return std::vector<Tensor>{shared->weight.grad().detach().clone(),
                               shared->bias.grad().detach().clone()};
  };
  for (const bool create_graph : {false, true}) {
    expect_close(grads(planned.forward(input), create_graph),
                 grads(module->forward(input), create_graph));
  }
}

TEST(PlannedSequential, AnOutputMayBeChangedUnlessItIsNeeded) {
  nn::Sequential module = make_mlp();
  PlannedSequential planned(module.ptr());
  const Tensor input = torch::randn({4, 24});
  Tensor output = planned.forward(input);
  output.mul_(2);
  output.sum().backward();
  module->push_back(nn::ReLU());
  output = planned.forward(input);
  EXPECT_TRUE(is_planned(output));
  output.mul_(2);
  EXPECT_THROW(output.sum().backward(), c10::Error);
}

TEST(PlannedSequential, AGradientThatLiesOtherwiseIsStillAddedTo) {
  nn::Sequential module = make_mlp();
  PlannedSequential planned(module.ptr());
  const Tensor input = torch::randn({4, 24});
  planned.forward(input).sum().backward();
  const auto expected = grads_of(module);
  auto parameters = module->parameters();
  parameters[0].mutable_grad() = torch::ones({1}).expand_as(parameters[0]);
  parameters[1].mutable_grad() = Tensor();
  parameters[2].mutable_grad() = torch::ones({16, 8}).t();
  planned.forward(input).sum().backward();
  EXPECT_TRUE(torch::allclose(parameters[0].grad(), expected[0] + 1, 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(parameters[1].grad(), expected[1], 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(parameters[2].grad(), expected[2] + 1, 1e-5, 1e-6));
}

TEST(PlannedSequential, WhatALayerCannotTakeGoesTheOldWay) {
  nn::Sequential module(nn::Conv2d(1, 2, 3), nn::MaxPool2d(20), nn::Flatten(), nn::Linear(2, 2));
  PlannedSequential planned(module.ptr());
  for (int i = 0; i < 2; ++i) {
    const Tensor input = torch::randn({2, 1, 22, 22});
    const Tensor output = planned.forward(input);
    EXPECT_FALSE(is_planned(output));
    EXPECT_TRUE(output.equal(module->forward(input)));
  }
  nn::Sequential nothing(nn::Linear(4, 0));
  PlannedSequential planned_nothing(nothing.ptr());
  EXPECT_FALSE(is_planned(planned_nothing.forward(torch::randn({3, 4}))));
  // Without a batch dimension, and without samples.
  nn::Sequential conv(nn::Conv2d(1, 2, 3), nn::ReLU());
  PlannedSequential planned_conv(conv.ptr());
  EXPECT_EQ(planned_conv.forward(torch::randn({1, 5, 5})).dim(), 3);
  EXPECT_EQ(planned_conv.forward(torch::randn({0, 1, 5, 5})).size(0), 0);
}

TEST(PlannedSequential, NotANumberAndInfinityGoThroughReluAndPooling) {
  nn::Sequential module(nn::Conv2d(nn::Conv2dOptions(1, 2, 1).bias(false)), nn::ReLU(),
                        nn::MaxPool2d(2));
  PlannedSequential planned(module.ptr());
  Tensor input = torch::randn({1, 1, 16, 16});
  input[0][0][3][4] = std::numeric_limits<float>::quiet_NaN();
  input[0][0][8][9] = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(planned.forward(input).nan_to_num(5).equal(module->forward(input).nan_to_num(5)));
}

TEST(PlannedSequential, FrozenLayersKeepTheirPlaceAndGetNoGradient) {
  nn::Sequential module = make_mlp();
  auto parameters = module->parameters();
  parameters[0].set_requires_grad(false);
  parameters[1].set_requires_grad(false);
  parameters[3].set_requires_grad(false);
  PlannedSequential planned(module.ptr());
  const Tensor input = torch::randn({4, 24});
  planned.forward(input).square().sum().backward();
  EXPECT_FALSE(parameters[0].grad().defined());
  EXPECT_FALSE(parameters[3].grad().defined());
  const Tensor grad = parameters[2].grad().clone();
  module->zero_grad();
  module->forward(input).square().sum().backward();
  EXPECT_TRUE(torch::allclose(grad, parameters[2].grad(), 1e-4, 1e-6));
  for (auto& parameter : parameters) parameter.set_requires_grad(false);
  EXPECT_FALSE(planned.forward(input).requires_grad());
}

TEST(PlannedSequential, GoesTheOldWayWhereItMust) {
  const Tensor input = torch::randn({4, 24});
  nn::Sequential module = make_mlp();
  PlannedSequential planned(module.ptr());
  EXPECT_TRUE(is_planned(planned.forward(input)));
  EXPECT_FALSE(is_planned(planned.forward(input.clone().requires_grad_())));
  {
    const WithoutSpeedup without(Speedup::kPlan);
    EXPECT_FALSE(is_planned(planned.forward(input)));
  }
  // A hook reads a gradient during backward().
  int seen = 0;
  module->parameters()[0].register_hook([&](const Tensor&) { ++seen; });
  const Tensor output = planned.forward(input);
  EXPECT_FALSE(is_planned(output));
  output.sum().backward();
  EXPECT_EQ(seen, 1);

  module->push_back(nn::Dropout());
  EXPECT_FALSE(is_planned(planned.forward(input)));
  nn::Sequential in_double = make_mlp();
  in_double->to(torch::kFloat64);
  PlannedSequential planned_double(in_double.ptr());
  EXPECT_FALSE(is_planned(planned_double.forward(input.to(torch::kFloat64))));
  // LibTorch refuses an input that does not fit.
  EXPECT_THROW(planned.forward(torch::randn({4, 23})), c10::Error);
}

TEST(PlannedSequential, ALayerAddedLaterIsPartOfIt) {
  nn::Sequential module(nn::Linear(4, 4));
  PlannedSequential planned(module.ptr());
  const Tensor input = torch::randn({2, 4});
  planned.forward(input);
  module->push_back(nn::ReLU());
  EXPECT_TRUE(planned.forward(input).equal(module->forward(input)));
  EXPECT_TRUE(is_planned(planned.forward(input)));
}

TEST(PlannedSequential, ChangesBetweenForwardAndBackwardAreRefused) {
  nn::Sequential module = make_mlp();
  PlannedSequential planned(module.ptr());
  const Tensor input = torch::randn({4, 24});
  const Tensor output = planned.forward(input);
  {
    const torch::NoGradGuard no_grad;
    module->parameters()[2].mul_(2);
  }
  EXPECT_THROW(output.sum().backward(), c10::Error);
  // A parameter that is not trained is used in backward(), too.
  module->parameters()[4].set_requires_grad(false);
  const Tensor above_frozen = planned.forward(input);
  {
    const torch::NoGradGuard no_grad;
    module->parameters()[4].mul_(2);
  }
  EXPECT_THROW(above_frozen.sum().backward(), c10::Error);
  Tensor changed = torch::randn({4, 24});
  const Tensor of_changed = planned.forward(changed);
  changed.zero_();
  EXPECT_THROW(of_changed.sum().backward(), c10::Error);
}

TEST_P(PlannedSequentialTest, ASecondBackwardNeedsTheGraphToBeKept) {
  nn::Sequential module = GetParam().make();
  PlannedSequential planned(module.ptr());
  const Tensor loss = planned.forward(torch::randn(GetParam().input)).square().sum();
  loss.backward({}, /*retain_graph=*/true);
  const auto once = grads_of(module);
  loss.backward();
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_TRUE(torch::allclose(module->parameters()[i].grad(), once[i] * 2, 1e-4, 1e-6));
  }
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(PlannedSequential, LetsGoOfTheBatch) {
  nn::Sequential module = make_mlp();
  PlannedSequential planned(module.ptr());
  const Tensor input = torch::randn({4, 2, 12});
  planned.forward(input).sum().backward();
  EXPECT_EQ(input.use_count(), 1U);
  EXPECT_EQ(input.storage().use_count(), 1U);
}

}  // namespace
}  // namespace lockstep::compute
