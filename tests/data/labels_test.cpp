#include "lockstep/data/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/list_dataset.h"
#include "lockstep/data/subset.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Labels, AreReadFromTheSamples) {
  const auto listed = list_dataset({{{"targets", torch::tensor(3)}},
                                    {{"targets", torch::tensor({1}, torch::kInt64)}},
                                    {{"targets", torch::tensor(true)}}});
  EXPECT_THAT(labels_of(*listed), ElementsAre(3, 1, 1));
  EXPECT_TRUE(labels_of(*list_dataset({})).empty());
}

// A data set that knows its column is not read sample by sample.
TEST(Labels, AreTakenFromAColumnIfThereIsOne) {
  struct Told : Dataset {
    std::int64_t size() const override { return 3; }
    Batch sample(std::int64_t) const override { throw DataError("was read"); }
    torch::Tensor column(std::string_view key) const override {
      return key == "classes" ? torch::tensor({4, 5, 6}) : torch::Tensor();
    }
  };
  const auto told = std::make_shared<Told>();
  EXPECT_THAT(labels_of(*told, "classes"), ElementsAre(4, 5, 6));
  EXPECT_THAT(labels_of(Subset(told, {2, 0}), "classes"), ElementsAre(6, 4));
  EXPECT_THROW(labels_of(*told, "targets"), DataError);
  const auto bytes = torch::tensor({9, 8}, torch::kUInt8);
  EXPECT_THAT(labels_of(*tensor_dataset(
                  {{"x", torch::rand({2, 3})}, {"targets", bytes, Cast(torch::kInt64)}})),
              ElementsAre(9, 8));
}

TEST(Labels, MustBeOneIntegerPerSample) {
  EXPECT_THAT(error_text<DataError>([] {
                labels_of(*list_dataset(
                    {{{"targets", torch::tensor(1)}}, {{"targets", torch::tensor(0.5)}}}));
              }),
              AllOf(HasSubstr("sample 1: 'targets'"), HasSubstr("integer")));
  EXPECT_THAT(error_text<DataError>([] {
                labels_of(*tensor_dataset({{"targets", torch::zeros({3, 2}, torch::kInt64)}}));
              }),
              HasSubstr("sample 0: 'targets'"));
  EXPECT_THROW(labels_of(*list_dataset({{{"x", torch::tensor(1)}}})), ConfigError);
}

TEST(Lengths, AreTheFirstDimension) {
  const auto listed =
      list_dataset({{{"tokens", torch::zeros({3, 2})}}, {{"tokens", torch::zeros({0})}}});
  EXPECT_THAT(lengths_of(*listed, "tokens"), ElementsAre(3, 0));
  EXPECT_THAT(error_text<DataError>([] {
                lengths_of(*list_dataset({{{"features", torch::tensor(1)}}}));
              }),
              HasSubstr("sample 0: 'features'"));
}

TEST(Labels, AnErrorNamesTheSample) {
  struct Broken : Dataset {
    std::int64_t size() const override { return 3; }
    Batch sample(std::int64_t index) const override {
      if (index == 2) throw DataError("the file ends too early");
      return {{"targets", torch::tensor({index})}, {"features", torch::zeros({1})}};
    }
    std::string name_of(std::int64_t index) const override { return fmt::format("{}.jpg", index); }
  };
  const std::string expected = "2.jpg: the file ends too early";
  EXPECT_EQ(error_text<DataError>([] { labels_of(Broken()); }), expected);
  EXPECT_EQ(error_text<DataError>([] { lengths_of(Broken()); }), expected);
  EXPECT_THAT(error_text<ConfigError>([] { labels_of(Broken(), "label"); }), HasSubstr("0.jpg: "));
}

}  // namespace
}  // namespace lockstep::data
