// Copies to and from a GPU that the host does not wait for.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/train/device_copies.h"
#include "tests/support/gpu.h"

namespace lockstep {
namespace {

class CopiesOfAGpu : public OneGpu {};

const torch::Device kGpu(torch::kCUDA, 0);

TEST_F(CopiesOfAGpu, HaveTheValuesOfTheMomentAtWhichTheyBegan) {
  const auto copies = make_device_copies(kGpu, [] {});
  torch::Tensor x = torch::ones({512, 512}, kGpu);
  for (int i = 0; i < 50; ++i) x = x.matmul(torch::eye(512, kGpu));
  const torch::Tensor sum = x.sum();
  const auto late = copies->read(sum);
  sum.zero_();  // in the stream behind the copy
  EXPECT_EQ(late->get().item<double>(), 512.0 * 512.0);
  EXPECT_TRUE(late->get().device().is_cpu());
}

TEST_F(CopiesOfAGpu, AWaitEndsIfAnotherRankHasFailed) {
  const auto copies = make_device_copies(kGpu, [] { throw Error("rank 1 failed"); });
  torch::Tensor busy = torch::ones({8192, 8192}, kGpu);  // for much longer than 20 ms
  for (int i = 0; i < 50; ++i) busy = busy.matmul(busy).div_(8192);
  const auto late = copies->read(busy.sum());
  EXPECT_THROW(late->get(), Error);
  torch::cuda::synchronize();
  EXPECT_EQ(late->get().numel(), 1) << "it has arrived, so there is no wait";
}

TEST_F(CopiesOfAGpu, ABatchArrivesBeforeTheWorkThatUsesIt) {
  const auto copies = make_device_copies(kGpu, [] {});
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

// Such a tensor is what expand() of one row gives: all rows are in the same memory.
TEST_F(CopiesOfAGpu, AnExpandedTensorIsMoved) {
  const torch::Tensor row = torch::arange(3);
  const Batch moved = Batch{{"features", row.expand({4, 3})}}.to(kGpu);
  EXPECT_TRUE(moved["features"].cpu().equal(row.expand({4, 3})));
}

TEST_F(CopiesOfAGpu, KeepTheLayoutInMemory) {
  const torch::Tensor images =
      torch::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  const Batch moved = Batch{{"features", images}}.to(kGpu);
  EXPECT_EQ(moved["features"].strides(), images.strides());
  EXPECT_TRUE(moved["features"].cpu().equal(images));
}

TEST_F(CopiesOfAGpu, APinnedTensorMayBeChangedAtOnce) {
  torch::Tensor busy = torch::ones({4096, 4096}, kGpu);
  for (int i = 0; i < 20; ++i) busy = busy.matmul(busy).div_(4096);
  const torch::Tensor values = torch::ones({1'000'003}).pin_memory();
  const Batch moved = Batch{{"features", values}}.to(kGpu);  // behind the work of the stream
  values.zero_();
  EXPECT_TRUE(moved["features"].eq(1).all().item<bool>());
}

// The numbers are there long after this function has returned.
torch::Tensor late_numbers(float value) {
  torch::Tensor busy = torch::ones({4096, 4096}, kGpu);
  for (int i = 0; i < 20; ++i) busy = busy.matmul(busy).div_(4096);
  return torch::full({1'000'003}, value, kGpu) * busy[0][0];
}

// Each kind of value has a batch of its own: a wait for one tensor would complete the others, too.
TEST_F(CopiesOfAGpu, ABatchIsCompleteOnTheCpu) {
  const Batch tensors = Batch{{"features", late_numbers(1)}}.to(torch::kCPU);
  EXPECT_TRUE(tensors["features"].eq(1).all().item<bool>());
  Batch boxes;
  boxes.set("boxes", std::vector<torch::Tensor>{late_numbers(2)});
  const Batch lists = boxes.to(torch::kCPU);
  EXPECT_TRUE(lists.list("boxes")[0].eq(2).all().item<bool>());
  Batch meta;
  meta.set("meta", Batch{{"angle", late_numbers(3)}});
  const Batch nested = meta.to(torch::kCPU);
  EXPECT_TRUE(nested.nested("meta")["angle"].eq(3).all().item<bool>());
}

TEST_F(CopiesOfAGpu, ATensorOfTheCpuIsRead) {
  const auto copies = make_device_copies(kGpu, [] {});
  torch::Tensor loss = torch::tensor(2.5);
  const auto late = copies->read(loss);
  loss.zero_();
  EXPECT_EQ(late->get().item<double>(), 2.5);
}

TEST_F(CopiesOfAGpu, ASparseTensorArrives) {
  const auto copies = make_device_copies(kGpu, [] {});
  const torch::Tensor matrix = torch::eye(5);
  const auto arriving =
      copies->send({{"rows", matrix.to_sparse()}, {"compressed", matrix.to_sparse_csr()}});
  const Batch moved = arriving->take();
  EXPECT_TRUE(moved["rows"].cpu().to_dense().equal(matrix));
  EXPECT_TRUE(moved["compressed"].cpu().to_dense().equal(matrix));
}

}  // namespace
}  // namespace lockstep
