#include "lockstep/runner/predictions.h"

#include <cerrno>
#include <csignal>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include "lockstep/engine/distributed.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

std::shared_ptr<Engine> workers_engine(int workers, const std::string& backend = "auto") {
  return std::make_shared<DistributedDataParallelEngine>(
      DistributedDataParallelOptions{.workers = workers,
                                     .backend = backend,
                                     .threads = 1,  // the last bits depend on it
                                     .timeout = std::chrono::seconds(60)});
}

// The outputs of every batch, as the caller gets them.
std::vector<torch::Tensor> predicted(const data::Loader& loader, const Model& model,
                                     const std::shared_ptr<Engine>& engine) {
  SupervisedRunner runner;
  std::vector<torch::Tensor> batches;
  runner.predict_loader({.loader = loader, .model = model, .engine = engine}, [&](Batch& outputs) {
    EXPECT_FALSE(outputs["logits"].requires_grad());
    batches.push_back(outputs["logits"].clone());
  });
  return batches;
}

// All forked workers have ended and are reaped.
void expect_no_child() {
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Predictions, AreOneBatchAfterAnother) {
  const Model model(toy::model());
  const data::Loader loader(toy::points(10), {.batch_size = 4});
  SupervisedRunner runner;
  std::vector<std::int64_t> sizes;
  for (Batch& outputs : runner.predict_loader({.loader = loader, .model = model})) {
    EXPECT_FALSE(outputs["logits"].requires_grad());
    sizes.push_back(outputs.size());
  }
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{4, 4, 2}));
}

TEST(Predictions, InEvaluationModeAndInOrder) {
  const auto dataset = toy::points(10);
  const Model model(toy::model());
  SupervisedRunner runner;
  const auto all = runner.predict_loader({.loader = {dataset, {.batch_size = 3}}, .model = model})
                       .concat("logits");
  torch::NoGradGuard no_grad;
  model.train(false);
  std::vector<std::int64_t> indices(10);
  std::iota(indices.begin(), indices.end(), 0);
  EXPECT_TRUE(torch::allclose(all, model(dataset->gather(indices, {})["features"])));
}

// Sample i has i + 1 words.
struct GrowingSamples : data::Dataset {
  std::int64_t size() const override { return 4; }
  Batch sample(std::int64_t i) const override { return {{"features", torch::ones({i + 1})}}; }
};

struct IdentityImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x; }
};

TEST(Predictions, OfSequencesAreReadBatchByBatch) {
  const data::Loader loader(std::make_shared<GrowingSamples>(),
                            {.batch_size = 2, .collate = data::pad()});
  SupervisedRunner runner;
  const Model model = std::make_shared<IdentityImpl>();
  const std::string error = toy::error_of(
      [&] { runner.predict_loader({.loader = loader, .model = model}).concat("logits"); });
  EXPECT_NE(error.find("'logits' is Float [2, 2] in one batch and Float [2, 4] in another"),
            std::string::npos)
      << error;
}

TEST(Predictions, WithoutABatchThereIsNothingToConcatenate) {
  SupervisedRunner runner;
  auto none = runner.predict_loader({.loader = {toy::points(0)}, .model = toy::model()});
  EXPECT_FALSE(none.next());
  EXPECT_THROW(none.concat("logits"), DataError);
}

// 23 samples in batches of 3 are 8 batches: with 3 workers the last round is not full.
TEST(PredictTogether, TheSameBatchesInTheSameOrderForAnyNumberOfWorkers) {
  const Model model(toy::model());
  for (const auto& options : {data::LoaderOptions{.batch_size = 3},
                              data::LoaderOptions{.batch_size = 3, .shuffle = true, .prefetch = 2},
                              data::LoaderOptions{.drop_last = true, .global_batch_size = 5}}) {
    const data::Loader loader(toy::points(23), options);
    const auto alone = predicted(loader, model, workers_engine(1));
    ASSERT_EQ(static_cast<std::int64_t>(alone.size()), loader.batches());
    for (const auto& engine :
         {workers_engine(2), workers_engine(3), workers_engine(2, "gloo"), workers_engine(11)}) {
      SCOPED_TRACE(engine->workers());
      const auto many = predicted(loader, model, engine);
      ASSERT_EQ(many.size(), alone.size());
      for (std::size_t i = 0; i < many.size(); ++i) EXPECT_TRUE(many[i].equal(alone[i])) << i;
      expect_no_child();
    }
  }
}

