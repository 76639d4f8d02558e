#include "lockstep/science/tracker.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "tests/science/support.h"

namespace lockstep::science {
namespace {

TEST(FileTracker, WritesWhatItIsTold) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "other.txt", "stays");
  FileTracker tracker(folder.path());
  tracker.log_parameters({{"model - lr", 0.5}});
  tracker.log_metrics({{.name = "loss", .value = 1.5, .step = 1}});
  tracker.log_metrics({{.name = "loss", .value = 0.5, .step = 2}, {.name = "a,b", .value = 1}});
  tracker.log_artifact("pictures/a.svg", "<svg/>");
  tracker.finish();
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "params.json"))["model - lr"], 0.5);
  EXPECT_EQ(read_file(folder / "metrics.csv"),
            "name,step,value\nloss,1,1.5\nloss,2,0.5\n\"a,b\",0,1\n");
  EXPECT_EQ(read_file(folder / "pictures/a.svg"), "<svg/>");
  EXPECT_EQ(read_file(folder / "other.txt"), "stays");
}

TEST(FileTracker, BeginsAnewUnlessItIsToAppend) {
  const TemporaryDirectory folder;
  FileTracker(folder.path()).log_metrics({{.name = "a", .value = 1}});
  FileTracker later({.folder = folder.path(), .append = true});
  later.log_metrics({{.name = "b", .value = 2}});
  later.log_parameters({{"x", 1.0}});
  EXPECT_EQ(read_file(folder / "metrics.csv"), "name,step,value\na,0,1\nb,0,2\n");
  const FileTracker anew(folder.path());
  EXPECT_EQ(read_file(folder / "metrics.csv"), "name,step,value\n");
  EXPECT_EQ(read_file(folder / "params.json"), "{}\n");
}

// If a launcher started several processes, only rank 0 writes.
TEST(FileTracker, DoesNothingOnOtherRanks) {
  const TemporaryDirectory folder;
  const test::Rank rank(1, 2);
  FileTracker tracker(folder / "report");
  tracker.log_parameters({{"x", 1.0}});
  tracker.log_metrics({{.name = "b", .value = 2}});
  tracker.log_artifact("a.svg", "<svg/>");
  EXPECT_FALSE(std::filesystem::exists(folder / "report"));
}

}  // namespace
}  // namespace lockstep::science
