#include "lockstep/science/hdf5.h"

#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/support/damage_in_process.h"

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
  EXPECT_THAT(file.names(),
              ElementsAre("big_endian", "count", "density", "flag", "name", "time", "velocity"));
  EXPECT_THAT(file.shape("velocity"), ElementsAre(2, 6, 4, 4));
  const torch::Tensor all = torch::arange(2 * 6 * 4 * 4).reshape({2, 6, 4, 4}).to(torch::kFloat32);
  EXPECT_TRUE(file.read("velocity").equal(all)) << "compressed doubles";
  EXPECT_TRUE(file.read("density").equal(all[0]));
  EXPECT_TRUE(file.read("count").equal(all[0])) << "integers";
  EXPECT_TRUE(file.read("big_endian").equal(all[0][0]));
  EXPECT_TRUE(file.read("time").equal(torch::tensor(0.25f))) << "one number";
  EXPECT_THAT(error_of([&] { file.read("flag"); }), HasSubstr("expected numbers"));
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

TEST(Hdf5, ReadsRowsInTheirOwnType) {
  const Hdf5File file(kOfPython);
  const std::vector<std::int64_t> rows = {5, 1, 2, 1};
  const torch::Tensor index = torch::tensor(rows, torch::kInt64);
  for (const char* const name : {"count", "density", "big_endian"}) {
    const torch::Tensor all = file.read(name);
    if (all.size(0) < 6) continue;
    const torch::Tensor some = file.read_rows(name, rows);
    EXPECT_EQ(some.scalar_type(), file.type(name));
    EXPECT_TRUE(some.to(torch::kFloat32).equal(all.index_select(0, index))) << name;
  }
  EXPECT_TRUE(torch::isIntegralType(file.type("count"), /*includeBool=*/false));
  EXPECT_THAT(error_of([&] { file.read_rows("time", rows); }), HasSubstr("a single number"));
  const std::vector<std::int64_t> outside = {6};
  EXPECT_THAT(error_of([&] { file.read_rows("count", outside); }), HasSubstr("row 6 is not in it"));
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
              HasSubstr("expected a block of 3 dimensions"));
  EXPECT_THAT(error_of([] { Hdf5File("nowhere.h5"); }),
              HasSubstr("nowhere.h5: there is no such file"));
  const TemporaryDirectory folder;
  write_file_atomically(folder / "text.h5", "not a field");
  EXPECT_THAT(error_of([&] { Hdf5File(folder / "text.h5"); }), HasSubstr("is not an HDF5 file"));
  std::string cut = read_file(kOfPython);
  write_file_atomically(folder / "cut.h5", cut.substr(0, cut.size() / 2));
  EXPECT_NE(error_of([&] { Hdf5File(folder / "cut.h5").read("velocity"); }), "");
}

// Writes a dataset "x" of ten elements of this type, which are not initialised.
void write_elements(const std::filesystem::path& path, hid_t type) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t count = 10;
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t dataset = H5Dcreate2(file, "x", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(dataset, 0);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Tclose(type);
  ASSERT_GE(H5Fclose(file), 0);
}

TEST(Hdf5, ErrorsNameTypesThatCannotBeRead) {
  const TemporaryDirectory folder;
  const hid_t pair = H5Tcreate(H5T_COMPOUND, 12);
  H5Tinsert(pair, "energy", 0, H5T_IEEE_F64LE);
  H5Tinsert(pair, "charge", 8, H5T_STD_I32LE);
  write_elements(folder / "pair.h5", pair);
  EXPECT_THAT(error_of([&] { Hdf5File(folder / "pair.h5").read("x"); }),
              HasSubstr("pair.h5: dataset 'x': expected numbers (integers or floats), got a "
                        "compound of 'energy', 'charge'; store each of them as a dataset"));
  const hid_t color = H5Tenum_create(H5T_STD_U8LE);
  for (const auto& [name, value] : {std::pair("RED", 0), std::pair("BLUE", 1)}) {
    const auto byte = static_cast<std::uint8_t>(value);
    H5Tenum_insert(color, name, &byte);
  }
  write_elements(folder / "color.h5", color);
  EXPECT_THAT(error_of([&] { Hdf5File(folder / "color.h5").type("x"); }),
              HasSubstr("got an enumeration of 'RED', 'BLUE'"));
  const hsize_t three = 3;
  write_elements(folder / "array.h5", H5Tarray_create2(H5T_IEEE_F32LE, 1, &three));
  EXPECT_THAT(error_of([&] { Hdf5File(folder / "array.h5").shape("x"); }),
              HasSubstr("got arrays as elements"));
  EXPECT_THAT(error_of([&] { Hdf5File(kOfPython).read("flag"); }),
              HasSubstr("h5py stores bool in this way"));
  EXPECT_THAT(error_of([&] { Hdf5File(kOfPython).read("name"); }), HasSubstr("got text"));
}

