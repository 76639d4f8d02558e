#include "lockstep/recipe/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/data/partitioned.h"
#include "lockstep/recipe/shorthand.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

// [1, 4] samples, all of them scaled by 1000.
class Thousands : public data::ScaledDataset {
 public:
  std::int64_t size() const override { return 8; }
  Batch sample(std::int64_t index) const override {
    const torch::Tensor row = torch::full({1, 4}, 0.1 * static_cast<double>(index));
    return {{"features", row}, {"targets", row.flatten()}};
  }
  const data::Scaling& scaling() const override { return scaling_; }

 private:
  data::ChannelScaling one_{
      .kind = data::Normalization::kStandard, .shift = {0.5}, .scale = {1000}};
  data::Scaling scaling_{.features = one_, .targets = one_};
};

struct ThousandsOptions {
  data::Normalization normalize = data::Normalization::kNone;
  std::optional<data::Scaling> scaling = {};
};

config::Node document_with(const std::string& loaders) {
  static const bool added = [] {
    using O = ThousandsOptions;
    targets().datasets.add<O>("Thousands", "For tests.",
                              {{"normalize", &O::normalize, "how"}, {"scaling", &O::scaling, "it"}},
                              [](const O&) { return std::make_shared<Thousands>(); });
    return true;
  }();
  EXPECT_TRUE(added);
  config::Node document = config::parse_yaml(
      "model: [Flatten, {Linear: {out_features: 4}}]\ncriterion: MSELoss\n"
      "optimizer: {_target_: SGD, lr: 0.1}\nnum_epochs: 1\n" +
          loaders,
      "a.yml");
  spell_out(document);
  return document;
}

std::string recorded(config::Node document) {
  record_scaling(read_recipe(document), document);
  return config::to_yaml(document);
}

TEST(RecordedScaling, IsNextToNormalize) {
  const std::string text =
      recorded(document_with("loaders: {train: {dataset: {Thousands: {normalize: standard}}}}"));
  const config::Node again = config::parse_yaml(text, "b.yml");
  const config::Node* const dataset = again.find("loaders")->find("train")->find("dataset");
  ASSERT_TRUE(dataset->contains("scaling")) << text;
  EXPECT_EQ(config::Value<data::Scaling>::read(*dataset->find("scaling")), Thousands().scaling());
  EXPECT_EQ(recorded(again), text) << "what is there stays";
}

TEST(RecordedScaling, IsFoundInsideOfASubsetAndInAStage) {
  EXPECT_THAT(recorded(document_with("loaders: {train: {dataset: {Subset: {count: 4, dataset: "
                                     "{Thousands: {normalize: standard}}}}}}")),
              HasSubstr("scaling:"));
  EXPECT_THAT(recorded(document_with("stages: {a: {loaders: {train: {dataset: {Thousands: "
                                     "{normalize: standard}}}}}}")),
              HasSubstr("scaling:"));
  EXPECT_THAT(recorded(document_with("loaders: {train: {dataset: {Noise: {shape: [1, 4]}}}}")),
              ::testing::Not(HasSubstr("scaling:")));
}

TEST(OutputScaling, ChangesOutputsOfTheTargetsSize) {
  const data::Loader loader(std::make_shared<Thousands>());
  Batch outputs = {{"logits", torch::ones({3, 4})}, {"size", torch::ones({3, 2})}};
  OutputScaling(loader).undo(outputs);
  EXPECT_TRUE(outputs["logits"].equal(torch::full({3, 4}, 1000.5)));
  EXPECT_TRUE(outputs["size"].equal(torch::ones({3, 2})));
}

// The first sample is not on this host.
TEST(OutputScaling, IsFoundInAPartOfTheData) {
  const data::Loader loader(
      data::partitioned({.parts = 2, .here = {{1, std::make_shared<Thousands>()}}}));
  Batch outputs = {{"logits", torch::ones({3, 4})}};
  OutputScaling(loader).undo(outputs);
  EXPECT_TRUE(outputs["logits"].equal(torch::full({3, 4}, 1000.5)));
}

TEST(ScalingValue, MistakesAreFoundInTheirPlace) {
  const auto read = [](const std::string& text) {
    return error_of([&] { config::Value<data::Scaling>::read(node(text)); });
  };
  EXPECT_EQ(read("{features: {kind: log, shift: [1], scale: [2]}}"), "");
  EXPECT_THAT(read("{features: {kind: log, shift: [1], scale: [0]}}"), HasSubstr("it/features"));
  EXPECT_THAT(read("{features: {kind: logs}}"), HasSubstr("expected none or standard or minmax"));
  EXPECT_THAT(read("{feature: {}}"), HasSubstr("did you mean 'features'"));
}

}  // namespace
}  // namespace lockstep::recipe
