// Every YAML block of the guide. A block with a model is a complete config. Any other is a part of
// one, and is merged over kBase.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/config/override.h"
#include "lockstep/config/yaml.h"
#include "lockstep/image/encode.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::recipe {
namespace {

namespace fs = std::filesystem;
using config::Node;

const char* const kBase = R"(
model:
  - Linear: {out_features: 16}
  - ReLU
  - Linear: {out_features: 10}
criterion: CrossEntropyLoss
optimizer: {Adam: {lr: 0.01}}
loaders:
  train: {dataset: {Noise: {samples: 300, shape: 8, classes: 10, seed: 1}}, batch_size: 10}
  valid: {dataset: {Noise: {samples: 100, shape: 8, classes: 10, seed: 2}}, batch_size: 10}
valid_loader: valid
)";

struct Block {
  std::string page;  // "sequences.md"
  std::string text;
};

fs::path sources() {
  return fs::path(LOCKSTEP_GOLDENS).parent_path().parent_path();
}

std::vector<Block> blocks_of(const fs::path& page) {
  std::vector<Block> blocks;
  std::istringstream lines(read_file(page));
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "```yaml") {
      inside = true;
      blocks.push_back({.page = page.filename().string(), .text = ""});
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      blocks.back().text += line + "\n";
    }
  }
  return blocks;
}

std::vector<Block> all_blocks() {
  std::vector<Block> blocks;
  for (const auto& entry : fs::directory_iterator(sources() / "docs/guide")) {
    for (Block& block : blocks_of(entry.path())) blocks.push_back(std::move(block));
  }
  return blocks;
}

// The data set that a config names need not be on this machine.
std::string without_downloads(std::string text) {
  const std::string images = "{_target_: FashionMNIST, train: true, download: true}";
  if (const std::size_t at = text.find(images); at != std::string::npos) {
    text.replace(at, images.size(), "{Noise: {samples: 4, shape: [1, 28, 28], classes: 10}}");
  }
  return text;
}

Node document_of(const Block& block) {
  const Node part = config::parse_yaml(without_downloads(block.text), block.page);
  if (part.contains("model")) return part;
  Node document = config::parse_yaml(kBase, "base");
  if (!part.contains("num_steps")) config::apply_override(document, "num_epochs=50");
  config::merge(document, part);
  return document;
}

void save_two_heads() {
  torch::jit::Module module("TwoHeads");
  const auto add = [&](const char* name, torch::IntArrayRef shape) {
    module.register_parameter(name, (0.3 * torch::randn(shape)).requires_grad_(), false);
  };
  add("both", {32, 18});
  add("classes", {3, 32});
  add("angles", {1, 32});
  module.define(
      "def forward(self, image, weather):\n"
      "  both = torch.cat([image.flatten(1), weather], 1)\n"
      "  hidden = torch.relu(torch.matmul(both, self.both.t()))\n"
      "  return torch.matmul(hidden, self.classes.t()), torch.matmul(hidden, self.angles.t())\n");
  module.save("two_heads.pt");
}

// A folder with the files that the configs of the guide name.
class Guide : public ::testing::Test {
 protected:
  Guide() {
    fs::current_path(folder_.path());
    torch::manual_seed(1);
    save_two_heads();
    const auto image = torch::randn({200, 4, 4}), weather = torch::randn({200, 2});
    checkpoint::save("train.pt", StateDict{{"image", image},
                                           {"weather", weather},
                                           {"label", image.flatten(1).narrow(1, 0, 3).argmax(1)},
                                           {"angle", weather.sum(1, /*keepdim=*/true)}});
    StateList tokens, tags;
    for (std::int64_t i = 0; i < 60; ++i) {
      const auto sentence = torch::randint(20, {2 + i % 7}, torch::kInt64);
      tokens.push_back(sentence);
      tags.push_back(sentence.remainder(4));
    }
    checkpoint::save("sentences.pt", StateDict{{"tokens", tokens}, {"tags", tags}});
    for (const char* const color : {"blue", "red"}) {
      const fs::path folder = fs::path("colors") / color;
      fs::create_directories(folder);
      std::ofstream(folder / "1.jpg", std::ios::binary)
          << data::encode_jpeg(torch::randint(0, 256, {40, 48, 3}, torch::kUInt8));
    }
  }
  ~Guide() override { fs::current_path(before_); }

  // Trains with the last config of a page.
  TrainResult train(const std::string& page, int workers) {
    Node document = document_of(blocks_of(sources() / "docs/guide" / page).back());
    EXPECT_TRUE(document.contains("runner"));
    for (const std::string& argument : {std::string("ddp=true"), fmt::format("workers={}", workers),
                                        std::string("shards=2"), std::string("console=false")}) {
      config::apply_override(document, argument);
    }
    return run_recipe(read_recipe(document));
  }

  void expect_trains(const std::string& page) {
    const TrainResult one = train(page, 1);
    const double first = one.history.at(1).at("train").at("loss");
    EXPECT_LT(one.last_metrics.at("train").at("loss"), 0.8 * first);
    EXPECT_EQ(train(page, 2).weights_hash, one.weights_hash);
  }

 private:
  const fs::path before_ = fs::current_path();
  const TemporaryDirectory folder_;
};

TEST_F(Guide, EveryYamlBlockIsAConfigOrAPartOfOne) {
  const auto blocks = all_blocks();
  EXPECT_GE(blocks.size(), 9u);
  for (const Block& block : blocks) {
    if (block.text.starts_with("runner: Gan\n")) continue;  // needs a plugin; see below
    // These need files; Values.WeightsAreAPathOrAMapping and Recipe.PartsOfACheckpointAreRestored
    // test them.
    if (block.text.starts_with("weights:\n  path: simclr.pth\n")) continue;
    if (block.text.starts_with("weights: logs/first/")) continue;
    EXPECT_NO_THROW(read_recipe(document_of(block))) << block.page << ":\n" << block.text;
  }
}

// tests/command/plugin.sh runs this file.
TEST_F(Guide, TheGanIsTheExample) {
  const auto blocks = blocks_of(sources() / "docs/guide/several-networks.md");
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(config::to_yaml(config::parse_yaml(blocks.front().text, "page")),
            config::to_yaml(config::load_yaml(sources() / "examples/configs/gan.yml")));
}

TEST_F(Guide, TwoInputsTrainToTheSameBitsWithAnyNumberOfWorkers) {
  expect_trains("inputs-and-outputs.md");
}

TEST_F(Guide, PaddedSequencesTrainToTheSameBitsWithAnyNumberOfWorkers) {
  expect_trains("sequences.md");
}

}  // namespace
}  // namespace lockstep::recipe
