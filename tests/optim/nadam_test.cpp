#include "lockstep/optim/nadam.h"

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;

TEST(NAdam, FollowsPyTorch2) {
  expect_golden("NAdam", [](const nlohmann::json& json) {
    return NAdam{.lr = json["lr"],
                 .beta1 = json.value("beta1", 0.9),
                 .beta2 = json.value("beta2", 0.999),
                 .eps = json.value("eps", 1e-8),
                 .weight_decay = json.value("weight_decay", 0.0),
                 .momentum_decay = json.value("momentum_decay", 4e-3)};
  });
}

TEST(NAdam, ResumesToTheBit) {
  expect_resumes(NAdam{.lr = 0.02, .weight_decay = 0.1}, NAdam{.momentum_decay = 0.1});
}

TEST(NAdam, MomentumIsBeta1) {
  Training training(NAdam{}, torch::kFloat32);
  training.optimizer->set_momentum(0.8);
  EXPECT_EQ(training.optimizer->momentum(), 0.8);
  EXPECT_EQ(training.optimizer->state().get<double>("beta1"), 0.8);
}

TEST(NAdam, NamesABadValue) {
  EXPECT_EQ(config_error(NAdam{.momentum_decay = -1.0}),
            "optimizer NAdam: momentum_decay: expected a number >= 0, got -1");
}

}  // namespace
}  // namespace lockstep::optim
