// Training on GPUs gives the results of the CPU, within rounding, and the same bits for any number
// of GPUs.
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/lambda.h"
#include "lockstep/compute/checkpointed.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/engine/distributed.h"
#include "lockstep/process/gpus.h"
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

TrainOptions options_with(const std::shared_ptr<Engine>& engine, const Model& model) {
  manual_seed(1);
  const auto features = torch::randn({60, 4});
  const auto data =
      std::make_shared<data::TensorDataset>(features, features.narrow(1, 0, 3).argmax(1));
  return TrainOptions{
      .model = model,
      .criterion = torch::nn::CrossEntropyLoss(),
      .optimizer = optim::Adam{.lr = 0.01},
      .loaders = {{"train", {data, {.batch_size = 6, .shuffle = true}}}},
      .num_epochs = 3,
      .console = false,
      .engine = engine,
  };
}

TrainResult train(const TrainOptions& options) {
  SupervisedRunner runner;
  return runner.train(options);
}

struct Trained {
  std::vector<torch::Tensor> weights;
  double loss = 0;
};

Trained train_with(const std::shared_ptr<Engine>& engine) {
  const auto model = make_model();
  const auto result = train(options_with(engine, model));
  Trained trained{.weights = {}, .loss = result.last_metrics.at("train").at("loss")};
  for (const auto& parameter : model->parameters()) {
    trained.weights.push_back(parameter.detach().cpu());
  }
  return trained;
}

// A guess among three classes has the loss log(3) = 1.1, and a run that went wrong a larger one or
// none.
void expect_trained(const TrainResult& result) {
  EXPECT_LT(result.last_metrics.at("train").at("loss"), 1.1);
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

TEST_F(TrainingOnAGpu, WorksWithEveryPrecision) {
  for (const char* const precision : {"fp16", "bf16"}) {
    SCOPED_TRACE(precision);
    TrainOptions options = options_with(std::make_shared<DeviceEngine>(), make_model());
    options.precision = precision;
    expect_trained(train(options));
  }
}

TEST_F(TrainingOnAGpu, WorksWithRoundedGradients) {
  const auto engine = std::make_shared<DistributedDataParallelEngine>(
      DistributedDataParallelOptions{.workers = 1, .shards = 2});
  TrainOptions options = options_with(engine, make_model());
  options.wire = Wire::kBf16;
  expect_trained(train(options));
}

TEST_F(TrainingOnAGpu, GivesTheSameBitsWithCheckpointedModules) {
  const auto hash = [](bool checkpoints) {
    namespace nn = torch::nn;
    manual_seed(7);
    const nn::Linear first(4, 16), second(16, 16), last(16, 3);
    const auto model = checkpoints ? nn::Sequential(checkpointed(first), nn::Tanh(),
                                                    checkpointed(second), nn::Tanh(), last)
                                   : nn::Sequential(first, nn::Tanh(), second, nn::Tanh(), last);
    const auto result = train(options_with(std::make_shared<DeviceEngine>(), model));
    expect_trained(result);
    return result.weights_hash;
  };
  EXPECT_EQ(hash(true), hash(false));
}

TEST_F(TrainingOnAGpu, SynchronizesBatchNormOfTwoWorkersThatShareIt) {
  const auto engine = std::make_shared<DistributedDataParallelEngine>(
      DistributedDataParallelOptions{.workers = 2, .backend = "shm", .sync_bn = true});
  expect_trained(train(options_with(engine, make_model())));
}

// Rank 1 is killed after an epoch.
void expect_recovery(const DistributedDataParallelOptions& workers) {
  const auto engine = std::make_shared<DistributedDataParallelEngine>(workers);
  TrainOptions options = options_with(engine, make_model());
  options.max_restarts = 1;
  options.callbacks = {on_epoch_end([](State& state) {
    if (state.comm->rank() == 1 && state.restarts == 0) ::raise(SIGKILL);
  })};
  const auto result = train(options);
  EXPECT_EQ(result.recoveries, 1);
  expect_trained(result);
}

TEST_F(TrainingOnAGpu, GoesOnAfterAWorkerWasKilled) {
  expect_recovery({.workers = 2, .backend = "shm"});
}

// Its outputs are there long after forward() has returned.
struct LateNetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor busy = torch::ones({4096, 4096}, x.options());
    for (int i = 0; i < 20; ++i) busy = busy.matmul(busy).div_(4096);
    return last(x) * busy[0][0];
  }
  torch::nn::Linear last = register_module("last", torch::nn::Linear(4, 20'000));
};
TORCH_MODULE(LateNet);

// The outputs are read at once, as a user reads them. Those of the first form stay in memory, so
// that the second form cannot find its numbers there.
TEST_F(TrainingOnAGpu, PredictsOnTheCpu) {
  manual_seed(7);
  LateNet model;
  const auto x = torch::randn({60, 4});
  const auto data = std::make_shared<data::TensorDataset>(x, torch::zeros({60}));
  const auto engine = std::make_shared<DeviceEngine>();
  const PredictOptions options{
      .loader = {data, {.batch_size = 60}}, .model = model, .engine = engine};
  SupervisedRunner runner;
  auto predictions = runner.predict_loader(options);
  const torch::Tensor kept = (*predictions.next())["logits"];
  const torch::Tensor one = kept.clone();
  std::vector<torch::Tensor> parts;
  runner.predict_loader(options,
                        [&](Batch& outputs) { parts.push_back(outputs["logits"].clone()); });
  EXPECT_TRUE(kept.device().is_cpu());
  const torch::NoGradGuard no_grad;
  const torch::Tensor expected = model->forward(x.to(engine->device())).cpu();
  EXPECT_TRUE(torch::allclose(one, expected));
  EXPECT_TRUE(torch::allclose(torch::cat(parts), expected));
}

// All weights are in one piece of memory, but not in the order that cuDNN wants.
struct SequenceNetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    return last(std::get<0>(lstm(x.unsqueeze(1).expand({-1, 5, -1}))).select(1, -1));
  }
  torch::nn::LSTM lstm =
      register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(4, 16).batch_first(true)));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(16, 3));
};
TORCH_MODULE(SequenceNet);

