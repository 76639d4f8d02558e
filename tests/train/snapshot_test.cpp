#include "lockstep/train/snapshot.h"

#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/early_stopping.h"
#include "lockstep/checkpoint/file.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

StateDict checkpoint_of(const TrainOptions& options) {
  const auto result = toy::train(options);
  return checkpoint::load(*result.last_checkpoint);
}

TEST(Snapshot, HasTheKeysThatAreDocumented) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.scheduler = optim::StepLR{.step_size = 1};
  options.hparams = {{"width", std::int64_t{16}}, {"name", std::string("toy")}};
  const StateDict state = checkpoint_of(options);
  for (const char* key : {"model_state_dict", "criterion_state_dict", "optimizer_state_dict",
                          "scheduler_state_dict", "run", "epoch_metrics", "history", "callbacks"}) {
    EXPECT_TRUE(state.contains(key)) << key;
  }
  EXPECT_EQ(state.get<StateDict>("run").get<std::int64_t>("epoch"), 3);
  EXPECT_EQ(state.get<StateDict>("run").get<std::int64_t>("batch_step"), 3 * 7);
  EXPECT_EQ(state.get<StateDict>("run").get<std::int64_t>("sample_step"), 3 * 50);
  EXPECT_EQ(state.get<StateDict>("hparams").get<std::string>("name"), "toy");
}

TEST(Snapshot, CallbacksOfOneNameKeepTheirOwnMemory) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.callbacks = {
      EarlyStoppingCallback({.patience = 50}),
      EarlyStoppingCallback({.patience = 60, .metric = MetricKey{"train", "loss"}})};
  const auto callbacks = checkpoint_of(options).get<StateDict>("callbacks");
  ASSERT_TRUE(callbacks.contains("EarlyStoppingCallback"));
  ASSERT_TRUE(callbacks.contains("EarlyStoppingCallback.2"));
  EXPECT_NE(callbacks.get<StateDict>("EarlyStoppingCallback").get<double>("best"),
            callbacks.get<StateDict>("EarlyStoppingCallback.2").get<double>("best"));
}

TEST(Snapshot, ACallbackThatIsGoneIsWarnedOf) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.callbacks = {EarlyStoppingCallback({.patience = 50})};
  toy::train(options);
  options.callbacks = {};
  options.num_epochs = 4;
  options.resume = "last";
  toy::Warnings warnings;
  toy::train(options);
  EXPECT_THAT(warnings.texts, testing::ElementsAre(HasSubstr("EarlyStoppingCallback")));
}

TEST(Snapshot, WeightsAloneCannotBeResumed) {
  State state;
  EXPECT_THAT(toy::error_of([&] {
                restore_snapshot({{"model_state_dict", StateDict()}}, state, {}, {});
              }),
              HasSubstr("weights only"));
}

TEST(Snapshot, PythonContinuesWithTheWeights) {
  if (std::system("/usr/bin/python3 -c 'import torch' 2>/dev/null") != 0) {
    GTEST_SKIP() << "Python cannot import torch; install python3-torch";
  }
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  const auto result = toy::train(options);
  torch::NoGradGuard no_grad;
  const auto expected = result.model(torch::ones({1, 4})).sum().item<double>();
  std::ofstream(folder / "read.py")
      << "import sys, torch\n"
         "from torch import nn\n"
         "state = torch.load(sys.argv[1])\n"
         "model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2),\n"
         "                      nn.Linear(16, 3))\n"
         "model.load_state_dict(state['model_state_dict'])\n"
         "value = model.eval()(torch.ones(1, 4)).sum().item()\n"
         "assert abs(value - float(sys.argv[2])) < 1e-5, value\n"
         "optimizer = torch.optim.Adam(model.parameters())\n"
         "optimizer.load_state_dict(state['optimizer_state_dict'])\n"
         "steps = state['run']['update_step']\n"
         "assert all(optimizer.state[p]['step'] == steps for p in model.parameters())\n"
         "model.train()(torch.ones(2, 4)).sum().backward()\n"
         "optimizer.step()\n"
         "assert state['run']['epoch'] == 3\n";
  const auto command = fmt::format("/usr/bin/python3 {} {} {}", (folder / "read.py").string(),
                                   (folder / "run/checkpoints/last.pth").string(), expected);
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace lockstep
