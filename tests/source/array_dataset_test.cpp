#include "lockstep/source/array_dataset.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/source/npy.h"
#include "tests/checkpoint/zip.h"
#include "tests/data/error_text.h"
#include "tests/source/safetensors_files.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::int64_t> kArrayRows = {2, 0, 2, 1};

torch::Tensor array_rows(const torch::Tensor& array) {
  return array.index_select(0, torch::tensor(kArrayRows, torch::kInt64));
}

class ArrayFiles : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void save(const std::string& name, const torch::Tensor& array) const {
    NpyFile file(folder_ / name, array.scalar_type(), array.sizes().vec());
    file.append(array);
    file.finish();
  }

  // An .npz with arrays as numpy.savez writes it: numbers begin anywhere.
  void save_npz(const std::string& name, const torch::Tensor& x, const torch::Tensor& y) const {
    save("x.tmp", x);
    save("y.tmp", y);
    write_file_atomically(
        folder_ / name, checkpoint::zip({{.name = "x.npy", .content = read_file(path("x.tmp"))},
                                         {.name = "y.npy", .content = read_file(path("y.tmp"))}}));
  }

  const torch::Tensor x_ = torch::rand({3, 5});
  const torch::Tensor y_ = torch::arange(3);
  TemporaryDirectory folder_;
};

TEST_F(ArrayFiles, RowsAreSamples) {
  save("x.npy", x_);
  save("y.npy", y_);
  const auto dataset = array_dataset({.features = path("x.npy"), .targets = path("y.npy")});
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_TRUE(torch::equal(dataset->sample(1)["features"], x_[1]));
  const Batch batch = dataset->gather(kArrayRows, {});
  EXPECT_TRUE(torch::equal(batch["features"], array_rows(x_)));
  EXPECT_TRUE(torch::equal(batch["targets"], array_rows(y_)));
  EXPECT_EQ(dataset->name_of(1), "row 1 of " + path("x.npy"));
  EXPECT_FALSE(array_dataset({.features = path("x.npy")})->sample(0).contains("targets"));
}

TEST_F(ArrayFiles, ArraysOfAnArchiveAreNamedInTwoWays) {
  save_npz("d.npz", x_, y_);
  write_file_atomically(folder_ / "d.safetensors", small_safetensors());
  for (const auto& dataset :
       {array_dataset({.file = path("d.npz"), .features = "x", .targets = "y"}),
        array_dataset({.features = path("d.npz#x"), .targets = path("d.npz#y")}),
        array_dataset({.keys = {{"features", path("d.npz#x")}, {"targets", path("d.npz#y")}}})}) {
    const Batch batch = dataset->gather(kArrayRows, {});
    EXPECT_TRUE(torch::equal(batch["features"], array_rows(x_)));
    EXPECT_TRUE(torch::equal(batch["targets"], array_rows(y_)));
  }
  const auto tensors =
      array_dataset({.file = path("d.safetensors"), .keys = {{"a", "x"}, {"b", "y"}}});
  EXPECT_TRUE(torch::equal(tensors->sample(1)["a"], torch::tensor({3.F, 4.F, 5.F})));
  EXPECT_EQ(tensors->sample(1)["b"].item<std::int64_t>(), 8);
}

TEST_F(ArrayFiles, TransformsAreForFeaturesAndTargets) {
  save("x.npy", torch::randint(0, 256, {3, 4, 4}).to(torch::kUInt8));
  save("y.npy", torch::tensor({1, 0, 2}, torch::kUInt8));
  const auto dataset = array_dataset({.features = path("x.npy"),
                                      .targets = path("y.npy"),
                                      .transform = ToTensor(),
                                      .target_transform = Cast(torch::kInt64)});
  const Batch sample = dataset->sample(2);
  EXPECT_EQ(sample["features"].sizes(), (torch::IntArrayRef{1, 4, 4}));
  EXPECT_EQ(sample["features"].scalar_type(), torch::kFloat32);
  EXPECT_EQ(sample["targets"].item<std::int64_t>(), 2);
  EXPECT_EQ(sample["targets"].scalar_type(), torch::kInt64);
}

TEST_F(ArrayFiles, FortransOrderGivesTheSameRows) {
  const auto dataset =
      array_dataset({.features = std::string(LOCKSTEP_GOLDENS) + "/npy/fortran.npy"});
  const torch::Tensor expected = torch::arange(12, torch::kFloat32).reshape({3, 4});
  EXPECT_TRUE(torch::equal(dataset->gather(kArrayRows, {})["features"], array_rows(expected)));
}

