#include "lockstep/train/model.h"

#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include "lockstep/base/file.h"
#include "lockstep/state/hash.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

struct DoublerImpl : torch::nn::Module {
  DoublerImpl() { factor = register_parameter("factor", torch::full({1}, 2.0)); }
  torch::Tensor forward(torch::Tensor x) { return x * factor; }
  torch::Tensor factor;
};
TORCH_MODULE(Doubler);

TEST(Model, TakesASequentialAHolderAndASharedPointer) {
  const auto x = torch::ones({2, 4});
  EXPECT_EQ(Model(toy::model())(x).sizes(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(Model(Doubler())(x).equal(2 * x));
  EXPECT_TRUE(Model(std::make_shared<DoublerImpl>())(x).equal(2 * x));
  EXPECT_FALSE(Model());
  EXPECT_THROW(Model(std::shared_ptr<DoublerImpl>()), ConfigError);
}

TEST(Model, KnowsItsMode) {
  const Model model(toy::model());
  EXPECT_TRUE(model.is_training());
  model.train(false);
  EXPECT_FALSE(model.is_training());
}

TEST(Model, NamesWeightsAsPythonDoes) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : Model(toy::model()).weights()) names.push_back(name);
  EXPECT_THAT(names,
              testing::ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias",
                                   "1.running_mean", "1.running_var", "1.num_batches_tracked"));
}

TEST(Model, StateGoesIntoAnotherModelOfItsKind) {
  const Model a(toy::model(1)), b(toy::model(2));
  ASSERT_NE(weights_hash(a.weights()), weights_hash(b.weights()));
  b.load_state(a.state());
  EXPECT_EQ(weights_hash(a.weights()), weights_hash(b.weights()));
}

TEST(Model, AStateThatDoesNotFitIsRefusedByNameAndChangesNothing) {
  const Model model(toy::model());
  const std::string before = weights_hash(model.weights());
  StateDict wrong_shape = model.state();
  wrong_shape.set("4.weight", torch::zeros({3, 17}));
  EXPECT_THAT(toy::error_of([&] { model.load_state(wrong_shape); }),
              testing::AllOf(HasSubstr("4.weight"), HasSubstr("[3, 16]"), HasSubstr("[3, 17]")));
  StateDict extra = model.state();
  extra.set("9.weight", torch::zeros({1}));
  EXPECT_THAT(toy::error_of([&] { model.load_state(extra); }), HasSubstr("9.weight"));
  StateDict none;
  EXPECT_THAT(toy::error_of([&] { model.load_state(none); }), HasSubstr("0.weight"));
  EXPECT_EQ(weights_hash(model.weights()), before);
}

TEST(Model, ATorchScriptFileTrainsLikeAnyOther) {
  TemporaryDirectory folder;
  torch::jit::Module module("Line");
  module.register_parameter("weight", torch::zeros({3, 4}, torch::requires_grad()), false);
  module.define("def forward(self, x):\n  return torch.matmul(x, self.weight.t())\n");
  module.save((folder / "line.pt").string());

  TrainOptions options = toy::options();
  options.model = Model::script(folder / "line.pt");
  options.num_epochs = 10;
  options.optimizer = optim::Adam{.lr = 0.1};
  const auto result = toy::train(options);
  EXPECT_LT(result.last_metrics.at("train").at("loss"), 0.6) << "ln 3 = 1.1 at the start";
}

TEST(Model, AFileThatPythonScriptedTrainsAndResumes) {
  if (std::system("/usr/bin/python3 -c 'import torch' 2>/dev/null") != 0) {
    GTEST_SKIP() << "Python cannot import torch; install python3-torch";
  }
  TemporaryDirectory folder;
  std::ofstream(folder / "make.py")
      << "import sys, torch\n"
         "from torch import nn\n"
         "torch.manual_seed(0)\n"
         "model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2),\n"
         "                      nn.Linear(16, 3))\n"
         "torch.jit.script(model).save(sys.argv[1])\n";
  const std::string file = (folder / "model.pt").string();
  const std::string command = "/usr/bin/python3 " + (folder / "make.py").string() + " " + file;
  ASSERT_EQ(std::system(command.c_str()), 0);

  const auto options = [&](std::int64_t epochs) {
    TrainOptions o = toy::options();
    o.model = Model::script(file);
    o.num_epochs = epochs;
    return o;
  };
  const auto straight = toy::train(options(4));
  EXPECT_LT(straight.history.at(4).at("train").at("loss"),
            straight.history.at(1).at("train").at("loss"));
  TrainOptions first = options(2);
  first.logdir = folder / "run";
  toy::train(first);
  TrainOptions second = options(4);
  second.logdir = folder / "run";
  second.resume = "last";
  EXPECT_EQ(toy::train(second).weights_hash, straight.weights_hash);
}

TEST(Model, SomethingElseThanTorchScriptIsRefusedByName) {
  TemporaryDirectory folder;
  std::ofstream(folder / "not.pt") << "hello";
  EXPECT_THAT(toy::error_of([&] { Model::script(folder / "not.pt"); }), HasSubstr("not.pt"));
  EXPECT_THAT(toy::error_of([&] { Model::script("none.pt"); }), HasSubstr("no such file"));
}

}  // namespace
}  // namespace lockstep