TEST(Hdf5, ReadsAllRows) {
  const Hdf5File file(kOfPython);
  const torch::Tensor counts = file.read_rows("count");
  EXPECT_EQ(counts.scalar_type(), file.type("count"));
  EXPECT_TRUE(counts.to(torch::kFloat32).equal(file.read("count")));
  EXPECT_THAT(error_of([&] { file.read_rows("time"); }), HasSubstr("a single number"));
}

// Compressed and plain data, integers and text.
TEST(Hdf5, DamagedFilesAreErrorsOrFields) {
  const TemporaryDirectory folder;
  const auto [refused, crashed] = refused_in_another_process<DataError>(
      read_file(kOfPython), folder.path(), [](const std::filesystem::path& path) {
        const Hdf5File file(path);
        for (const std::string& name : file.names()) {
          try {
            file.read(name);
          } catch (const DataError& error) {
            if (std::string_view(error.what()).find(path.string()) == std::string_view::npos) throw;
          }
        }
      });
  EXPECT_GT(refused, 5);
  EXPECT_EQ(crashed, 0);
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

TEST(Hdf5Writer, WritesRowAfterRow) {
  const TemporaryDirectory folder;
  const torch::Tensor field = torch::rand({5, 2, 3}), labels = torch::arange(5);
  {
    Hdf5Writer writer(folder / "a.h5");
    writer.add("field", torch::kFloat32, {5, 2, 3});
    writer.add("labels", torch::kInt64, {5});
    writer.add("half", torch::kFloat16, {5, 2, 3});
    for (const auto& [first, count] : {std::pair(0, 2), std::pair(2, 0), std::pair(2, 3)}) {
      writer.append("field", field.narrow(0, first, count));
      writer.append("labels", labels.narrow(0, first, count));
      writer.append("half", field.to(torch::kFloat16).narrow(0, first, count));
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "a.h5")) << "it is not complete";
    writer.finish();
  }
  const Hdf5File file(folder / "a.h5");
  EXPECT_THAT(file.names(), ElementsAre("field", "half", "labels"));
  EXPECT_TRUE(file.read("field").equal(field));
  EXPECT_TRUE(file.read("labels").equal(labels.to(torch::kFloat32)));
  EXPECT_TRUE(file.read("half").equal(field.to(torch::kFloat16).to(torch::kFloat32)));
}

TEST(Hdf5Writer, RefusesOtherRowsAndLeavesNothing) {
  const TemporaryDirectory folder;
  {
    Hdf5Writer writer(folder / "a.h5");
    writer.add("x", torch::kFloat32, {3, 2});
    EXPECT_THAT(error_of([&] {
                  writer.append("x", torch::zeros({1, 3}));
                }),
                HasSubstr("a.h5: dataset 'x': expected rows of Float [1, 2], got Float [1, 3]"));
    EXPECT_THAT(error_of([&] {
                  writer.append("x", torch::zeros({4, 2}));
                }),
                HasSubstr("expected 3 rows, got 4 or more"));
    EXPECT_THAT(error_of([&] { writer.append("y", torch::zeros({1, 2})); }), HasSubstr("'y'"));
    EXPECT_THAT(error_of([&] { writer.add("z", torch::kComplexFloat, {3}); }),
                HasSubstr("ComplexFloat"));
    EXPECT_THAT(error_of([&] { writer.finish(); }), HasSubstr("expected 3 rows, got 0"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(error_of([&] { Hdf5Writer(folder / "missing" / "a.h5"); }), HasSubstr("a.h5"));
}

// The descriptors of this process for files whose names have this ending.
std::vector<std::string> open_descriptors(const std::string& ending) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const auto target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.ends_with(ending)) found.push_back(entry.path().filename());
  }
  return found;
}

