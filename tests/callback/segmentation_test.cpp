#include "lockstep/callback/segmentation.h"

#include <gtest/gtest.h>

#include "tests/callback/metric_runs.h"

namespace lockstep {
namespace {

// Maps of 2 x 2 pixels: the model makes 3 classes x 4 pixels from 4 numbers.
data::DatasetPtr maps(std::int64_t count, std::uint64_t seed) {
  torch::manual_seed(seed);
  const auto features = torch::randn({count, 4});
  return std::make_shared<data::TensorDataset>(
      features, features.gt(0).to(torch::kInt64) + features.gt(1).to(torch::kInt64));
}

// Gives the outputs of a linear layer the shape of maps.
struct MapsImpl : torch::nn::Module {
  MapsImpl() { linear = register_module("linear", torch::nn::Linear(4, 12)); }
  torch::Tensor forward(const torch::Tensor& x) { return linear(x).view({-1, 3, 4}); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Maps);

TEST(SegmentationCallbacks, AreTheSameForAnyNumberOfWorkersAndAfterAResume) {
  const auto history = toy::expect_same_history(
      {.train = maps(41, 1),
       .valid = maps(17, 2),
       .model = [] { return Model(Maps()); },
       .callbacks =
           [] {
             const SegmentationCallbackOptions options{.num_classes = 3, .per_class = true};
             return Callbacks{IOUCallback(options), DiceCallback(options),
                              PixelAccuracyCallback(options),
                              TrevskyCallback({.alpha = 0.7, .maps = options})};
           }});
  const Metrics& train = history.at(2).at("train");
  EXPECT_GT(train.at("dice"), train.at("iou"));
  EXPECT_EQ(train.count("tversky/class_02"), 1u);
  EXPECT_EQ(train.at("pixel_accuracy"), train.at("pixel_accuracy/_micro"));
}

TEST(SegmentationCallbacks, LargerIsBetter) {
  EXPECT_EQ(IOUCallback({.num_classes = 2}).better("iou"), Better::kLarger);
  EXPECT_EQ(DiceCallback({.num_classes = 2, .prefix = "a_"}).better("a_dice/_micro"),
            Better::kLarger);
  EXPECT_EQ(IOUCallback({.num_classes = 2}).better("dice"), std::nullopt);
}

// A run compares the options of its ranks.
TEST(SegmentationCallbacks, TellTheirOptions) {
  EXPECT_NE(TverskyCallback({.alpha = 0.5, .maps = {.num_classes = 2}}).agreed_options(),
            TverskyCallback({.alpha = 0.6, .maps = {.num_classes = 2}}).agreed_options());
  EXPECT_NE(IOUCallback({.num_classes = 2}).agreed_options(),
            IOUCallback({.num_classes = 2, .ignore_index = 255}).agreed_options());
}

}  // namespace
}  // namespace lockstep
