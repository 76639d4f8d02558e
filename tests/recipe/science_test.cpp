#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
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

}  // namespace
}  // namespace lockstep::recipe
