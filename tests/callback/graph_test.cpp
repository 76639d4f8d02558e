#include "lockstep/callback/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

TrainOptions graph_run(const std::optional<fs::path>& logdir, bool with_graph) {
  TrainOptions options = toy::options();
  options.num_epochs = 2;
  options.logdir = logdir;
  if (with_graph) options.callbacks.add(GraphCallback());
  return options;
}

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(GraphCallback, WritesTheGraphOnceAndChangesNothing) {
  const TemporaryDirectory folder;
  const auto plain = toy::train(graph_run(folder / "plain", false));
  const auto with = toy::train(graph_run(folder / "graph", true));
  EXPECT_EQ(with.weights_hash, plain.weights_hash);
  EXPECT_EQ(files_in(folder / "graph/tensorboard/_graph_"), 1U);
  // A resumed run does not write it again.
  TrainOptions longer = graph_run(folder / "graph", true);
  longer.num_epochs = 3;
  longer.resume = "last";
  toy::train(longer);
  EXPECT_EQ(files_in(folder / "graph/tensorboard/_graph_"), 1U);
}

TEST(GraphCallback, SeveralWorkersWriteOneGraph) {
  const TemporaryDirectory folder;
  TrainOptions options = graph_run(folder / "one", true);
  options.ddp = true;
  options.workers = 1;
  options.shards = 2;
  const auto one = toy::train(options);
  options = graph_run(folder / "two", true);
  options.ddp = true;
  options.workers = 2;
  options.shards = 2;
  const auto two = toy::train(options);
  EXPECT_EQ(one.weights_hash, two.weights_hash);
  EXPECT_EQ(files_in(folder / "two/tensorboard/_graph_"), 1U);
}

TEST(GraphCallback, NeedsALogdirAndInputs) {
  EXPECT_THROW(toy::train(graph_run(std::nullopt, true)), ConfigError);
  EXPECT_THROW(GraphCallback({.input_keys = {}}), ConfigError);
}

}  // namespace
}  // namespace lockstep
