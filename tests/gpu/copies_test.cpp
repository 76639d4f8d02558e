// Copies to and from a GPU that the host does not wait for.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/train/device_copies.h"
#include "tests/support/gpu.h"

namespace lockstep {
namespace {

class CopiesOfAGpu : public OneGpu {};

const torch::Device kGpu(torch::kCUDA, 0);

TEST_F(CopiesOfAGpu, HaveTheValuesOfTheMomentAtWhichTheyBegan) {
  const auto copies = make_device_copies(kGpu);
  torch::Tensor x = torch::ones({512, 512}, kGpu);
  for (int i = 0; i < 50; ++i) x = x.matmul(torch::eye(512, kGpu));
  const torch::Tensor sum = x.sum();
  const auto late = copies->read(sum);
  sum.zero_();  // in the stream behind the copy
  EXPECT_EQ(late->get().item<double>(), 512.0 * 512.0);
  EXPECT_TRUE(late->get().device().is_cpu());
}

TEST_F(CopiesOfAGpu, ABatchArrivesBeforeTheWorkThatUsesIt) {
  const auto copies = make_device_copies(kGpu);
  for (int round = 0; round < 20; ++round) {
    torch::Tensor busy = torch::ones({1024, 1024}, kGpu);
    for (int i = 0; i < 10; ++i) busy = busy.matmul(busy).div_(1024);
    Batch batch{{"features", torch::full({1'000'003}, round)}};
    batch.set("boxes", std::vector<torch::Tensor>{torch::full({3}, round)});
    const auto arriving = copies->send(batch);
    batch.set("features", torch::Tensor());  // its memory is used again
    const Batch moved = arriving->take();
    EXPECT_TRUE(moved["features"].eq(round).all().item<bool>());
    EXPECT_EQ(moved.list("boxes")[0].device(), kGpu);
  }
}

}  // namespace
}  // namespace lockstep
