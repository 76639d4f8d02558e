#include "lockstep/optim/adam.h"

#include <gmock/gmock.h>

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;

template <typename Options>
OptimizerSpec parse(const nlohmann::json& json) {
  const Options defaults;
  return Options{.lr = json.value("lr", defaults.lr),
                 .beta1 = json.value("beta1", defaults.beta1),
                 .beta2 = json.value("beta2", defaults.beta2),
                 .eps = json.value("eps", defaults.eps),
                 .weight_decay = json.value("weight_decay", defaults.weight_decay),
                 .amsgrad = json.value("amsgrad", defaults.amsgrad)};
}

TEST(Adam, FollowsPyTorch) {
  expect_golden("Adam", parse<Adam>);
}

TEST(AdamW, FollowsPyTorch) {
  expect_golden("AdamW", parse<AdamW>);
}

TEST(Adam, ClippingByNormIsPyTorchs) {
  const nlohmann::json golden = load_golden("optim_optimizers.json");
  const auto& clipped = golden["clipped_adam"];
  Training training(Adam{.lr = clipped["lr"]}, torch::kFloat64);
  std::size_t recorded = 0;
  for (int step = 1; step <= golden["steps"]; ++step) {
    training.problem.add_grads(step);
    const double norm = training.flat.grad_norm();
    training.optimizer->step(
        {.grad_scale = clip_scale({.norm = norm, .max_norm = clipped["max_norm"]})});
    if (step != golden["recorded"][recorded]) continue;
    expect_close(training.problem.weights(),
                 clipped["float64"][recorded++].get<std::vector<double>>(), 1e-12);
  }
  EXPECT_EQ(recorded, golden["recorded"].size());
}

TEST(Adam, ResumesToTheBit) {
  expect_resumes(Adam{.lr = 0.02, .weight_decay = 0.1}, Adam{});
  expect_resumes(Adam{.lr = 0.02, .beta1 = 0.7, .amsgrad = true}, Adam{});
  expect_resumes(Adam{.lr = 0.02}, Adam{.amsgrad = true});
  expect_resumes(AdamW{.lr = 0.02, .amsgrad = true}, AdamW{});
}

TEST(Adam, StateHasOneTensorPerParameter) {
  Training training(Adam{.lr = 0.02, .amsgrad = true}, torch::kFloat32);
  training.run(1, 3);
  const StateDict state = training.optimizer->state();
  EXPECT_EQ(state.get<std::string>("name"), "Adam");
  EXPECT_EQ(state.get<std::int64_t>("step"), 3);
  EXPECT_EQ(state.get<double>("lr"), 0.02);
  EXPECT_EQ(state.get<bool>("amsgrad"), true);
  for (const char* slot : {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}) {
    const StateDict tensors = tensors_in(state, slot);
    EXPECT_THAT(tensors.keys(), ::testing::ElementsAre("weight", "bias", "scale"));
    EXPECT_EQ(tensors.get<torch::Tensor>("weight").sizes(), (std::vector<std::int64_t>{3, 5}));
  }
}

TEST(Adam, MomentumIsBeta1) {
  Training training(Adam{}, torch::kFloat32);
  EXPECT_EQ(training.optimizer->momentum(), 0.9);
  training.optimizer->set_momentum(0.8);
  EXPECT_EQ(training.optimizer->momentum(), 0.8);
  EXPECT_EQ(training.optimizer->state().get<double>("beta1"), 0.8);
}

TEST(Adam, NamesABadValue) {
  EXPECT_EQ(config_error(Adam{.lr = -1.0}), "optimizer Adam: lr: expected a number >= 0, got -1");
  EXPECT_EQ(config_error(AdamW{.beta1 = 1.0}),
            "optimizer AdamW: beta1: expected a number in [0, 1), got 1");
  EXPECT_EQ(config_error(Adam{.beta2 = -0.5}),
            "optimizer Adam: beta2: expected a number in [0, 1), got -0.5");
  EXPECT_EQ(config_error(Adam{.eps = 0.0}), "optimizer Adam: eps: expected a number > 0, got 0");
  EXPECT_EQ(config_error(Adam{.weight_decay = NAN}),
            "optimizer Adam: weight_decay: expected a number >= 0, got nan");
  Training training(Adam{}, torch::kFloat32);
  EXPECT_THROW(training.optimizer->set_lr(-0.1), ConfigError);
  EXPECT_EQ(training.optimizer->lr(), 1e-3);
}

}  // namespace
}  // namespace lockstep::optim
