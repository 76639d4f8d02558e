#include "lockstep/data/list_dataset.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/collate.h"

namespace lockstep::data {
namespace {

TEST(ListDataset, HasTheSamplesThatItWasGiven) {
  const auto listed = list_dataset(
      {{{"x", torch::ones({2})}}, {{"x", torch::ones({3})}}, {{"x", torch::ones({2})}}});
  EXPECT_EQ(listed->size(), 3);
  EXPECT_EQ(listed->sample(1)["x"].size(0), 3);
  EXPECT_EQ(listed->gather(std::vector<std::int64_t>{0, 2}, {})["x"].sizes(),
            torch::IntArrayRef({2, 2}));
  EXPECT_THROW(listed->gather(std::vector<std::int64_t>{0, 1}, {}), DataError);
  const std::vector<std::int64_t> both = {0, 1};
  EXPECT_EQ(make_batch(*listed, pad(), {.indices = both})["x"].size(1), 3);
  EXPECT_THROW(listed->sample(3), DataError);
}

}  // namespace
}  // namespace lockstep::data
