#include "lockstep/optim/flat_optimizer.h"

#include <gmock/gmock.h>

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;
using ::testing::HasSubstr;

// The state of an Adam with its exp_avg changed.
StateDict changed_state(const std::function<void(StateDict&)>& change) {
  Training training(Adam{}, torch::kFloat32);
  training.run(1, 2);
  StateDict state = training.optimizer->state();
  auto tensors = state.get<StateDict>("exp_avg");
  change(tensors);
  state.set("exp_avg", tensors);
  return state;
}

std::string refusal(const OptimizerSpec& spec, const StateDict& state) {
  Training training(spec, torch::kFloat32);
  training.run(1, 3);
  const StateDict before = training.optimizer->state();
  const std::string message =
      message_of<CheckpointError>([&] { training.optimizer->load_state(state); });
  const StateDict after = training.optimizer->state();
  EXPECT_EQ(after.get<std::int64_t>("step"), 3) << "a refused state left its mark";
  EXPECT_EQ(after.get<double>("lr"), before.get<double>("lr"));
  return message;
}

TEST(FlatOptimizer, RefusesAnotherOptimizersState) {
  Training training(SGD{}, torch::kFloat32);
  EXPECT_EQ(refusal(Adam{}, training.optimizer->state()),
            "optimizer Adam: expected its own state, found that of SGD");
}

TEST(FlatOptimizer, RefusesAStateOfOtherParameters) {
  StateDict missing = changed_state([](StateDict& tensors) {
    StateDict fewer;
    fewer.set("weight", tensors.at("weight"));
    fewer.set("bias", tensors.at("bias"));
    tensors = fewer;
  });
  EXPECT_EQ(refusal(Adam{}, missing),
            "optimizer Adam: exp_avg: nothing for the model's parameter scale");
  EXPECT_THAT(refusal(Adam{}, changed_state([](StateDict& tensors) {
                        tensors.set("biases", torch::zeros({7}));
                      })),
              HasSubstr("exp_avg: the model has no parameter biases; did you mean 'bias'"));
}

TEST(FlatOptimizer, RefusesAnotherShapeOrType) {
  EXPECT_EQ(refusal(Adam{}, changed_state([](StateDict& tensors) {
                      tensors.set("weight", torch::zeros({5, 3}));
                    })),
            "optimizer Adam: exp_avg: parameter weight: expected Float [3, 5], found Float [5, 3]");
  EXPECT_EQ(refusal(Adam{}, changed_state([](StateDict& tensors) {
                      tensors.set("bias", torch::zeros({7}, torch::kFloat64));
                    })),
            "optimizer Adam: exp_avg: parameter bias: expected Float [7], found Double [7]");
}

TEST(FlatOptimizer, RefusesAStateThatLacksABuffer) {
  Training training(Adam{}, torch::kFloat32);
  StateDict state = training.optimizer->state();
  state.set("amsgrad", true);
  EXPECT_EQ(refusal(Adam{}, state), "optimizer Adam: no 'max_exp_avg_sq' in its state");
}

TEST(FlatOptimizer, RefusesABadHyperParameter) {
  Training training(Adam{}, torch::kFloat32);
  StateDict state = training.optimizer->state();
  state.set("beta1", 1.5);
  EXPECT_EQ(refusal(Adam{}, state),
            "in the state of an optimizer: optimizer Adam: beta1: expected a number in [0, 1), "
            "got 1.5");
}

TEST(FlatOptimizer, LeavesScaledGradientsWhereAsked) {
  Training training(SGD{.lr = 0.5}, torch::kFloat64);
  const torch::Tensor before = training.problem.weights();
  training.problem.add_grads(1);
  const torch::Tensor grads = training.flat.buffers()[0].grads.clone();
  training.optimizer->step({.grad_scale = 0.25, .zero_grad = false});
  expect_same_bits(training.flat.buffers()[0].grads, grads * 0.25);
  const torch::Tensor bias_grad = training.problem.parameters()[1].second.grad();
  expect_same_bits(training.problem.weights().narrow(0, 15, 7),
                   before.narrow(0, 15, 7) - 0.5 * bias_grad);
  training.optimizer->step();
  EXPECT_EQ(training.flat.grad_norm(), 0.0);
}

TEST(FlatOptimizer, AnUnusedParameterHasAZeroGradient) {
  const torch::Tensor used = torch::ones({4}).requires_grad_();
  const torch::Tensor unused = torch::ones({4}).requires_grad_();
  FlatParameters flat({{"used", used}, {"unused", unused}});
  const auto optimizer = OptimizerSpec(SGD{.lr = 0.5, .weight_decay = 0.5}).make(flat);
  unused.mutable_grad().reset();
  used.sum().backward();
  optimizer->step();
  EXPECT_TRUE(torch::equal(used, torch::full({4}, 0.25)));
  EXPECT_TRUE(torch::equal(unused, torch::full({4}, 0.75))) << "weight decay alone";
}

TEST(FlatOptimizer, TrainsOtherTypesWithTorchOperations) {
  // bfloat16 keeps 8 bits: with lr 0.25 in 6 steps, 2 % of a weight is what rounding may do.
  const Adam options{.lr = 0.25};
  Training half(options, torch::kBFloat16);
  Training full(options, torch::kFloat32);
  half.run(1, 6);
  full.run(1, 6);
  const torch::Tensor moved = (full.problem.weights() - Problem(torch::kFloat32).weights()).abs();
  EXPECT_GT(moved.max().item<double>(), 0.5);
  EXPECT_TRUE(torch::allclose(half.problem.weights().to(torch::kFloat32), full.problem.weights(),
                              0.02, 0.02));
}

TEST(FlatOptimizer, UpdatesTypesSideBySide) {
  const torch::Tensor single = torch::ones({3}).requires_grad_();
  const torch::Tensor twofold = torch::ones({3}, torch::kFloat64).requires_grad_();
  FlatParameters flat({{"single", single}, {"double", twofold}});
  const auto optimizer = OptimizerSpec(SGD{.lr = 0.5, .momentum = 0.5}).make(flat);
  (single.sum() + 2.0 * twofold.sum()).backward();
  optimizer->step();
  EXPECT_TRUE(torch::equal(single, torch::full({3}, 0.5)));
  EXPECT_TRUE(torch::equal(twofold, torch::zeros({3}, torch::kFloat64)));
  const auto buffers = optimizer->state().get<StateDict>("momentum_buffer");
  EXPECT_EQ(buffers.get<torch::Tensor>("double").scalar_type(), torch::kFloat64);
  EXPECT_EQ(buffers.get<torch::Tensor>("single").scalar_type(), torch::kFloat32);
}

TEST(FlatOptimizer, AGraphFromBeforeAnUpdateIsRefused) {
  const torch::Tensor parameter = torch::ones({3}).requires_grad_();
  FlatParameters flat({{"p", parameter}});
  const auto optimizer = OptimizerSpec(SGD{}).make(flat);
  const torch::Tensor loss = (parameter * parameter).sum();
  optimizer->step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

}  // namespace
}  // namespace lockstep::optim
