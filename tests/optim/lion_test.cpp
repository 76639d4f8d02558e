#include "lockstep/optim/lion.h"

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;

TEST(Lion, FollowsThePaper) {
  expect_golden("Lion", [](const nlohmann::json& json) {
    return Lion{.lr = json["lr"],
                .beta1 = json.value("beta1", 0.9),
                .beta2 = json.value("beta2", 0.99),
                .weight_decay = json.value("weight_decay", 0.0)};
  });
}

TEST(Lion, ResumesToTheBit) {
  expect_resumes(Lion{.lr = 0.02, .weight_decay = 0.1}, Lion{});
}

TEST(Lion, AGradientOfZeroIsNoStep) {
  const torch::Tensor parameter = torch::ones({3}).requires_grad_();
  FlatParameters flat({{"p", parameter}});
  const auto optimizer = OptimizerSpec(Lion{.lr = 0.25}).make(flat);
  parameter.mutable_grad().copy_(torch::tensor({0.0, 2.0, -0.001}));
  optimizer->step();
  EXPECT_TRUE(parameter.detach().equal(torch::tensor({1.0, 0.75, 1.25}))) << parameter;
}

TEST(Lion, NamesABadValue) {
  EXPECT_EQ(config_error(Lion{.beta1 = 1.5}),
            "optimizer Lion: beta1: expected a number in [0, 1), got 1.5");
}

}  // namespace
}  // namespace lockstep::optim
