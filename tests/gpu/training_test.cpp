// Training on GPUs gives the results of the CPU, within rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/engine/distributed.h"
#include "lockstep/runner/supervised.h"
#include "tests/support/gpu.h"

namespace lockstep {
namespace {

class TrainingOnAGpu : public OneGpu {};
class TrainingOnGpus : public TwoGpus {};

// Without dropout: the generators of a GPU draw other numbers.
torch::nn::Sequential make_model() {
  manual_seed(7);
  namespace nn = torch::nn;
  return nn::Sequential(nn::Linear(4, 16), nn::BatchNorm1d(16), nn::Tanh(), nn::Linear(16, 3));
}

struct Trained {
  std::vector<torch::Tensor> weights;
  double loss = 0;
};

Trained train_with(const std::shared_ptr<Engine>& engine) {
  manual_seed(1);
  const auto features = torch::randn({60, 4});
  const auto data =
      std::make_shared<data::TensorDataset>(features, features.narrow(1, 0, 3).argmax(1));
  const auto model = make_model();
  SupervisedRunner runner;
  const auto result = runner.train(TrainOptions{
      .model = model,
      .criterion = torch::nn::CrossEntropyLoss(),
      .optimizer = optim::Adam{.lr = 0.01},
      .loaders = {{"train", {data, {.batch_size = 6, .shuffle = true}}}},
      .num_epochs = 3,
      .console = false,
      .engine = engine,
  });
  Trained trained{.weights = {}, .loss = result.last_metrics.at("train").at("loss")};
  for (const auto& parameter : model->parameters()) {
    trained.weights.push_back(parameter.detach().cpu());
  }
  return trained;
}

// 30 steps amplify differences in the last bit.
void expect_close(const Trained& one, const Trained& other) {
  EXPECT_NEAR(one.loss, other.loss, 1e-3);
  ASSERT_EQ(one.weights.size(), other.weights.size());
  for (std::size_t i = 0; i < one.weights.size(); ++i) {
    EXPECT_TRUE(torch::allclose(one.weights[i], other.weights[i], 1e-3, 1e-4))
        << (one.weights[i] - other.weights[i]).abs().max();
  }
}

TEST_F(TrainingOnAGpu, IsThatOfTheCpu) {
  const auto cpu =
      train_with(std::make_shared<DeviceEngine>(DeviceEngineOptions{.device = torch::kCPU}));
  const auto engine = std::make_shared<DeviceEngine>();
  EXPECT_EQ(engine->device(), torch::Device(torch::kCUDA, 0)) << "the default";
  expect_close(train_with(engine), cpu);
}

TEST_F(TrainingOnAGpu, TakesTheOneThatWasNamed) {
  const int last = gpu_count() - 1;
  const torch::Device device(torch::kCUDA, static_cast<torch::DeviceIndex>(last));
  const auto engine = std::make_shared<DeviceEngine>(DeviceEngineOptions{.device = device});
  EXPECT_EQ(engine->device(), device);
  engine->start();
  EXPECT_EQ(torch::zeros({1}, torch::kCUDA).device(), device) << "the current device";
  EXPECT_THROW(DeviceEngine({.device = torch::Device(torch::kCUDA,
                                                     static_cast<torch::DeviceIndex>(last + 1))}),
               ConfigError);
}

TEST_F(TrainingOnAGpu, RefusesToForkAfterCudaWasStarted) {
  torch::zeros({1}, torch::kCUDA);
  EXPECT_TRUE(cuda_is_started());
  DistributedDataParallelEngine engine({.workers = 2, .device = torch::Device(torch::kCUDA)});
  EXPECT_THROW(engine.run({.prepare = [] {}, .work = [](comm::Communicator&) {}}), WorkerError);
}

TEST_F(TrainingOnAGpu, IsPossibleByTwoWorkersThatShareIt) {
  const auto engine = std::make_shared<DistributedDataParallelEngine>(
      DistributedDataParallelOptions{.workers = 2, .backend = "shm"});
  EXPECT_FALSE(cuda_is_started()) << "counting must not start CUDA";
  const auto gpus = train_with(engine);
  expect_close(
      gpus, train_with(std::make_shared<DistributedDataParallelEngine>(
                DistributedDataParallelOptions{.workers = 1, .shards = 2, .device = torch::kCPU})));
}

TEST_F(TrainingOnGpus, GivesEveryForkedWorkerOneOfThem) {
  DistributedDataParallelEngine engine;
  EXPECT_EQ(engine.workers(), gpu_count());
  EXPECT_FALSE(cuda_is_started()) << "counting must not start CUDA";
  engine.run({.prepare = [] {},
              .work =
                  [&](comm::Communicator& communicator) {
                    const torch::Device device = torch::zeros({1}, torch::kCUDA).device();
                    if (device != engine.device() || device.index() != communicator.rank()) {
                      throw Error("rank {} is on {}", communicator.rank(), device.str());
                    }
                    const torch::Tensor one = torch::ones({1}, device);
                    communicator.all_reduce(one);
                    if (one.item<float>() != static_cast<float>(communicator.size())) {
                      throw Error("a sum over {} GPUs is wrong", communicator.size());
                    }
                  }});
}

TEST_F(TrainingOnGpus, IsThatOfTheCpu) {
  const auto gpus = train_with(std::make_shared<DistributedDataParallelEngine>(
      DistributedDataParallelOptions{.workers = 2}));
  expect_close(
      gpus, train_with(std::make_shared<DistributedDataParallelEngine>(
                DistributedDataParallelOptions{.workers = 1, .shards = 2, .device = torch::kCPU})));
}

}  // namespace
}  // namespace lockstep
