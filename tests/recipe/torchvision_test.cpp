// Files with the names of torchvision's ResNets go into ours. The names, shapes and types are those
// of torchvision (scripts/goldens/torchvision_names.py), and so are the outputs
// (scripts/goldens/network.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/weights_file.h"
#include "lockstep/network/resnet.h"
#include "lockstep/train/first_weights.h"
#include "tests/network/support.h"

namespace lockstep::network {
namespace {

struct TorchvisionFile {
  std::string model = "resnet18";
  torch::ScalarType type = torch::kFloat32;
  bool counts_batches = true;  // the files of torchvision's older versions do not
};

// A state_dict of torchvision for 5 classes, with weights from the formula.
StateDict torchvision_weights(const TorchvisionFile& file) {
  static const auto names = nlohmann::json::parse(read_file(LOCKSTEP_GOLDENS "/torchvision.json"));
  StateDict state;
  std::int64_t n = 0;
  for (const auto& entry : names.at(file.model)) {
    const auto name = entry[0].get<std::string>();
    auto sizes = entry[1].get<std::vector<std::int64_t>>();
    if (name.starts_with("fc.")) sizes[0] = 5;
    if (!entry[3].get<bool>()) {
      if (name.ends_with("num_batches_tracked")) {
        if (file.counts_batches) state.set(name, torch::zeros(sizes, torch::kInt64));
      } else {
        state.set(name,
                  (name.ends_with("var") ? torch::ones(sizes) : torch::zeros(sizes)).to(file.type));
      }
      continue;
    }
    const auto values = testing::wave(sizes, n++);
    const double inputs = static_cast<double>(values.numel() / sizes[0]);
    const auto weight = sizes.size() > 1 ? values * std::sqrt(2 / inputs) : 1 + values * 0.1;
    state.set(name, weight.to(file.type));
  }
  return state;
}

ResNet resnet18() {
  torch::manual_seed(3);
  return ResNet(ResNetOptions{.depth = 18, .classes = 5});
}

TEST(Torchvision, ItsWeightsGiveItsOutputs) {
  const TemporaryDirectory folder;
  for (const bool counts_batches : {true, false}) {
    checkpoint::save_weights(folder / "resnet18.pth",
                             torchvision_weights({.counts_batches = counts_batches}));
    ResNet model = resnet18();
    const FirstWeights first = load_weights(model, folder / "resnet18.pth");
    EXPECT_EQ(first.summary(), counts_batches ? "all 122 weights" : "all 102 weights");
    EXPECT_EQ(first.rest(), "");
    const torch::NoGradGuard no_grad;
    const auto images = testing::wave({2, 3, 40, 37}, 0);
    testing::expect_golden("resnet18", "train", model->forward(images));
    model->eval();
    testing::expect_golden("resnet18", "eval", model->forward(images));
  }
}

TEST(Torchvision, WeightsOfHalfPrecisionAreConverted) {
  const TemporaryDirectory folder;
  const StateDict half = torchvision_weights({.type = torch::kHalf});
  checkpoint::save_weights(folder / "half.safetensors", half);
  const ResNet model = resnet18();
  EXPECT_EQ(load_weights(model, folder / "half.safetensors").summary(),
            "all 122 weights, converted from Half to Float");
  for (const auto& [name, weight] : Model(model).weights()) {
    EXPECT_TRUE(weight.equal(half.get<torch::Tensor>(name).to(weight.scalar_type()))) << name;
  }
}

TEST(Torchvision, OtherClassesLeaveTheHead) {
  const TemporaryDirectory folder;
  checkpoint::save_weights(folder / "resnet18.pth", torchvision_weights({}));
  const Model model = ResNet(ResNetOptions{.depth = 18, .classes = 3});
  const FirstWeights first = load_weights(model, {folder / "resnet18.pth", {.strict = false}});
  EXPECT_EQ(first.summary(), "120 of 122 weights");
  EXPECT_THAT(first.kept, ::testing::ElementsAre("fc.weight", "fc.bias"));
}

// Only names, because these are large.
TEST(Torchvision, TheOtherDepthsHaveItsNames) {
  for (const std::int64_t depth : {34, 50}) {
    const StateDict file = torchvision_weights({.model = fmt::format("resnet{}", depth)});
    const ResNet model(ResNetOptions{.depth = depth, .classes = 5});
    EXPECT_EQ(first_weights(model, "resnet.pth", file).kept.size(), 0U) << depth;
  }
}

}  // namespace
}  // namespace lockstep::network