TEST_F(ArrayFiles, AValueThatIsNotFiniteIsAnErrorWhenItsRowIsRead) {
  torch::Tensor x = torch::rand({3, 100});
  x[1][7] = std::numeric_limits<float>::quiet_NaN();
  x[1][9] = -std::numeric_limits<float>::infinity();
  save("x.npy", x);
  const auto dataset = array_dataset({.features = path("x.npy")});
  EXPECT_TRUE(torch::equal(dataset->sample(0)["features"], x[0]));
  EXPECT_THAT(error_text<DataError>([&] { dataset->gather(kArrayRows, {}); }),
              AllOf(HasSubstr("x.npy: row 1: value 7 is nan, and 2 of its 100 values"),
                    HasSubstr("allow_non_finite")));
  const auto allowed = array_dataset({.features = path("x.npy"), .allow_non_finite = true});
  EXPECT_TRUE(std::isnan(allowed->sample(1)["features"][7].item<float>()));
}

// The kernel reads pages when they are needed: neither the data set nor a batch reads everything.
TEST_F(ArrayFiles, MayBeTenTimesLargerThanTheMemory) {
  const std::int64_t memory = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
  const std::int64_t row = 1024 * sizeof(float);
  const std::int64_t rows = std::min<std::int64_t>(10 * memory, 1LL << 40) / row;
  const std::string header = npy_header(torch::kFloat32, {rows, 1024});
  std::ofstream(path("x.npy"), std::ios::binary) << header;
  // The file has a hole, so it takes no room on the disk.
  if (::truncate(path("x.npy").c_str(), static_cast<off_t>(header.size()) + rows * row) != 0) {
    GTEST_SKIP() << "the file system does not allow a file of this size";
  }
  const float seven = 7;
  std::fstream file(path("x.npy"), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-static_cast<std::streamoff>(sizeof seven), std::ios::end);
  file.write(reinterpret_cast<const char*>(&seven), sizeof seven).flush();

  const auto dataset = array_dataset({.features = path("x.npy")});
  EXPECT_EQ(dataset->size(), rows);
  const std::vector<std::int64_t> some = {rows - 1, rows / 2, 0};
  const torch::Tensor batch = dataset->gather(some, {})["features"];
  EXPECT_EQ(batch[0][1023].item<float>(), 7);
  EXPECT_EQ(batch[1].sum().item<float>(), 0);
}

TEST_F(ArrayFiles, ErrorsNameTheFile) {
  save("x.npy", x_);
  save("y.npy", torch::arange(4));
  save_npz("d.npz", x_, y_);
  EXPECT_THAT(error_text<DataError>(
                  [&] { array_dataset({.features = path("x.npy"), .targets = path("y.npy")}); }),
              AllOf(HasSubstr("y.npy has 4 rows"), HasSubstr("x.npy has 3")));
  EXPECT_THAT(error_text<DataError>([&] { array_dataset({.features = path("none.npy")}); }),
              HasSubstr("none.npy: cannot open"));
  EXPECT_THAT(error_text<DataError>([&] { array_dataset({.features = path("d.npz#z")}); }),
              HasSubstr("d.npz: there is no array 'z'"));
  EXPECT_THAT(error_text<DataError>([&] {
                array_dataset({.features = std::string(LOCKSTEP_GOLDENS) + "/npy/number.npy"});
              }),
              HasSubstr("number.npy: expected an array with rows, got a single number"));
}

TEST_F(ArrayFiles, OptionsThatContradictEachOtherAreRefused) {
  save("x.npy", x_);
  const auto message = [](const ArrayDatasetOptions& options) {
    return error_text<ConfigError>([&] { array_dataset(options); });
  };
  EXPECT_THAT(message({}), HasSubstr("features: expected an array, got none"));
  EXPECT_THAT(message({.features = "a.npy", .keys = {{"a", "a.npy"}}}), HasSubstr("got both"));
  EXPECT_THAT(message({.features = path("x.npy"), .target_transform = Cast(torch::kInt64)}),
              HasSubstr("target_transform: it is for the key 'targets'"));
  EXPECT_THAT(message({.keys = {{"a", path("x.npy")}}, .transform = ToTensor()}),
              HasSubstr("transform: it is for the key 'features'"));
  EXPECT_THAT(message({.features = "d.npz"}), HasSubstr("as in \"d.npz#x\""));
  EXPECT_THAT(message({.features = "d.csv"}), HasSubstr("expected a file .npy, .npz"));
  EXPECT_THAT(message({.file = "d.npy", .features = "x"}), HasSubstr("only the last two"));
}

}  // namespace
}  // namespace lockstep::data
