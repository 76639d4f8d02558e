#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/recipe/prediction_file.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/science/hdf5.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

TEST(ScienceTargets, CubesOfAFileAndTheirNetwork) {
  const TemporaryDirectory folder;
  science::write_hdf5(folder / "f.h5", {{"u", torch::rand({3, 32, 32, 32})}});
  const std::string text = "path: " + (folder / "f.h5").string() + ", batch_size: 16, flat: true";
  const auto all = targets().datasets.make(node("{HDF5: {" + text + "}}"));
  EXPECT_EQ(all->size(), 8);
  const auto train =
      targets().datasets.make(node("{HDF5: {" + text + ", train_fraction: 0.75, part: train}}"));
  const auto valid =
      targets().datasets.make(node("{HDF5: {" + text + ", train_fraction: 0.75, part: valid}}"));
  EXPECT_EQ(train->size(), 6);
  EXPECT_EQ(valid->size(), 2);
  EXPECT_THAT(
      error_of([&] { targets().datasets.make(node("{HDF5: {" + text + ", part: valid}}")); }),
      HasSubstr("train_fraction"));
  const std::vector<std::int64_t> first = {0};
  const Batch batch = all->gather(first, {});
  const Model model =
      targets().models.make(node("CNN3d"), {.batch = batch, .input = batch["features"]});
  EXPECT_EQ(model(batch["features"]).sizes(), torch::IntArrayRef({1, 12288}));
  EXPECT_THAT(error_of([] { targets().models.make(node("CNN3d"), {}); }),
              HasSubstr("takes its sizes from the data"));
}

TEST(Predictions, InHdf5AreDatasetsByKey) {
  const TemporaryDirectory folder;
  const torch::Tensor logits = torch::rand({3, 2}), labels = torch::arange(3);
  PredictionFile file({.path = folder / "x.h5", .samples = {0, 1, 2}});
  file.write({{"logits", logits.narrow(0, 0, 2)}, {"labels", labels.narrow(0, 0, 2)}});
  file.write({{"logits", logits.narrow(0, 2, 1)}, {"labels", labels.narrow(0, 2, 1)}});
  EXPECT_EQ(file.finish(), (std::vector<std::filesystem::path>{folder / "x.h5"}));
  const science::Hdf5File written(folder / "x.h5");
  EXPECT_TRUE(written.read("logits").equal(logits));
  EXPECT_TRUE(written.read("labels").equal(labels.to(torch::kFloat32)));
}

}  // namespace
}  // namespace lockstep::recipe
