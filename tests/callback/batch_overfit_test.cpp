#include "lockstep/callback/batch_overfit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/toy.h"

namespace lockstep {
namespace {

// The batches of each loader, one entry per batch.
std::map<std::string, std::vector<torch::Tensor>> served(TrainOptions options) {
  std::map<std::string, std::vector<torch::Tensor>> seen;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_start = [&](State& s) { seen[s.loader].push_back(s.batch["features"].clone()); };
  options.callbacks.add(hooks);
  toy::train(options);
  return seen;
}

TEST(BatchOverfit, RepeatsTheFirstBatchForTheWholeLength) {
  TrainOptions options = toy::options();
  options.num_epochs = 2;
  const auto plain = served(options);
  options.overfit = true;
  const auto seen = served(options);
  ASSERT_EQ(seen.at("train").size(), plain.at("train").size());
  for (const auto& batch : seen.at("train")) {
    EXPECT_TRUE(batch.equal(plain.at("train").front().narrow(0, 0, batch.size(0))));
  }
  for (const auto& batch : seen.at("valid")) EXPECT_TRUE(batch.equal(plain.at("valid").front()));
}

TEST(BatchOverfit, TakesACountOrAShareOfBatches) {
  TrainOptions options = toy::options();
  options.num_epochs = 1;
  const auto plain = served(options).at("train");
  options.callbacks = {BatchOverfitCallback({.batches = {{"train", std::int64_t{2}}}})};
  const auto two = served(options).at("train");
  EXPECT_TRUE(two[1].equal(plain[1]));
  EXPECT_TRUE(two[2].equal(plain[0]));
  options.callbacks = {BatchOverfitCallback({.batches = {{"train", 0.5}}})};
  const auto half = served(options).at("train");
  EXPECT_TRUE(half[3].equal(plain[3])) << "seven batches: four of them";
  EXPECT_TRUE(half[4].equal(plain[0]));
}

// 50 samples in batches of 2 shards x 8 are 4 batches, of which the limit leaves 3.
TEST(BatchOverfit, CountsBatchesOfAllShards) {
  const auto sharded = [] {
    TrainOptions options = toy::options();
    options.num_epochs = 1;
    options.ddp = true;
    options.workers = 1;
    options.shards = 2;
    options.limit_batches = {{"train", 3}};
    return options;
  };
  const auto plain = served(sharded()).at("train");
  ASSERT_EQ(plain.size(), 3u * 2);
  TrainOptions options = sharded();
  options.overfit = true;
  const auto one = served(options).at("train");
  ASSERT_EQ(one.size(), plain.size()) << "the whole length";
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(plain[i % 2])) << i;
  options = sharded();
  options.callbacks = {BatchOverfitCallback({.batches = {{"train", 0.67}}})};
  const auto two = served(options).at("train");
  ASSERT_EQ(two.size(), plain.size());
  for (std::size_t i = 0; i < two.size(); ++i) {
    EXPECT_TRUE(two[i].equal(plain[i % 4])) << "two of three batches: " << i;
  }
}

TEST(BatchOverfit, LosesNothingOfTheOriginals) {
  TrainOptions options = toy::options();
  options.overfit = true;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->run_end = [&](State& s) {
    EXPECT_EQ(s.loaders.at("train").options().shuffle, true);
    EXPECT_EQ(s.loaders.at("train").options().sampler, nullptr);
  };
  options.callbacks = {hooks};
  toy::train(options);
}

TEST(BatchOverfit, SaysWhatIsWrongWithIt) {
  EXPECT_THROW(BatchOverfitCallback({.batches = {{"train", 1.5}}}), ConfigError);
  EXPECT_THROW(BatchOverfitCallback({.batches = {{"train", std::int64_t{0}}}}), ConfigError);
  TrainOptions options = toy::options();
  options.callbacks = {BatchOverfitCallback({.batches = {{"trian", 0.5}}})};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), testing::HasSubstr("'train'"));
}

}  // namespace
}  // namespace lockstep
