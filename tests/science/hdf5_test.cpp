#include "lockstep/science/hdf5.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::science {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kOfPython = std::string(LOCKSTEP_GOLDENS) + "/science_h5py.h5";

template <typename F>
std::string error_of(F&& work) {
  try {
    work();
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(Hdf5, ReadsWhatH5pyWrote) {
  const Hdf5File file(kOfPython);
  EXPECT_THAT(file.names(), ElementsAre("count", "density", "name", "velocity"));
  EXPECT_THAT(file.shape("velocity"), ElementsAre(2, 6, 4, 4));
  const torch::Tensor all = torch::arange(2 * 6 * 4 * 4).reshape({2, 6, 4, 4}).to(torch::kFloat32);
  EXPECT_TRUE(file.read("velocity").equal(all)) << "compressed doubles";
  EXPECT_TRUE(file.read("density").equal(all[0]));
  EXPECT_TRUE(file.read("count").equal(all[0])) << "integers";
  EXPECT_TRUE(file.read("more/inner").equal(torch::tensor({1.0f, 2.0f}))) << "in a group";
}

TEST(Hdf5, ReadsBlocks) {
  const Hdf5File file(kOfPython);
  const torch::Tensor all = file.read("velocity");
  const torch::Tensor block =
      file.read("velocity", {.start = {0, 2, 1, 0}, .count = {2, 2, 1, 2}, .stride = {1, 2, 1, 3}});
  using namespace torch::indexing;
  EXPECT_TRUE(block.equal(all.index({Slice(), Slice(2, 5, 2), Slice(1, 2), Slice(0, 4, 3)})));
}

TEST(Hdf5, ErrorsNameFileAndDataset) {
  const Hdf5File file(kOfPython);
  EXPECT_THAT(error_of([&] { file.read("velocty"); }),
              HasSubstr("science_h5py.h5: dataset 'velocty': there is none of this name; did you "
                        "mean 'velocity'?"));
  EXPECT_THAT(error_of([&] { file.read("name"); }), HasSubstr("expected numbers"));
  EXPECT_THAT(error_of([&] {
                file.read("density", {.start = {0, 0, 3}, .count = {6, 4, 2}, .stride = {1, 1, 1}});
              }),
              HasSubstr("is not in it"));
  EXPECT_THAT(error_of([&] { file.read("density", {.start = {0}, .count = {1}, .stride = {1}}); }),
              HasSubstr("has 3 dimensions"));
  EXPECT_THAT(error_of([] { Hdf5File("nowhere.h5"); }),
              HasSubstr("nowhere.h5: there is no such file"));
  const TemporaryDirectory folder;
  write_file_atomically(folder / "text.h5", "not a field");
  EXPECT_THAT(error_of([&] { Hdf5File(folder / "text.h5"); }), HasSubstr("is no HDF5 file"));
  std::string cut = read_file(kOfPython);
  write_file_atomically(folder / "cut.h5", cut.substr(0, cut.size() / 2));
  EXPECT_NE(error_of([&] { Hdf5File(folder / "cut.h5").read("velocity"); }), "");
}

TEST(Hdf5, WritesWhatItReads) {
  const TemporaryDirectory folder;
  const torch::Tensor single = torch::rand({3, 4}),
                      twofold = torch::rand({2, 2, 2}, torch::kFloat64);
  write_hdf5(folder / "a.h5", {{"single", single}, {"double", twofold}});
  const Hdf5File file(folder / "a.h5");
  EXPECT_TRUE(file.read("single").equal(single));
  EXPECT_TRUE(file.read("double").equal(twofold.to(torch::kFloat32)));
  EXPECT_THROW(write_hdf5(folder / "b.h5", {{"integers", torch::ones({2}, torch::kInt32)}}),
               DataError);
  EXPECT_FALSE(std::filesystem::exists(folder / "b.h5"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Hdf5, AForkedProcessReadsOnItsOwn) {
  const Hdf5File file(kOfPython);
  const torch::Tensor before = file.read("density");
  const pid_t child = ::fork();
  if (child == 0) ::_exit(file.read("density").equal(before) ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(file.read("density").equal(before));
}

}  // namespace
}  // namespace lockstep::science
