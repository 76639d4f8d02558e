#include "lockstep/optim/adamax.h"

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;

TEST(Adamax, FollowsPyTorch) {
  expect_golden("Adamax", [](const nlohmann::json& json) {
    return Adamax{.lr = json["lr"],
                  .beta1 = json.value("beta1", 0.9),
                  .beta2 = json.value("beta2", 0.999),
                  .eps = json.value("eps", 1e-8),
                  .weight_decay = json.value("weight_decay", 0.0)};
  });
}

TEST(Adamax, ResumesToTheBit) {
  expect_resumes(Adamax{.lr = 0.02, .weight_decay = 0.1}, Adamax{});
}

TEST(Adamax, NamesABadValue) {
  EXPECT_EQ(config_error(Adamax{.eps = 0.0}),
            "optimizer Adamax: eps: expected a number > 0, got 0");
}

}  // namespace
}  // namespace lockstep::optim
