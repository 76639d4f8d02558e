#include "lockstep/science/hdf5_table.h"

#include <cmath>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/science/hdf5.h"
#include "tests/data/error_text.h"
#include "tests/data/toy_transforms.h"
#include "tests/support/damage_in_process.h"
#include "tests/support/memory_limit.h"

namespace lockstep::science {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kTableRows = 50;

class Tables : public ::testing::Test {
 protected:
  Tables() { save(x_); }

  void save(const torch::Tensor& x) {
    Hdf5Writer writer(path_);
    const auto add = [&](const char* name, const torch::Tensor& values) {
      writer.add(name, values.scalar_type(), values.sizes().vec());
      writer.append(name, values);
    };
    add("x", x);
    add("label", label_);
    add("age", age_);
    add("short", torch::zeros({3}));
    writer.finish();
  }

  // The options for a table that is kept in memory, and for one that is not.
  std::vector<Hdf5TableOptions> both(Hdf5TableOptions options) const {
    options.path = path_;
    Hdf5TableOptions streamed = options;
    streamed.memory = 0;
    return {options, streamed};
  }

  TemporaryDirectory folder_;
  const std::filesystem::path path_ = folder_ / "t.h5";
  const torch::Tensor x_ = torch::rand({kTableRows, 2, 3});
  const torch::Tensor label_ = torch::arange(kTableRows);
  const torch::Tensor age_ = torch::arange(kTableRows, torch::kUInt8);
};

TEST_F(Tables, RandomTransformsDrawByTheRow) {
  const auto tables =
      both({.features = {"x"}, .targets = "label", .transform = data::RandomPart(1)});
  const data::EpochKey key{.seed = 3, .epoch = 2};
  const std::vector<std::int64_t> indices = {40, 2, 17, 5, 33, 8};
  const Batch kept = hdf5_table(tables[0])->gather_in_epoch(indices, key, {});
  const Batch streamed = hdf5_table(tables[1])->gather_in_epoch(indices, key, {});
  EXPECT_TRUE(torch::equal(streamed["features"], kept["features"]));
  EXPECT_TRUE(torch::equal(streamed["targets"], kept["targets"]));
}

TEST_F(Tables, RowsAreGatheredInAnyOrder) {
  for (const std::vector<std::int64_t>& indices : std::vector<std::vector<std::int64_t>>{
           {7}, {3, 4, 5}, {5, 4, 3}, {49, 0, 7, 8, 7, 9, 2}, {1, 1, 1}, {}}) {
    const torch::Tensor index = torch::tensor(indices, torch::kInt64);
    for (const auto& options : both({.features = {"x"}, .targets = "label"})) {
      const auto table = hdf5_table(options);
      ASSERT_EQ(table->size(), kTableRows);
      const Batch batch = table->gather(indices, {});
      EXPECT_TRUE(torch::equal(batch["features"], x_.index_select(0, index))) << index;
      EXPECT_TRUE(torch::equal(batch["targets"], label_.index_select(0, index))) << index;
      EXPECT_EQ(batch["targets"].scalar_type(), torch::kInt64);
    }
  }
}

TEST_F(Tables, SeveralDatasetsAreColumns) {
  for (const auto& options : both({.features = {"x", "age"}})) {
    const Batch sample = hdf5_table(options)->sample(9);
    EXPECT_TRUE(
        torch::equal(sample["features"], torch::cat({x_[9].flatten(), torch::tensor({9.F})})));
    EXPECT_FALSE(sample.contains("targets"));
  }
}

TEST_F(Tables, TransformsAreApplied) {
  const data::TransformPtr twice = data::Lambda([](const torch::Tensor& t) { return 2 * t; });
  for (const auto& options : both({.features = {"x"},
                             .targets = "age",
                             .transform = twice,
                             .target_transform = data::Cast(torch::kInt64)})) {
    const Batch sample = hdf5_table(options)->sample(3);
    EXPECT_TRUE(torch::equal(sample["features"], 2 * x_[3]));
    EXPECT_EQ(sample["targets"].scalar_type(), torch::kInt64);
    EXPECT_EQ(sample["targets"].item<std::int64_t>(), 3);
  }
}

TEST_F(Tables, AValueThatIsNotFiniteIsNamed) {
  torch::Tensor x = x_.clone();
  x[8][1][2] = NAN;
  save(x);
  const auto options = both({.features = {"x"}});
  const char* const place = "t.h5: dataset 'x': row 8: value 5 is nan, and 1 of its 6 values";
  EXPECT_THAT(error_text<DataError>([&] { hdf5_table(options[0]); }), HasSubstr(place));
  const auto streamed = hdf5_table(options[1]);
  EXPECT_NO_THROW(streamed->sample(7));
  const std::vector<std::int64_t> some = {9, 8};
  EXPECT_THAT(error_text<DataError>([&] { streamed->gather(some, {}); }), HasSubstr(place));
  for (const auto& allowed : both({.features = {"x"}, .allow_non_finite = true})) {
    EXPECT_TRUE(std::isnan(hdf5_table(allowed)->sample(8)["features"][1][2].item<float>()));
  }
}

TEST_F(Tables, RowsAreNamedByFileDatasetsAndRow) {
  for (const auto& options : both({.features = {"x", "age"}, .targets = "label"})) {
    EXPECT_EQ(hdf5_table(options)->name_of(7),
              fmt::format("row 7 of {}: datasets 'x', 'age', 'label'", path_.string()));
  }
  // A number has no parts.
  const std::vector<std::int64_t> rows = {9};
  for (const auto& options : both({.features = {"label"}, .transform = data::RandomPart(1)})) {
    EXPECT_THAT(error_text<DataError>([&] { hdf5_table(options)->gather(rows, {}); }),
                HasSubstr("row 9 of " + path_.string() + ": dataset 'label'"));
  }
}

TEST_F(Tables, ThreadsMayReadAtTheSameTime) {
  const auto table = hdf5_table(both({.features = {"x"}})[1]);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t i = 0; i < kTableRows; ++i) {
        wrong[t] += torch::equal(table->sample(i)["features"], x_[i]) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

TEST_F(Tables, ErrorsNameFileAndDataset) {
  const auto message = [&](Hdf5TableOptions options) {
    options.path = path_;
    return error_text<Error>([&] { hdf5_table(options); });
  };
  EXPECT_THAT(message({.features = {"y"}}),
              AllOf(HasSubstr("t.h5: dataset 'y'"), HasSubstr("none of this name")));
  EXPECT_THAT(message({.features = {"x"}, .targets = "short"}),
              HasSubstr("dataset 'short': has 3 rows, but 'x' has 50"));
  EXPECT_THAT(message({}), HasSubstr("features: expected a dataset, got none"));
  EXPECT_THAT(message({.features = {"x"}, .target_transform = data::ToTensor()}),
              HasSubstr("target_transform: it is for targets"));
  EXPECT_THAT(error_text<ConfigError>([] { hdf5_table({.features = {"x"}}); }), HasSubstr("path"));
  EXPECT_THROW(hdf5_table(both({.features = {"x"}})[1])->sample(kTableRows), DataError);
}

TEST_F(Tables, AFileCutShortIsAnErrorOrATable) {
  const std::string good = read_file(path_);
  const std::filesystem::path cut = folder_ / "cut.h5";
  for (std::size_t i = 0; i < 50; ++i) {
    write_file_atomically(cut, good.substr(0, good.size() * i / 50));
    for (const std::int64_t memory : {std::int64_t{1} << 30, std::int64_t{0}}) {
      try {
        hdf5_table({.path = cut, .features = {"x"}, .targets = "label", .memory = memory})
            ->sample(0);
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr("cut.h5"));
      }
    }
  }
}

TEST_F(Tables, DamagedFilesAreErrorsOrTables) {
  const auto [refused, crashed] = refused_in_another_process<DataError>(
      read_file(path_), folder_.path(), [](const std::filesystem::path& path) {
        for (const std::int64_t memory : {std::int64_t{1} << 30, std::int64_t{0}}) {
          hdf5_table({.path = path,
                      .features = {"x"},
                      .targets = "label",
                      .memory = memory,
                      .allow_non_finite = true})
              ->sample(kTableRows / 2);
        }
      });
  EXPECT_GT(refused, 10);
  EXPECT_EQ(crashed, 0);
}

constexpr std::int64_t kLargeRows = 160 * 1024;
constexpr std::int64_t kLargeColumns = 1024;
constexpr std::uint64_t kMemoryForLarge = 64 << 20;
static_assert(kLargeRows * kLargeColumns * sizeof(float) >= 10 * kMemoryForLarge);

// A dataset "x" of zeros that takes no space on the disk. Its last row has ones.
void write_large_table(const std::filesystem::path& path) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t sizes[] = {kLargeRows, kLargeColumns};
  const hid_t space = H5Screate_simple(2, sizes, nullptr);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
  const hid_t dataset =
      H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  const hsize_t start[] = {kLargeRows - 1, 0};
  const hsize_t row[] = {1, kLargeColumns};
  H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, row, nullptr);
  const hid_t memory = H5Screate_simple(2, row, nullptr);
  const std::vector<float> ones(kLargeColumns, 1);
  ASSERT_GE(H5Dwrite(dataset, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, ones.data()), 0);
  H5Sclose(memory);
  H5Dclose(dataset);
  H5Pclose(creation);
  H5Sclose(space);
  ASSERT_GE(H5Fclose(file), 0);
}

TEST(LargeTable, IsReadFromAllOverTheFile) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder / "large.h5";
  write_large_table(path);
  torch::ones({1 << 20}).sum();  // starts LibTorch's threads, which need memory of their own
  const MemoryLimit limit(kMemoryForLarge);
  if (!kHasAddressSanitizer && !kHasThreadSanitizer) {
    EXPECT_THAT(error_text<DataError>([&] {
                  hdf5_table({.path = path, .features = {"x"}, .memory = std::int64_t{1} << 40});
                }),
                HasSubstr("there is not enough memory for [163840, 1024]"));
  }
  const auto table = hdf5_table({.path = path, .features = {"x"}, .memory = 1 << 20});
  std::vector<std::int64_t> rows;
  for (std::int64_t row = kLargeRows - 1; row > 0; row -= 997) rows.push_back(row);
  const torch::Tensor sums = table->gather(rows, {})["features"].sum(1).to(torch::kInt64);
  EXPECT_EQ(sums[0].item<std::int64_t>(), kLargeColumns);
  EXPECT_EQ(sums.sum().item<std::int64_t>(), kLargeColumns);
}

}  // namespace
}  // namespace lockstep::science