TEST(Hdf5, AForkedProcessReadsOnItsOwn) {
  const Hdf5File file(kOfPython), twin(kOfPython);
  const torch::Tensor before = file.read("density");
  const pid_t child = ::fork();
  if (child == 0) {
    // The child inherits one descriptor of the file. It must close it and open the file itself, so
    // that there is again one.
    const auto inherited = open_descriptors("science_h5py.h5");
    bool ok = inherited.size() == 1 && twin.names() == file.names();
    ok = ok && open_descriptors("science_h5py.h5").size() == 1;
    ok = ok && file.read("density").equal(before);
    ::_exit(ok ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(file.read("density").equal(before));
}

TEST(Hdf5, ManyFilesAreNotAllOpenAtOnce) {
  const TemporaryDirectory folder;
  std::vector<Hdf5File> files;
  for (int i = 0; i < 40; ++i) {
    const auto path = folder / fmt::format("many_{}.h5", i);
    write_hdf5(path, {{"a", torch::full({2}, static_cast<float>(i))}});
    files.emplace_back(path);
  }
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(files[static_cast<std::size_t>(i)].read("a")[0].item<int>(), i);
  int open = 0;
  for (int i = 0; i < 40; ++i)
    open += static_cast<int>(open_descriptors(fmt::format("many_{}.h5", i)).size());
  EXPECT_LE(open, 16);
}

TEST(Hdf5, AFileThatIsWrittenAnewIsReadAnew) {
  const TemporaryDirectory folder;
  write_hdf5(folder / "a.h5", {{"a", torch::ones({2})}});
  const Hdf5File file(folder / "a.h5");
  EXPECT_EQ(file.read("a")[0].item<int>(), 1);
  write_hdf5(folder / "a.h5", {{"a", torch::zeros({2})}});
  EXPECT_EQ(file.read("a")[0].item<int>(), 0);
}

TEST(Hdf5, AFileThatAnotherProgramReplacedIsReadAnew) {
  const TemporaryDirectory folder;
  write_hdf5(folder / "a.h5", {{"a", torch::ones({2})}});
  const Hdf5File file(folder / "a.h5");
  EXPECT_EQ(file.read("a")[0].item<int>(), 1);
  write_hdf5(folder / "b.h5", {{"a", torch::zeros({2})}});
  std::filesystem::rename(folder / "b.h5", folder / "a.h5");
  EXPECT_EQ(file.read("a")[0].item<int>(), 0);
}

TEST(Hdf5, AFileWithoutReadersIsClosed) {
  const TemporaryDirectory folder;
  write_hdf5(folder / "closed.h5", {{"a", torch::ones({2})}});
  { Hdf5File(folder / "closed.h5").read("a"); }
  EXPECT_TRUE(open_descriptors("closed.h5").empty());
}

TEST(Hdf5, AnotherThreadIsQuietToo) {
  const Hdf5File file(kOfPython);
  ::testing::internal::CaptureStderr();
  std::thread([&] { EXPECT_THROW(file.read("nothing"), DataError); }).join();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Hdf5, SaysWhyItCannotOpen) {
  const TemporaryDirectory folder;
  EXPECT_THAT(error_of([&] { Hdf5File(folder.path()); }), HasSubstr("is a folder"));
  write_hdf5(folder / "locked.h5", {{"a", torch::ones({2})}});
  const FileDescriptor writer(::open((folder / "locked.h5").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(writer.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT(error_of([&] { Hdf5File(folder / "locked.h5"); }),
              HasSubstr("another program has it open for writing"));
}

}  // namespace
}  // namespace lockstep::science
