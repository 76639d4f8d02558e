#include "lockstep/train/batch_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/support/toy.h"
#include "tests/train/late_copies.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

struct FeedTest : testing::Test {
  // Batches with the numbers 1, 2, …
  BatchFeed::Read read = [this] {
    if (++number == bad) throw DataError("batch {} is damaged", number);
    return Batch{{"features", torch::full({2}, number)}};
  };
  std::int64_t next(BatchFeed& feed) { return feed.next(read)["features"][0].item<std::int64_t>(); }

  std::int64_t number = 0;
  std::int64_t bad = -1;
  LateCopies copies;
};

TEST_F(FeedTest, WithoutCopiesNothingIsReadAhead) {
  BatchFeed feed(nullptr);
  feed.read_ahead(read);
  EXPECT_EQ(number, 0);
  EXPECT_EQ(next(feed), 1);
}

TEST_F(FeedTest, CopiesAreBegunAheadAndTakenInOrder) {
  BatchFeed feed(&copies);
  EXPECT_EQ(next(feed), 1);
  feed.read_ahead(read);
  feed.read_ahead(read);
  EXPECT_THAT(copies.events, ElementsAre("send", "take", "send", "send"));
  EXPECT_EQ(next(feed), 2);
  EXPECT_EQ(next(feed), 3);
  EXPECT_EQ(next(feed), 4) << "nothing was ahead";
}

TEST_F(FeedTest, AnErrorIsThrownWhenItsBatchIsDue) {
  bad = 3;
  BatchFeed feed(&copies);
  feed.read_ahead(read);
  feed.read_ahead(read);
  feed.read_ahead(read);
  EXPECT_EQ(number, 3) << "nothing is read behind it";
  EXPECT_EQ(next(feed), 1);
  EXPECT_EQ(next(feed), 2);
  EXPECT_EQ(toy::error_of([&] { next(feed); }), "batch 3 is damaged");
}

TEST_F(FeedTest, APassThatEndsEarlyDropsWhatIsAhead) {
  BatchFeed feed(&copies);
  feed.read_ahead(read);
  EXPECT_TRUE(feed.is_ahead());
  feed.drop();
  EXPECT_FALSE(feed.is_ahead());
  EXPECT_EQ(next(feed), 2);
}

}  // namespace
}  // namespace lockstep
