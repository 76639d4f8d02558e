#include "lockstep/science/scripted_network.h"

#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep::science {
namespace {

void write_script(const std::filesystem::path& path) {
  torch::jit::Module module("net");
  module.register_parameter("w", torch::zeros({1}, torch::requires_grad()), false);
  module.define("def forward(self, x):\n  return (x.mean(dim=[2, 3, 4]) * self.w)\n");
  module.save(path.string());
}

data::Loaders means() {
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({24, 3, 4, 4, 4}) * 0.1 + torch::randn({24, 3, 1, 1, 1});
  return {{"train",
           {std::make_shared<data::TensorDataset>(x, x.mean(torch::IntArrayRef({2, 3, 4}))),
            {.batch_size = 4}}}};
}

const NetworkConfig kQuick = {.n_epochs = 30, .logdir = std::nullopt, .lr = 0.1};

TEST(ScriptedNetwork, KeepsItsScriptWithTheTrainedWeights) {
  const TemporaryDirectory folder;
  write_script(folder / "net.pt");
  ScriptedNetwork estimator(folder / "net.pt", kQuick);
  std::filesystem::remove(folder / "net.pt");  // the file is not needed any more
  estimator.train(means());
  estimator.save(folder / "saved");
  torch::jit::Module saved = torch::jit::load((folder / "saved/model_script.pt").string());
  EXPECT_NEAR(saved.attr("w").toTensor().item<double>(), 1.0, 0.1);
  EXPECT_EQ(saved.attr("w").toTensor().item<float>(),
            estimator.model().parameters()[0].second.item<float>());

  ScriptedNetwork other(kQuick);
  EXPECT_THROW(other.train(means()), Error);
  other.load(folder / "saved");
  const data::Loader loader = means().at("train");
  EXPECT_TRUE(other.predict(loader).equal(estimator.predict(loader)));
}

TEST(ScriptedNetwork, RefusesWhatIsNoScript) {
  const TemporaryDirectory folder;
  EXPECT_THROW(ScriptedNetwork(folder / "none.pt", kQuick), DataError);
  write_file_atomically(folder / "text.pt", "no script");
  EXPECT_THROW(ScriptedNetwork(folder / "text.pt", kQuick), ConfigError);
  EXPECT_THROW(ScriptedNetwork(kQuick).load(folder.path()), CheckpointError);
}

}  // namespace
}  // namespace lockstep::science
