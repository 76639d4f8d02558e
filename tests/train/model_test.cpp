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

struct TwoInputsImpl : torch::nn::Module {
  TwoInputsImpl() { factor = register_parameter("factor", torch::full({1}, 2.0)); }
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor x, const torch::Tensor& y) {
    return {x * factor, x + y};
  }
  torch::Tensor factor;
};
TORCH_MODULE(TwoInputs);

struct OptionalInputImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {}) {
    return mask.defined() ? x * mask : x;
  }
};

struct EightInputsImpl : torch::nn::Module {
  std::vector<torch::Tensor> forward(torch::Tensor a, torch::Tensor b, torch::Tensor c,
                                     torch::Tensor d, torch::Tensor e, torch::Tensor f,
                                     torch::Tensor g, torch::Tensor h) {
    return {a + b + c + d, e + f + g + h};
  }
};

struct BatchToBatchImpl : torch::nn::Module {
  Batch forward(const Batch& batch) {
    return {{"sum", batch["x"] + batch.list("y").front()}, {"twice", batch["x"] * 2}};
  }
};

TEST(Model, TakesSeveralTensorsAndReturnsSeveral) {
  const auto x = torch::ones({2}), y = torch::full({2}, 3.0);
  const Model model = TwoInputs();
  const Outputs outputs = model.outputs(x, y);
  ASSERT_EQ(outputs.count(), 2U);
  EXPECT_TRUE(outputs[0].equal(x * 2));
  EXPECT_TRUE(outputs[1].equal(x + y));
  EXPECT_EQ(model.outputs(std::vector{x, y}).count(), 2U);
  EXPECT_EQ(model.parameters().size(), 1U);
  EXPECT_THAT(toy::error_of([&] { model(x, y); }), HasSubstr("returned 2 tensors"));
  EXPECT_THAT(toy::error_of([&] { model(x); }),
              HasSubstr("model: takes 2 tensors and returns several tensors, got Float [2]"));
  EXPECT_THAT(toy::error_of([&] { model(x, y, y); }),
              HasSubstr("got 3 tensors: Float [2], Float [2], Float [2]"));
  EXPECT_THAT(toy::error_of([&] { model(Batch{{"x", x}}); }), HasSubstr("got a batch with x"));
  const Model eight = std::make_shared<EightInputsImpl>();
  EXPECT_TRUE(eight.outputs(x, x, x, x, x, x, x, y)[1].equal(x * 3 + y));
}

TEST(Model, AnInputWithADefaultMayBeLeftOut) {
  const auto x = torch::ones({2}), mask = torch::tensor({1.0F, 0.0F});
  const Model model = std::make_shared<OptionalInputImpl>();
  EXPECT_TRUE(model(x).equal(x));
  EXPECT_TRUE(model(x, mask).equal(mask));
  EXPECT_EQ(model.signature(), "takes 1 or 2 tensors and returns a tensor");
}

TEST(Model, TakesABatchAndReturnsABatch) {
  Batch batch{{"x", torch::ones({2})}};
  batch.set("y", std::vector<torch::Tensor>{torch::ones({2})});
  const Model model = std::make_shared<BatchToBatchImpl>();
  EXPECT_TRUE(model.takes_batch());
  EXPECT_FALSE(Model(TwoInputs()).takes_batch());
  EXPECT_TRUE(model.outputs(batch)["sum"].equal(torch::full({2}, 2.0)));
  EXPECT_THAT(toy::error_of([&] { model(batch["x"]); }),
              HasSubstr("model: takes a batch and returns a batch, got Float [2]"));
}

TEST(Model, ModulesOfLibTorchHaveTheirOutputs) {
  const Model lstm = torch::nn::LSTM(torch::nn::LSTMOptions(3, 4).batch_first(true));
  const Outputs outputs = lstm.outputs(torch::zeros({2, 5, 3}));
  ASSERT_EQ(outputs.count(), 3U) << "output, h, c";
  EXPECT_EQ(outputs[0].sizes(), (torch::IntArrayRef{2, 5, 4}));
  const Model attention = torch::nn::MultiheadAttention(4, 2);
  const auto q = torch::zeros({3, 2, 4});
  EXPECT_EQ(attention.outputs(q, q, q).count(), 2U);
  EXPECT_TRUE(
      Model(torch::nn::Bilinear(2, 3, 4))(torch::ones({1, 2}), torch::ones({1, 3})).defined());
}

