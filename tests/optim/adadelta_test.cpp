#include "lockstep/optim/adadelta.h"

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;

TEST(Adadelta, FollowsPyTorch) {
  expect_golden("Adadelta", [](const nlohmann::json& json) {
    return Adadelta{.lr = json.value("lr", 1.0),
                    .rho = json.value("rho", 0.9),
                    .eps = json.value("eps", 1e-6),
                    .weight_decay = json.value("weight_decay", 0.0)};
  });
}

TEST(Adadelta, ResumesToTheBit) {
  expect_resumes(Adadelta{.lr = 0.5, .weight_decay = 0.1}, Adadelta{.rho = 0.5});
}

TEST(Adadelta, HasNoMomentum) {
  Training training(Adadelta{}, torch::kFloat32);
  EXPECT_EQ(training.optimizer->momentum(), std::nullopt);
  EXPECT_EQ(message_of<Error>([&] { training.optimizer->set_momentum(0.9); }),
            "optimizer Adadelta: it has no momentum that could be set to 0.9");
}

TEST(Adadelta, NamesABadValue) {
  EXPECT_EQ(config_error(Adadelta{.rho = 1.0}),
            "optimizer Adadelta: rho: expected a number in [0, 1), got 1");
}

}  // namespace
}  // namespace lockstep::optim
