#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

TEST(Engines, OptionsReachThem) {
  const auto ddp =
      targets().engines.make(node("{DistributedDataParallelEngine: {workers: 2, shards: 4, "
                                  "threads: 1, timeout: 1.5, device: cpu}}"));
  EXPECT_EQ(ddp->workers(), 2);
  EXPECT_EQ(ddp->shards(), 4);
  EXPECT_EQ(targets().engines.make(node("{DeviceEngine: {device: cpu}}"))->workers(), 1);
}

TEST(Engines, RefuseWhatCannotBe) {
  const auto error = [](const std::string& text) {
    return error_of([&] { targets().engines.make(node(text)); });
  };
  EXPECT_THAT(error("{DistributedDataParallelEngine: {workers: 0}}"), HasSubstr("workers"));
  EXPECT_THAT(error("{DistributedDataParallelEngine: {workers: 4, shards: 2}}"),
              HasSubstr("shards"));
  EXPECT_THAT(error("{DistributedDataParallelEngine: {backend: tcp}}"), HasSubstr("backend"));
}

TEST(Runners, AndLoggers) {
  EXPECT_NE(targets().runners.make(node("{SupervisedRunner: {output_key: scores}}")), nullptr);
  EXPECT_NE(targets().loggers.make(node("{CsvLogger: {logdir: /tmp}}")), nullptr);
  EXPECT_THAT(error_of([] { targets().loggers.make(node("TensorBoardLogger")); }),
              HasSubstr("logdir is missing"));
}

}  // namespace
}  // namespace lockstep::recipe
