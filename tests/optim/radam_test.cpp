#include "lockstep/optim/radam.h"

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;

TEST(RAdam, FollowsPyTorch) {
  expect_golden("RAdam", [](const nlohmann::json& json) {
    return RAdam{.lr = json["lr"],
                 .beta1 = json.value("beta1", 0.9),
                 .beta2 = json.value("beta2", 0.999),
                 .eps = json.value("eps", 1e-8),
                 .weight_decay = json.value("weight_decay", 0.0)};
  });
}

TEST(RAdam, ResumesToTheBit) {
  expect_resumes(RAdam{.lr = 0.02, .weight_decay = 0.1}, RAdam{});
}

// The mean of such few squares never has a known variance: the formula has no real root.
TEST(RAdam, IsMomentumIfTheSquaresAreForgottenAtOnce) {
  Training training(RAdam{.lr = 0.02, .beta2 = 0.5}, torch::kFloat64);
  training.run(1, 30);
  EXPECT_TRUE(training.problem.weights().isfinite().all().item<bool>());
}

TEST(RAdam, NamesABadValue) {
  EXPECT_EQ(config_error(RAdam{.beta2 = 1.0}),
            "optimizer RAdam: beta2: expected a number in [0, 1), got 1");
  EXPECT_EQ(config_error(RAdam{.lr = -1.0}), "optimizer RAdam: lr: expected a number >= 0, got -1");
}

}  // namespace
}  // namespace lockstep::optim
