#include "lockstep/optim/describe.h"

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
  const auto weight = torch::ones({2}).requires_grad_();
  EXPECT_EQ(describe(OptimizerSpec(
                std::make_shared<torch::optim::SGD>(std::vector<torch::Tensor>{weight}, 0.25))),
            "torch::optim::SGD(lr=[0.25])");
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
}

}  // namespace
}  // namespace lockstep::optim
