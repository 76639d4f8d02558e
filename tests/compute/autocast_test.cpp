#include "lockstep/compute/autocast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/compute/planned_sequential.h"
#include "lockstep/compute/pooling.h"
#include "tests/support/half_on_cpu.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using testing::HasSubstr;

const torch::Device kCpu = torch::kCPU;

torch::ScalarType type_of_product() {
  return torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type();
}

TEST(Autocast, ComputesInTheTypeWhileTheScopeLives) {
  {
    const AutocastScope scope("bf16", kCpu);
    EXPECT_EQ(type_of_product(), torch::kBFloat16);
    {
      const AutocastScope nothing("fp32", kCpu);
      EXPECT_EQ(type_of_product(), torch::kBFloat16) << "fp32 changes nothing";
    }
    { const AutocastScope again("bf16", kCpu); }
    EXPECT_EQ(type_of_product(), torch::kBFloat16);
  }
  EXPECT_EQ(type_of_product(), torch::kFloat32);
  EXPECT_THROW(
      {
        const AutocastScope scope("bf16", kCpu);
        throw Error("ends the scope");
      },
      Error);
  EXPECT_EQ(type_of_product(), torch::kFloat32);
}

TEST(Autocast, WeightsThatWereUpdatedAreConvertedAgain) {
  nn::Linear layer(1, 1);
  const torch::NoGradGuard no_grad;
  const auto output = [&] {
    const AutocastScope scope("bf16", kCpu);
    const torch::AutoGradMode grad(true);  // only then autocast keeps converted weights
    return layer->forward(torch::ones({1, 1})).detach().item<float>();
  };
  layer->bias.zero_();
  layer->weight.fill_(1);
  EXPECT_EQ(output(), 1);
  layer->weight.fill_(3);
  EXPECT_EQ(output(), 3);
}

TEST(Autocast, GradientsOfParametersAreFloat) {
  nn::Linear layer(3, 2);
  {
    const AutocastScope scope("bf16", kCpu);
    layer->forward(torch::ones({4, 3})).sum().backward();
  }
  EXPECT_EQ(layer->weight.grad().scalar_type(), torch::kFloat32);
  EXPECT_EQ(layer->weight.grad()[0][0].item<float>(), 4);
}

TEST(Autocast, Fp16OnTheCpuWorksOrIsRefusedByName) {
  std::string refusal;
  try {
    const AutocastScope scope("fp16", kCpu);
    EXPECT_EQ(type_of_product(), torch::kHalf);
  } catch (const ConfigError& error) {
    refusal = error.what();
  }
  if (kCpuHasHalf) {
    EXPECT_EQ(refusal, "");
  } else {
    EXPECT_THAT(refusal, testing::StartsWith("precision: fp16: LibTorch "));
    EXPECT_THAT(refusal, HasSubstr("use bf16"));
  }
  EXPECT_EQ(type_of_product(), torch::kFloat32);
}

TEST(Autocast, AnotherDeviceIsRefusedByName) {
  try {
    check_precision("bf16", torch::Device(torch::kMeta));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("meta"));
  }
  check_precision("fp32", torch::Device(torch::kMeta));
}

// A Sequential as one operation and our pooling know float32 only.
TEST(Autocast, OurKernelsStepAside) {
  compute::install_pooling();
  torch::manual_seed(1);
  nn::Sequential layers(nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)), nn::ReLU(),
                        nn::MaxPool2d(2), nn::Flatten(), nn::Linear(64, 5));
  compute::PlannedSequential planned(layers.ptr());
  const auto input = torch::randn({3, 1, 8, 8});
  const auto gradient_of = [&](const auto& forward) {
    layers->zero_grad();
    torch::Tensor output;
    {
      const AutocastScope scope("bf16", kCpu);
      output = forward();
    }
    EXPECT_EQ(output.scalar_type(), torch::kBFloat16);
    output.to(torch::kFloat32).square().sum().backward();
    return layers->parameters()[0].grad().clone();
  };
  const auto ours = gradient_of([&] { return planned.forward(input); });
  const auto theirs = gradient_of([&] { return layers->forward(input); });
  EXPECT_TRUE(ours.equal(theirs));
}

TEST(Autocast, TorchScriptFollows) {
  const auto module = torch::jit::compile("def f(x):\n  return torch.mm(x, x)\n");
  const AutocastScope scope("bf16", kCpu);
  EXPECT_EQ(module->run_method("f", torch::ones({2, 2})).toTensor().scalar_type(),
            torch::kBFloat16);
}

TEST(Autocast, WidensOnly16Bits) {
  const auto narrow = torch::ones({2}, torch::kBFloat16).requires_grad_();
  const auto wide = widened(narrow);
  EXPECT_EQ(wide.scalar_type(), torch::kFloat32);
  wide.sum().backward();
  EXPECT_EQ(narrow.grad().sum().item<float>(), 2);
  EXPECT_EQ(widened(torch::ones({2}, torch::kHalf)).scalar_type(), torch::kFloat32);
  const auto exact = torch::ones({2}, torch::kFloat64);
  EXPECT_TRUE(widened(exact).is_same(exact));
  EXPECT_FALSE(widened(torch::Tensor()).defined());
}

}  // namespace
}  // namespace lockstep
