#include "lockstep/optim/sgd.h"

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;

TEST(SGD, FollowsPyTorch) {
  expect_golden("SGD", [](const nlohmann::json& json) {
    return SGD{.lr = json["lr"],
               .momentum = json.value("momentum", 0.0),
               .dampening = json.value("dampening", 0.0),
               .weight_decay = json.value("weight_decay", 0.0),
               .nesterov = json.value("nesterov", false)};
  });
}

TEST(SGD, ResumesToTheBit) {
  expect_resumes(SGD{.lr = 0.05}, SGD{.lr = 0.1, .momentum = 0.9});
  expect_resumes(SGD{.lr = 0.05, .momentum = 0.9, .dampening = 0.3}, SGD{});
  expect_resumes(SGD{.lr = 0.05, .momentum = 0.9, .nesterov = true}, SGD{});
}

TEST(SGD, MomentumThatComesLaterStartsWithThatStepsGradient) {
  Training late(SGD{.lr = 0.05, .dampening = 0.5}, torch::kFloat64);
  late.run(1, 4);
  const torch::Tensor before = late.problem.weights();
  late.optimizer->set_momentum(0.9);
  late.problem.add_grads(5);
  const torch::Tensor grad = late.problem.parameters()[1].second.grad().clone();
  late.optimizer->step();
  // bias is elements 15 to 21; the first gradient is not dampened
  const torch::Tensor expected = before.narrow(0, 15, 7) - 0.05 * grad;
  EXPECT_TRUE(torch::allclose(late.problem.weights().narrow(0, 15, 7), expected, 1e-14, 1e-15));
}

TEST(SGD, NamesABadValue) {
  EXPECT_EQ(config_error(SGD{.momentum = -0.9}),
            "optimizer SGD: momentum: expected a number >= 0, got -0.9");
  EXPECT_EQ(config_error(SGD{.dampening = 1.5}),
            "optimizer SGD: dampening: expected a number in [0, 1], got 1.5");
  EXPECT_EQ(config_error(SGD{.nesterov = true}),
            "optimizer SGD: momentum (with nesterov): expected a number > 0, got 0");
  EXPECT_EQ(config_error(SGD{.momentum = 0.9, .dampening = 0.1, .nesterov = true}),
            "optimizer SGD: dampening (with nesterov): expected 0, got 0.1");
}

}  // namespace
}  // namespace lockstep::optim