TEST_F(TrainingOnAGpu, IsThatOfTheCpuForSequences) {
  std::vector<double> losses;
  for (const torch::Device device : {torch::Device(torch::kCUDA), torch::Device(torch::kCPU)}) {
    manual_seed(7);
    const auto engine = std::make_shared<DeviceEngine>(DeviceEngineOptions{.device = device});
    const auto result = train(options_with(engine, SequenceNet()));
    expect_trained(result);
    losses.push_back(result.last_metrics.at("train").at("loss"));
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-3);
}

TEST_F(TrainingOnAGpu, ResumesWithTheSameBits) {
  const auto hash = [](const std::filesystem::path& logdir, std::int64_t epochs, bool resumes) {
    TrainOptions options = options_with(std::make_shared<DeviceEngine>(), make_model());
    options.logdir = logdir;
    options.num_epochs = epochs;
    options.callbacks.add(CheckpointCallback(CheckpointOptions{}));
    if (resumes) options.resume = "last";
    return train(options).weights_hash;
  };
  const TemporaryDirectory whole, parts;
  const std::string expected = hash(whole.path(), 3, false);
  hash(parts.path(), 2, false);
  EXPECT_EQ(hash(parts.path(), 3, true), expected);
}

TEST_F(TrainingOnGpus, GoesOnAfterAWorkerWasKilled) {
  expect_recovery({.workers = 2});
}

TEST_F(TrainingOnGpus, SynchronizesBatchNormAndRoundsGradients) {
  const auto engine = std::make_shared<DistributedDataParallelEngine>(
      DistributedDataParallelOptions{.workers = 2, .sync_bn = true});
  TrainOptions options = options_with(engine, make_model());
  options.wire = Wire::kBf16;
  expect_trained(train(options));
}

// This is promised for GPUs of one kind. The run with two comes first, because it forks.
TEST_F(TrainingOnGpus, GivesTheSameBitsForAnyNumberOfThem) {
  const auto gpus = process::find_gpus().usable;
  if (gpus[0].name != gpus[1].name) {
    GTEST_SKIP() << "NOT RUN ON A GPU: needs two GPUs of one kind, and this machine has "
                 << gpus[0].name << " and " << gpus[1].name;
  }
  const auto hash = [](int workers) {
    const auto engine = std::make_shared<DistributedDataParallelEngine>(
        DistributedDataParallelOptions{.workers = workers, .shards = 4});
    return train(options_with(engine, make_model())).weights_hash;
  };
  const std::string two = hash(2);
  EXPECT_EQ(two, hash(1));
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
