#include "lockstep/optim/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

namespace lockstep::optim {
namespace {

TEST(Describe, AnOptimizerHasAllItsNumbers) {
  EXPECT_EQ(describe(OptimizerSpec()), "none");
  EXPECT_EQ(describe(OptimizerSpec(SGD{.lr = 0.1, .momentum = 0.9})),
            "SGD(lr=0.1, momentum=0.9, dampening=0, weight_decay=0, nesterov=false)");
  EXPECT_NE(describe(OptimizerSpec(Adam{.lr = 0.1})),
            describe(OptimizerSpec(Adam{.lr = 0.1 + 1e-17 + 1e-16})));
  EXPECT_EQ(describe(OptimizerSpec(Adagrad{}, {{.names = "*.bias", .lr = 0.5}})),
            "Adagrad(lr=0.01, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10) "
            "with *.bias(lr=0.5, weight_decay=none)");
  EXPECT_THAT(describe(OptimizerSpec(
                  SGD{}, {{.names = "a", .lr_factor = 0.5}, {.names = "b", .frozen = true}})),
              ::testing::EndsWith(" with a(lr=none, weight_decay=none, lr_factor=0.5) with "
                                  "b(lr=none, weight_decay=none, frozen=true)"));
}

TEST(Describe, ATorchOptimizerHasAllOptionsOfEveryGroup) {
  const auto text = [](const torch::optim::SGDOptions& second) {
    const auto weight = [] { return std::vector{torch::ones({2}).requires_grad_()}; };
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(weight());
    groups.emplace_back(weight(), std::make_unique<torch::optim::SGDOptions>(second));
    return describe(
        OptimizerSpec(std::make_shared<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.25))));
  };
  const std::string plain = text(torch::optim::SGDOptions(0.5));
  EXPECT_THAT(plain, ::testing::MatchesRegex(
                         "torch::optim::SGD\\(.*lr=0.25.*\\)\\(.*lr=0.5.*weight_decay=0.*\\)"));
  EXPECT_EQ(text(torch::optim::SGDOptions(0.5)), plain);
  EXPECT_NE(text(torch::optim::SGDOptions(0.5).weight_decay(0.1)), plain);
}

// A function may make one of Lockstep's optimizers.
TEST(Describe, AnOptimizerThatWasMadeHasTheTextOfItsOptions) {
  const std::vector<ParameterSettings> settings = {{.names = "weight", .weight_decay = 0.5}};
  for (const OptimizerSpec& spec : std::vector<OptimizerSpec>{{Adam{.beta2 = 0.5}, settings},
                                                              AdamW{.amsgrad = true},
                                                              SGD{.momentum = 0.9},
                                                              RMSprop{.centered = true},
                                                              Adagrad{.lr_decay = 0.1},
                                                              RAdam{.eps = 0.5},
                                                              NAdam{.momentum_decay = 0.5},
                                                              Adamax{.beta1 = 0.5},
                                                              Adadelta{.rho = 0.5},
                                                              Lion{.beta2 = 0.5},
                                                              {Lamb{}, settings},
                                                              Lookahead{.optimizer = SGD{}}}) {
    FlatParameters parameters({{"weight", torch::ones({2}).requires_grad_()}});
    EXPECT_EQ(spec.make(parameters)->describe(), describe(spec));
  }
}

TEST(Describe, ASchedulerHasAllItsNumbers) {
  EXPECT_EQ(describe(SchedulerSpec()), "none");
  EXPECT_EQ(describe(SchedulerSpec(StepLR{.step_size = 3})),
            "StepLR(step_size=3, gamma=0.1, per=epoch)");
  EXPECT_EQ(describe(SchedulerSpec(MultiStepLR{.milestones = {2, 4}, .per = Per::kBatch})),
            "MultiStepLR(milestones=[2, 4], gamma=0.1, per=batch)");
  EXPECT_NE(describe(SchedulerSpec(OneCycleLR{.max_lr = 1})),
            describe(SchedulerSpec(OneCycleLR{.max_lr = 1, .anneal = Anneal::kLinear})));
  EXPECT_EQ(describe(chain({ExponentialLR{.gamma = 0.5}, StepLR{.step_size = 3}}, {4})),
            "SequentialLR(schedulers=[ExponentialLR(gamma=0.5, per=epoch), "
            "StepLR(step_size=3, gamma=0.1, per=epoch)], milestones=[4])");
  EXPECT_EQ(describe(SchedulerSpec(FunctionLR{})), "FunctionLR(per=epoch)");
  EXPECT_EQ(describe(SchedulerSpec(CyclicLR{.max_lr = 1, .mode = CycleMode::kTriangular2})),
            "CyclicLR(base_lr=none, max_lr=1, step_size_up=2000, step_size_down=none, "
            "mode=triangular2, gamma=1, cycle_momentum=true, base_momentum=0.8, max_momentum=0.9, "
            "per=batch)");
}

}  // namespace
}  // namespace lockstep::optim
