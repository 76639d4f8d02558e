#include "lockstep/command/train_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/config/yaml.h"
#include "tests/command/support.h"

namespace lockstep::command {
namespace {

using ::testing::HasSubstr;

TEST(TrainDocument, TrainsAndRecordsTheConfig) {
  const TemporaryDirectory folder;
  config::Node document = config::parse_yaml(testing::kTinyConfig, "tiny.yml");
  document.set("logdir", config::Node::text((folder / "run").string()));
  document.set("console", config::Node::scalar("false", true));
  PreparedRun run = prepare_run(document);
  EXPECT_THAT(config::to_yaml(run.document), HasSubstr("seed: 42"));
  const TrainResult result = train(run);
  EXPECT_EQ(result.epochs, 2);
  EXPECT_THAT(read_file(folder / "run/configs/config.yml"), HasSubstr("seed: 42"));
  // It is finished: nothing is trained again.
  PreparedRun again = prepare_run(document, {.autoresume = "last"});
  const TrainResult rest = train(again);
  EXPECT_EQ(rest.epochs, 0);
  EXPECT_EQ(rest.weights_hash, result.weights_hash);
}

TEST(TrainDocument, AMistakeIsNamed) {
  const config::Node document = config::parse_yaml("modle: 1", "wrong.yml");
  EXPECT_THROW(prepare_run(document), config::LocatedError);
}

}  // namespace
}  // namespace lockstep::command