TEST(Model, ASequentialTakesWhatItsFirstLayerTakes) {
  torch::nn::Sequential layers(torch::nn::Bilinear(2, 3, 4), torch::nn::ReLU());
  const Model model = layers;
  const auto a = torch::ones({1, 2}), b = torch::ones({1, 3});
  EXPECT_TRUE(model(a, b).equal(layers->forward(a, b)));
  EXPECT_EQ(model.outputs(a, b).count(), 1U);
  EXPECT_THAT(toy::error_of([&] { model(Batch{{"x", a}}); }), HasSubstr("got a batch with x"));
}

Model scripted(const std::string& source) {
  TemporaryDirectory folder;
  torch::jit::Module module("Scripted");
  module.define(source);
  module.save((folder / "it.pt").string());
  return Model::script(folder / "it.pt");
}

TEST(Model, TorchScriptTakesAndReturnsTuplesListsAndDictionaries) {
  const auto x = torch::ones({2}), y = torch::full({2}, 3.0);
  const Model tuple = scripted("def forward(self, x, y):\n  return x + y, [x, y]\n");
  ASSERT_EQ(tuple.outputs(x, y).count(), 3U);
  EXPECT_TRUE(tuple.outputs(x, y)[0].equal(x + y));
  EXPECT_THAT(toy::error_of([&] { tuple(x); }), HasSubstr("takes 2 tensors, got Float [2]"));
  const Model list = scripted("def forward(self, x: List[Tensor]):\n  return x[0] + x[1]\n");
  EXPECT_TRUE(list(x, y).equal(x + y));
  const Model dictionary = scripted(
      "def forward(self, x: Dict[str, Tensor]):\n"
      "  return {'sum': x['a'] + x['b'], 'twice': x['a'] * 2}\n");
  EXPECT_TRUE(dictionary.takes_batch());
  const Batch batch{{"a", x}, {"b", y}};
  EXPECT_TRUE(dictionary.outputs(batch)["sum"].equal(x + y));
  EXPECT_THAT(toy::error_of([&] { dictionary(x); }), HasSubstr("takes a batch of tensors only"));
  const Model number = scripted("def forward(self, x):\n  return 3\n");
  EXPECT_THAT(toy::error_of([&] { number(x); }), HasSubstr("returned a Int"));
}

TEST(Model, KnowsItsMode) {
  const Model model(toy::model());
  EXPECT_TRUE(model.is_training());
  model.train(false);
  EXPECT_FALSE(model.is_training());
}

TEST(Model, SomeModulesAreEvaluated) {
  struct Outer : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) { return x; }
  };
  const auto outer = std::make_shared<Outer>();
  torch::nn::Sequential inner{torch::nn::Dropout()};
  outer->register_module("0", inner);
  outer->register_module("1", torch::nn::Dropout());
  const Model combined = Model::combine({{"a", outer}, {"b", torch::nn::Linear(1, 1)}});
  std::vector<std::string> names;
  combined.eval_modules([&](const std::string& name) {
    names.push_back(name);
    return name == "a.0";
  });
  EXPECT_THAT(names, testing::UnorderedElementsAre("a", "a.0", "a.0.0", "a.1", "b"));
  EXPECT_FALSE(inner->is_training());
  EXPECT_FALSE(inner[0]->is_training());
  EXPECT_TRUE(outer->is_training());
  combined.train(true);
  EXPECT_TRUE(inner[0]->is_training());
}

TEST(Model, ModesOfModulesAreBroughtBack) {
  torch::nn::Sequential net{torch::nn::Dropout(), torch::nn::Dropout()};
  const Model combined = Model::combine({{"a", net}, {"b", torch::nn::Linear(1, 1)}});
  net[1]->eval();
  const Model::Modes modes = combined.modes();
  EXPECT_THAT(modes, testing::ElementsAre(testing::Pair("a", true), testing::Pair("a.0", true),
                                          testing::Pair("a.1", false), testing::Pair("b", true)));
  for (const bool on : {false, true}) {
    combined.train(on);
    combined.set_modes(modes);
    EXPECT_EQ(combined.modes(), modes);
  }
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