TEST(PredictTogether, GivesTheNumbersOfTheRange) {
  const Model model(toy::model());
  const data::Loader loader(toy::points(10), {.batch_size = 4});
  SupervisedRunner runner;
  const auto range = runner.predict_loader({.loader = loader, .model = model}).concat("logits");
  EXPECT_TRUE(torch::allclose(torch::cat(predicted(loader, model, workers_engine(2))), range));
  EXPECT_TRUE(torch::allclose(torch::cat(predicted(loader, model, nullptr)), range));
}

// Random numbers in predict_batch, as for an uncertainty by dropout.
struct WithNoise : SupervisedRunner {
  Batch predict_batch(const Model&, const Batch& batch) override {
    return {{"logits", torch::rand({batch.size()})}};
  }
};

TEST(PredictTogether, RandomNumbersDoNotDependOnTheWorkers) {
  const auto draw = [](int workers) {
    WithNoise runner;
    std::vector<torch::Tensor> all;
    runner.predict_loader({.loader = {toy::points(9), {.batch_size = 2}},
                           .model = toy::model(),
                           .engine = workers_engine(workers)},
                          [&](Batch& outputs) { all.push_back(outputs["logits"].clone()); });
    return torch::cat(all);
  };
  const auto alone = draw(1);
  EXPECT_TRUE(draw(3).equal(alone));
  EXPECT_NE(alone[0].item<float>(), alone[2].item<float>()) << "each batch has its own numbers";
}

TEST(PredictTogether, TheCallerStopsEarlyAndTheWorkersEnd) {
  for (const int workers : {1, 2, 3}) {
    SCOPED_TRACE(workers);
    SupervisedRunner runner;
    int taken = 0;
    runner.predict_loader({.loader = {toy::points(40), {.batch_size = 2}},
                           .model = toy::model(),
                           .engine = workers_engine(workers)},
                          [&](Batch&) { return ++taken < 5; });
    EXPECT_EQ(taken, 5);
    expect_no_child();
  }
}

TEST(PredictTogether, WhatTheCallersFunctionThrowsReachesTheCaller) {
  SupervisedRunner runner;
  EXPECT_EQ(toy::error_of([&] {
              runner.predict_loader({.loader = {toy::points(40), {.batch_size = 2}},
                                     .model = toy::model(),
                                     .engine = workers_engine(2)},
                                    [](Batch&) { throw DataError("the disk is full"); });
            }),
            "the disk is full");
  expect_no_child();
}

// The caller is rank 0, so every other process is a worker.
struct DiesInAWorker : SupervisedRunner {
  Batch predict_batch(const Model& model, const Batch& batch) override {
    if (::getpid() != caller && ++batches == 2) std::raise(SIGKILL);
    return SupervisedRunner::predict_batch(model, batch);
  }
  pid_t caller = ::getpid();
  int batches = 0;
};

TEST(PredictTogether, AWorkerThatDiesIsAnErrorThatNamesIt) {
  DiesInAWorker runner;
  int taken = 0;
  try {
    runner.predict_loader({.loader = {toy::points(40), {.batch_size = 2}},
                           .model = toy::model(),
                           .engine = workers_engine(2)},
                          [&](Batch&) { ++taken; });
    FAIL() << "the worker died";
  } catch (const WorkerError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 1"));
  }
  EXPECT_LE(taken, 2) << "only the first round was complete";
  expect_no_child();
}

struct ListsAndBatches : SupervisedRunner {
  Batch predict_batch(const Model&, const Batch& batch) override {
    const torch::Tensor& features = batch["features"];
    Batch outputs{{"features", features}};
    outputs.set("list", Batch::List{features[0], features});
    outputs.set("nested", Batch{{"twice", features * 2}});
    return outputs;
  }
};

TEST(PredictTogether, ListsAndNestedBatchesArriveFromWorkers) {
  ListsAndBatches runner;
  int taken = 0;
  runner.predict_loader({.loader = {toy::points(8), {.batch_size = 2}},
                         .model = toy::model(),
                         .engine = workers_engine(2)},
                        [&](Batch& outputs) {
                          ++taken;
                          const torch::Tensor& features = outputs["features"];
                          ASSERT_EQ(outputs.list("list").size(), 2u);
                          EXPECT_TRUE(outputs.list("list")[0].equal(features[0]));
                          EXPECT_TRUE(outputs.nested("nested")["twice"].equal(features * 2));
                        });
  EXPECT_EQ(taken, 4);
}

TEST(PredictTogether, TheRangeOfSeveralWorkersIsRefused) {
  SupervisedRunner runner;
  EXPECT_THAT(
      toy::error_of([&] {
        runner.predict_loader(
            {.loader = {toy::points(4)}, .model = toy::model(), .engine = workers_engine(2)});
      }),
      testing::HasSubstr("pass a function"));
}

}  // namespace
}  // namespace lockstep
