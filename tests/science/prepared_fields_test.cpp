#include "lockstep/science/prepared_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/data/cache.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/transformed.h"
#include "tests/science/support.h"

namespace lockstep::science {
namespace {

using ::testing::HasSubstr;

data::DatasetPtr counted_fields() {
  const torch::Tensor x = torch::arange(64 * 2 * 4, torch::kFloat32).reshape({64, 2, 4});
  return std::make_shared<data::TensorDataset>(x, x + 1000);
}

std::vector<std::int64_t> all_indices() {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < 64; ++i) indices.push_back(i);
  return indices;
}

TEST(PreparedFields, AreScaledThenTransformedThenFlat) {
  const data::Scaling scaling{
      .features = {.kind = data::Normalization::kStandard, .shift = {1, 2}, .scale = {2, 4}},
      .targets = {.kind = data::Normalization::kMinMax, .shift = {1000, 1000}, .scale = {1, 2}}};
  const auto plus_one = data::Lambda([](const torch::Tensor& batch) { return batch + 1; });
  const PreparedFields prepared_fields(counted_fields(),
                                       {.scaling = scaling, .transform = plus_one, .flat = true});
  EXPECT_EQ(prepared_fields.size(), 64);
  const Batch sample = prepared_fields.sample(0);
  EXPECT_TRUE(
      sample["features"].equal(torch::tensor({{0.5F, 1.F, 1.5F, 2.F}, {1.5F, 1.75F, 2.F, 2.25F}})));
  EXPECT_TRUE(sample["targets"].equal(torch::tensor({0.F, 1.F, 2.F, 3.F, 2.F, 2.5F, 3.F, 3.5F})));
  EXPECT_EQ(prepared_fields.scaling(), scaling);
  EXPECT_EQ(prepared_fields.name_of(3), "sample 3");
  const PreparedFields is_scaled(counted_fields(), {.scaling = scaling, .is_scaled = true});
  EXPECT_TRUE(is_scaled.sample(5)["features"].equal(counted_fields()->sample(5)["features"]));
  EXPECT_EQ(is_scaled.scaling(), scaling);
  const auto inside = prepared(counted_fields(), {.scaling = scaling});
  EXPECT_EQ(prepared(inside, {.flat = true})->scaling(), scaling);
}

TEST(PreparedFields, ChangeFeaturesAndTargetsInTheSameWay) {
  const PreparedFields mirrored(counted_fields(), {.transform = test::RandomMirror(),
                                                   .target_transform = test::RandomMirror()});
  const auto indices = all_indices();
  const data::EpochKey key{.seed = 1, .epoch = 2};
  const Batch batch = mirrored.gather_in_epoch(indices, key, {});
  EXPECT_TRUE((batch["features"] + 1000).equal(batch["targets"]));
  EXPECT_FALSE(batch["features"].equal(counted_fields()->gather(indices, {})["features"]));
  const Batch next = mirrored.gather_in_epoch(indices, {.seed = 1, .epoch = 3}, {});
  EXPECT_FALSE(batch["features"].equal(next["features"])) << "another epoch";
  for (const std::int64_t i : {0, 7, 63}) {
    EXPECT_TRUE(mirrored.sample_in_epoch(i, key)["features"].equal(batch["features"][i]))
        << "alone as in a batch: " << i;
  }
}

TEST(PreparedFields, OfALoaderDoNotDependOnPrefetch) {
  const auto mirrored = std::make_shared<PreparedFields>(
      counted_fields(), Preparation{.transform = test::RandomMirror()});
  const auto epoch = [&](std::int64_t prefetch) {
    const data::Loader loader(mirrored, {.batch_size = 5, .shuffle = true, .prefetch = prefetch});
    std::vector<torch::Tensor> seen;
    auto stream = loader.stream({.seed = 3, .epoch = 4});
    while (auto batch = stream.next()) seen.push_back((*batch)["features"].clone());
    return torch::cat(seen);
  };
  EXPECT_TRUE(epoch(0).equal(epoch(3)));
}

TEST(PreparedFields, NothingToDoIsTheDataSetItself) {
  const auto raw = counted_fields();
  EXPECT_EQ(prepared(raw, {}), raw);
  EXPECT_NE(prepared(raw, {.flat = true}), raw);
}

TEST(PreparedFields, AnErrorNamesTheKey) {
  const data::Scaling scaling{
      .features = {.kind = data::Normalization::kStandard, .shift = {1}, .scale = {2}}};
  const PreparedFields wrong(counted_fields(), {.scaling = scaling});
  try {
    wrong.sample(0);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'features': scaling (standard): expected [B, 1, …]"));
  }
}

TEST(PreparedFields, AreRandomIfATransformIs) {
  const auto doubled = data::Lambda([](const torch::Tensor& batch) { return batch * 2; });
  EXPECT_FALSE(PreparedFields(counted_fields(), {.transform = doubled}).is_random());
  for (const Preparation& preparation : {Preparation{.transform = test::RandomMirror()},
                                         Preparation{.target_transform = test::RandomMirror()}}) {
    const auto mirrored = prepared(counted_fields(), preparation);
    EXPECT_TRUE(mirrored->is_random());
    EXPECT_THROW(data::cached(mirrored), ConfigError);
  }
}

// The same numbers twice would mirror each sample twice, which is no mirroring at all.
TEST(PreparedFields, DrawOtherNumbersThanTheDataSetsInsideAndOutside) {
  const Preparation mirrored{.transform = test::RandomMirror()};
  const auto inside =
      data::transformed(prepared(counted_fields(), mirrored), {.transform = test::RandomMirror()});
  const auto outside =
      prepared(data::transformed(counted_fields(), {.transform = test::RandomMirror()}), mirrored);
  const torch::Tensor plain = counted_fields()->gather(all_indices(), {})["features"];
  EXPECT_FALSE(inside->gather(all_indices(), {})["features"].equal(plain));
  EXPECT_FALSE(outside->gather(all_indices(), {})["features"].equal(plain));
}

TEST(PreparedFields, KnowTheColumnsThatTheyDoNotChange) {
  const auto same_targets = prepared(counted_fields(), {.transform = test::RandomMirror()});
  EXPECT_TRUE(same_targets->column("targets").equal(counted_fields()->column("targets")));
  EXPECT_FALSE(same_targets->column("features").defined());
  EXPECT_FALSE(prepared(counted_fields(), {.flat = true})->column("targets").defined());
}

}  // namespace
}  // namespace lockstep::science
