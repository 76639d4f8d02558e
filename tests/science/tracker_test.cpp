#include "lockstep/science/tracker.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"

namespace lockstep::science {
namespace {

TEST(FileTracker, WritesWhatItIsTold) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "other.txt", "stays");
  FileTracker tracker(folder.path());
  tracker.log_parameter("model - lr", 0.5);
  tracker.log_metric("loss", 1.5, 1);
  tracker.log_metric("loss", 0.5, 2);
  tracker.log_artifact("pictures/a.svg", "<svg/>");
  tracker.finish();
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "params.json"))["model - lr"], 0.5);
  EXPECT_EQ(read_file(folder / "metrics.csv"), "name,step,value\nloss,1,1.5\nloss,2,0.5\n");
  EXPECT_EQ(read_file(folder / "pictures/a.svg"), "<svg/>");
  EXPECT_EQ(read_file(folder / "other.txt"), "stays");
}

}  // namespace
}  // namespace lockstep::science
