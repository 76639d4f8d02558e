#include "lockstep/compute/planned_layer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep::compute {
namespace {

namespace nn = torch::nn;
using Modules = std::vector<std::shared_ptr<nn::Module>>;

class MyReLUImpl : public nn::ReLUImpl {};

TEST(PlanLayers, MergesReluIntoItsNeighbour) {
  const Modules modules = {
      nn::Conv2d(1, 2, 3).ptr(), nn::ReLU().ptr(), nn::MaxPool2d(2).ptr(), nn::Flatten().ptr(),
      nn::Linear(8, 4).ptr(),    nn::ReLU().ptr(), nn::Linear(4, 2).ptr()};
  EXPECT_EQ(plan_layers(modules).size(),
            5U);  // conv, relu and pool, flatten, linear and relu, linear
  EXPECT_EQ(
      plan_layers({nn::Conv3d(1, 2, 3).ptr(), nn::MaxPool3d(2).ptr(), nn::ReLU().ptr()}).size(),
      2U);
  EXPECT_EQ(plan_layers({nn::Conv1d(1, 2, 3).ptr(), nn::ReLU().ptr()}).size(), 1U);
  EXPECT_EQ(plan_layers({nn::ReLU().ptr(), nn::ReLU().ptr()}).size(), 2U);
}

TEST(PlanLayers, KnowsNothingElse) {
  for (const auto& unknown :
       Modules{nn::Dropout().ptr(), nn::BatchNorm2d(3).ptr(), std::make_shared<MyReLUImpl>(),
               nn::Conv2d(nn::Conv2dOptions(1, 2, 3).padding_mode(torch::kReflect)).ptr(),
               nn::Conv2d(nn::Conv2dOptions(1, 2, 3).padding(torch::kSame)).ptr()}) {
    EXPECT_TRUE(plan_layers({nn::Linear(2, 2).ptr(), unknown}).empty()) << *unknown;
  }
}

}  // namespace
}  // namespace lockstep::compute
