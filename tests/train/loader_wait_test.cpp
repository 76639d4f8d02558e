#include "lockstep/train/loader_wait.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(LoaderWait, IsNotMentionedIfItIsShort) {
  EXPECT_EQ(advice_on_wait({.loader = "train", .seconds = 10, .waited = 2.9}), "");
  EXPECT_EQ(advice_on_wait({.loader = "train"}), "");
}

TEST(LoaderWait, ThreadsHelpIfThereAreCores) {
  EXPECT_EQ(
      advice_on_wait({.loader = "train", .seconds = 10, .waited = 6.2, .cores = 4}),
      "loader 'train': 62 % of the pass (6.2 of 10 s) were spent waiting for batches. Set the "
      "loader's threads to 4 (now 0), or keep decoded samples in memory (data::cached, Cached "
      "in a config)");
}

TEST(LoaderWait, ACacheHelpsIfAllCoresAreBusy) {
  const std::string advice =
      advice_on_wait({.loader = "train", .seconds = 10, .waited = 6, .threads = 4, .cores = 4});
  EXPECT_THAT(advice, HasSubstr("Its 4 threads already have all 4 cores of the worker: keep"));
}

// Threads do nothing for a stream, so they are not advised.
TEST(LoaderWait, AStreamIsReadAhead) {
  LoaderWait wait{.loader = "train", .seconds = 10, .waited = 6, .is_stream = true, .cores = 4};
  EXPECT_THAT(advice_on_wait(wait), AllOf(HasSubstr("Set the loader's prefetch to 2 (now 0)"),
                                          Not(HasSubstr("threads"))));
  wait.prefetch = 2;
  EXPECT_THAT(advice_on_wait(wait), AllOf(HasSubstr("make next() of its source cheaper"),
                                          Not(HasSubstr("threads")), Not(HasSubstr("prefetch"))));
}

}  // namespace
}  // namespace lockstep
