// The gradients of a DistributedModel, and the buffers of a checkpointed module, on a GPU.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/compute/checkpointed.h"
#include "lockstep/dist/gradient_message.h"
#include "tests/support/gpu.h"

namespace lockstep {
namespace {

class ModulesOnAGpu : public OneGpu {};

// The same message is used in every pass: numbers of one pass must not be taken for another's.
TEST_F(ModulesOnAGpu, SendTheirGradientsInEveryPass) {
  const auto on_gpu = torch::TensorOptions(torch::kCUDA);
  const torch::Tensor parameter = torch::zeros({1000, 1000}, on_gpu.requires_grad(true));
  dist::GradientMessage message({parameter});
  for (int pass = 1; pass <= 20; ++pass) {
    parameter.mutable_grad() = torch::full({1000, 1000}, pass, on_gpu);
    message.write_gradient(0, {.weight = 3});
    message.write_head({.weight = 3, .place = {1, pass, 2}});
    message.array().mul_(2);  // the sum of two ranks that have sent the same
    EXPECT_TRUE(message.has_place({1, pass, 2}, 2)) << pass;
    EXPECT_FALSE(message.has_place({1, pass + 1, 2}, 2)) << pass;
    message.read_means();
    EXPECT_TRUE(parameter.grad().eq(pass).all().item<bool>()) << pass;
  }
}

TEST_F(ModulesOnAGpu, HaveTheSameBuffersIfActivationsAreComputedAgain) {
  namespace nn = torch::nn;
  std::vector<std::vector<torch::Tensor>> results;
  for (const bool again : {false, true}) {
    torch::manual_seed(1);
    nn::Sequential model(nn::Linear(8, 8), nn::BatchNorm1d(8), nn::Tanh());
    model->to(torch::kCUDA);
    const torch::Tensor input = torch::randn({16, 8}).to(torch::kCUDA);
    for (int step = 0; step < 3; ++step) {
      const torch::Tensor output =
          again ? checkpointed(model)->forward(input) : model->forward(input);
      output.square().mean().backward();
    }
    results.emplace_back();
    for (const auto& buffer : model->buffers()) results.back().push_back(buffer.cpu());
    for (const auto& weight : model->parameters()) results.back().push_back(weight.grad().cpu());
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(results[0][i].allclose(results[1][i])) << i;
  }
}

}  // namespace
}  // namespace lockstep
