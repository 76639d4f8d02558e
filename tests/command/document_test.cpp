#include "lockstep/command/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/config/yaml.h"

namespace lockstep::command {
namespace {

using ::testing::HasSubstr;

config::Node parsed(const std::string& text) {
  return config::parse_yaml(text, "a.yml");
}

TEST(Document, ConfigsAndThenOverridesChangeIt) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "over.yml", std::string_view("optimizer: {Adam: {lr: 1}}\n"));
  config::Node document = parsed("num_epochs: 3\n");
  merge_configs({(folder / "over.yml").string()}, document);
  apply_overrides({"optimizer.lr=2", "criterion=MSELoss"}, document);
  EXPECT_EQ(config::to_yaml(document), config::to_yaml(parsed(R"(num_epochs: 3
optimizer: {_target_: Adam, lr: 2}
criterion: {_target_: MSELoss}
)")));
}

TEST(Document, WorkersBelongToTheEngineIfThereIsOne) {
  config::Node plain = parsed("seed: 1\n");
  apply_workers({.workers = 2}, plain);
  EXPECT_EQ(config::to_yaml(plain), config::to_yaml(parsed("seed: 1\nworkers: 2\nddp: true\n")));
  config::Node with_engine = parsed("engine: {_target_: DistributedDataParallelEngine}\n");
  apply_workers({.workers = 2, .shards = 4}, with_engine);
  EXPECT_THAT(config::to_yaml(with_engine), HasSubstr("workers: 2"));
  EXPECT_THAT(config::to_yaml(with_engine), HasSubstr("shards: 4"));
  EXPECT_FALSE(with_engine.contains("ddp"));
}

TEST(Document, APrecisionReplacesWhatElseSaysIt) {
  config::Node document = parsed("fp16: true\namp: true\nseed: 1\n");
  apply_precision("bf16", document);
  EXPECT_EQ(config::to_yaml(document), "seed: 1\nprecision: \"bf16\"\n");
}

TEST(Document, PluginsAreAddedWithTheirWholePath) {
  config::Node document = parsed("plugins: a.so\n");
  add_plugins({"b.so"}, document);
  ASSERT_EQ(document.find("plugins")->items().size(), 2u);
  EXPECT_EQ(document.find("plugins")->items()[1].text(),
            std::filesystem::absolute("b.so").string());
}

TEST(Document, ProcessesOfALauncherWorkTogether) {
  const process::LaunchedPlace place{
      .topology = {.rank = 1, .world_size = 2, .local_rank = 1, .local_size = 2},
      .local_size_known = true};
  config::Node document = parsed("seed: 1\n");
  take_place(place, document);
  EXPECT_THAT(config::to_yaml(document), HasSubstr("ddp: true"));
  config::Node other = parsed("workers: 3\n");
  EXPECT_THAT([&] { take_place(place, other); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("started 2 processes")));
  config::Node alone = parsed("workers: 3\n");
  take_place(std::nullopt, alone);
  EXPECT_FALSE(alone.contains("ddp"));
}

}  // namespace
}  // namespace lockstep::command
