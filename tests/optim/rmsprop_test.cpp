#include "lockstep/optim/rmsprop.h"

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;

TEST(RMSprop, FollowsPyTorch) {
  expect_golden("RMSprop", [](const nlohmann::json& json) {
    return RMSprop{.lr = json["lr"],
                   .alpha = json.value("alpha", 0.99),
                   .weight_decay = json.value("weight_decay", 0.0),
                   .momentum = json.value("momentum", 0.0),
                   .centered = json.value("centered", false)};
  });
}

TEST(RMSprop, ResumesToTheBit) {
  expect_resumes(RMSprop{}, RMSprop{.momentum = 0.5, .centered = true});
  expect_resumes(RMSprop{.lr = 0.02, .weight_decay = 0.1, .momentum = 0.9, .centered = true},
                 RMSprop{});
}

TEST(RMSprop, AConstantGradientIsNoReasonForNaN) {
  // The variance is zero then, and rounding makes it slightly positive or negative.
  const torch::Tensor parameter = torch::zeros({64}).requires_grad_();
  FlatParameters flat({{"p", parameter}});
  const auto optimizer =
      OptimizerSpec(RMSprop{.lr = 1e-6, .alpha = 0.1, .centered = true}).make(flat);
  for (int step = 0; step < 50; ++step) {
    torch::NoGradGuard no_grad;
    parameter.mutable_grad().copy_(torch::linspace(0.1, 3.3, 64));
    optimizer->step();
  }
  EXPECT_TRUE(torch::isfinite(parameter).all().item<bool>()) << parameter;
}

TEST(RMSprop, NamesABadValue) {
  EXPECT_EQ(config_error(RMSprop{.alpha = 1.0}),
            "optimizer RMSprop: alpha: expected a number in [0, 1), got 1");
  EXPECT_EQ(config_error(RMSprop{.eps = -1e-8}),
            "optimizer RMSprop: eps: expected a number > 0, got -1e-08");
}

}  // namespace
}  // namespace lockstep::optim
