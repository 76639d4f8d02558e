#include "lockstep/data/tensor_dataset.h"

#include <vector>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

const std::vector<std::int64_t> kSomeRows = {4, 0, 4};

torch::Tensor some_of(const torch::Tensor& rows) {
  return rows.index_select(0, torch::tensor(kSomeRows, torch::kInt64));
}

TEST(TensorDataset, GathersFeaturesAndTargets) {
  const torch::Tensor features = torch::rand({5, 3});
  const torch::Tensor targets = torch::arange(5);
  const TensorDataset dataset(features, targets);
  EXPECT_EQ(dataset.size(), 5);
  const Batch batch = dataset.gather(kSomeRows, {});
  EXPECT_THAT(batch.keys(), testing::ElementsAre("features", "targets"));
  EXPECT_TRUE(torch::equal(batch["features"], some_of(features)));
  EXPECT_TRUE(torch::equal(batch["targets"], some_of(targets)));
}

TEST(TensorDataset, SampleHasNoBatchDimension) {
  const TensorDataset dataset(torch::rand({5, 3}), torch::arange(5));
  const Batch sample = dataset.sample(2);
  EXPECT_EQ(sample["features"].sizes(), torch::IntArrayRef{3});
  EXPECT_EQ(sample["targets"].dim(), 0);
  EXPECT_EQ(sample["targets"].item<std::int64_t>(), 2);
}

// The gather must give in one pass the same result as the transform.
TEST(TensorDataset, FusedTransformHasTheBitsOfTheTransform) {
  const Normalize normalize({.mean = {0.1307}, .std = {0.3081}});
  const TransformPtr transforms[] = {
      {},
      ToTensor(),
      Compose({ToTensor(), normalize}),
      Compose({ToTensor(), normalize, normalize}),
      Cast(torch::kInt64),
      Cast(torch::kFloat64),
      Compose({ToTensor(), Lambda([](const torch::Tensor& t) { return t.flatten(1); })})};
  for (const torch::Tensor& bytes : {torch::randint(0, 256, {5, 9, 11}, torch::kUInt8),
                                     torch::randint(0, 256, {5, 9, 11, 3}, torch::kUInt8)}) {
    for (const TransformPtr& transform : transforms) {
      const auto dataset = tensor_dataset({{"x", bytes, transform}});
      const torch::Tensor got = dataset->gather(kSomeRows, {})["x"];
      const torch::Tensor expected = transform.apply(some_of(bytes));
      EXPECT_EQ(got.scalar_type(), expected.scalar_type());
      EXPECT_TRUE(torch::equal(got, expected));
    }
  }
}

TEST(TensorDataset, RefusesChannelsFirstAsTheTransformDoes) {
  const auto dataset =
      tensor_dataset({{"x", torch::zeros({5, 3, 8, 8}, torch::kUInt8), ToTensor()}});
  EXPECT_THAT(error_text<DataError>([&] { dataset->gather(kSomeRows, {}); }),
              HasSubstr("'x': ToTensor: expected channels last"));
}

TEST(TensorDataset, TransformsFloatsToo) {
  const auto dataset =
      tensor_dataset({{"x", torch::ones({5, 2, 4}), Normalize({.mean = {0.5}, .std = {0.5}})}});
  EXPECT_TRUE(torch::equal(dataset->gather(kSomeRows, {})["x"], torch::ones({3, 2, 4})));
}

TEST(TensorDataset, WritesIntoTheBatchToReuse) {
  const auto dataset =
      tensor_dataset({{"features", torch::randint(0, 256, {5, 4, 4}, torch::kUInt8), ToTensor()},
                      {"targets", torch::arange(5, torch::kUInt8), Cast(torch::kInt64)}});
  const Batch old = dataset->gather(std::vector<std::int64_t>{0, 1, 2}, {});
  const Batch fresh = dataset->gather(kSomeRows, old);
  EXPECT_TRUE(fresh["features"].is_same(old["features"]));
  EXPECT_TRUE(fresh["targets"].is_same(old["targets"]));
  EXPECT_TRUE(torch::equal(fresh["targets"], torch::tensor(kSomeRows, torch::kInt64)));
}

TEST(TensorDataset, AcceptsStridedTensorsAndThoseWithAHistory) {
  const torch::Tensor features = torch::rand({3, 5}).requires_grad_();
  const TensorDataset dataset(features.t() * 2, torch::arange(5));
  const Batch batch = dataset.gather(kSomeRows, {});
  EXPECT_FALSE(batch["features"].requires_grad());
  EXPECT_TRUE(torch::equal(batch["features"], some_of(features.detach().t() * 2)));
}

TEST(TensorDataset, GathersNoneWithTheShapeOfARow) {
  const TensorDataset dataset(torch::rand({5, 3}), torch::arange(5));
  EXPECT_EQ(dataset.gather({}, {})["features"].sizes(), (torch::IntArrayRef{0, 3}));
}

TEST(TensorDataset, RefusesTensorsThatDoNotBelongTogether) {
  EXPECT_EQ(error_text<DataError>([] {
              TensorDataset(torch::rand({5, 3}), torch::arange(4));
            }),
            "TensorDataset: 'targets' has 4 rows, but 'features' has 5");
  EXPECT_THROW(TensorDataset(torch::rand({}), torch::arange(4)), DataError);
  EXPECT_THROW(TensorDataset(torch::rand({4}), torch::Tensor()), DataError);
  EXPECT_THROW(tensor_dataset({}), ConfigError);
  EXPECT_THROW(tensor_dataset({{"x", torch::rand({4})}, {"x", torch::rand({4})}}), ConfigError);
}

TEST(TensorDataset, RefusesAnIndexOutOfRange) {
  const TensorDataset dataset(torch::rand({5, 3}), torch::arange(5));
  EXPECT_THROW(dataset.gather(std::vector<std::int64_t>{5}, {}), DataError);
  EXPECT_THROW(dataset.sample(-1), DataError);
}

TEST(TensorDataset, NamesTheKeyWhoseTransformCannotWork) {
  const auto flat = tensor_dataset({{"features", torch::zeros({5, 4}, torch::kUInt8), ToTensor()}});
  EXPECT_THAT(error_text<DataError>([&] { flat->sample(0); }), HasSubstr("'features': ToTensor: "));
  const auto colours =
      tensor_dataset({{"features", torch::zeros({5, 4, 4, 2}, torch::kUInt8),
                       Compose({ToTensor(), Normalize({.mean = {0, 0, 0}, .std = {1, 1, 1}})})}});
  EXPECT_THAT(error_text<DataError>([&] { colours->sample(0); }), HasSubstr("C = 3"));
}

}  // namespace
}  // namespace lockstep::data
