#include "lockstep/optim/adagrad.h"

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;

TEST(Adagrad, FollowsPyTorch) {
  expect_golden("Adagrad", [](const nlohmann::json& json) {
    return Adagrad{.lr = json["lr"],
                   .lr_decay = json.value("lr_decay", 0.0),
                   .weight_decay = json.value("weight_decay", 0.0),
                   .initial_accumulator_value = json.value("initial_accumulator_value", 0.0),
                   .eps = json.value("eps", 1e-10)};
  });
}

TEST(Adagrad, ResumesToTheBit) {
  expect_resumes(Adagrad{.lr = 0.1, .lr_decay = 0.05}, Adagrad{.initial_accumulator_value = 3.0});
}

TEST(Adagrad, HasNoMomentum) {
  Training training(Adagrad{}, torch::kFloat32);
  EXPECT_EQ(training.optimizer->momentum(), std::nullopt);
  EXPECT_EQ(message_of<Error>([&] { training.optimizer->set_momentum(0.9); }),
            "optimizer Adagrad: it has no momentum that could be set to 0.9");
}

TEST(Adagrad, NamesABadValue) {
  EXPECT_EQ(config_error(Adagrad{.lr_decay = -1.0}),
            "optimizer Adagrad: lr_decay: expected a number >= 0, got -1");
  EXPECT_EQ(config_error(Adagrad{.initial_accumulator_value = -0.5}),
            "optimizer Adagrad: initial_accumulator_value: expected a number >= 0, got -0.5");
}

}  // namespace
}  // namespace lockstep::optim
