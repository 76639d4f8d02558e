#include "lockstep/source/npy_reader.h"

#include <cstring>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/source/npy.h"
#include "tests/checkpoint/zip.h"
#include "tests/data/error_text.h"
#include "tests/source/zip_files.h"
#include "tests/support/damage.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::filesystem::path kWrittenByNumPy = std::filesystem::path(LOCKSTEP_GOLDENS) / "npy";

torch::Tensor twelve(torch::ScalarType type) {
  return torch::arange(12, type).reshape({3, 4});
}

std::string npy_bytes(const torch::Tensor& array) {
  return npy_header(array.scalar_type(), array.sizes().vec()) +
         std::string(static_cast<const char*>(array.data_ptr()), array.nbytes());
}

// A file of version 1.0 with this text as its header.
std::string npy_with_header(const std::string& text, std::size_t bytes) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(text.size() & 0xff);
  file += static_cast<char>(text.size() >> 8);
  return file + text + std::string(bytes, '\0');
}

std::string npy_error(const std::string& bytes) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "a.npy", bytes);
  return error_text<DataError>([&] { read_npy(folder / "a.npy"); });
}

void expect_read(const char* name, const torch::Tensor& expected) {
  const torch::Tensor got = read_npy(kWrittenByNumPy / name);
  EXPECT_EQ(got.scalar_type(), expected.scalar_type()) << name;
  EXPECT_TRUE(torch::equal(got, expected)) << name << got;
}

TEST(NpyReader, ReadsWhatNumPyWrote) {
  expect_read("float.npy", twelve(torch::kFloat32) / 8);
  expect_read("long.npy", torch::arange(5) - 2);
  expect_read("bool.npy", torch::tensor({1, 0}).to(torch::kBool).reshape({2, 1}));
  expect_read("half.npy",
              torch::arange(24, torch::kFloat32).to(torch::kFloat16).reshape({2, 3, 1, 4}));
  expect_read("empty.npy", torch::zeros({0, 3}, torch::kFloat64));
  expect_read("big_endian.npy", twelve(torch::kFloat64));
  expect_read("fortran.npy", twelve(torch::kFloat32));
  expect_read("unsigned.npy", twelve(torch::kInt32) + 65'000);
  expect_read("number.npy", torch::tensor(2.5F));
  const torch::Tensor complex = read_npy(kWrittenByNumPy / "complex.npy");
  EXPECT_TRUE(torch::equal(torch::view_as_real(complex).select(2, 0), twelve(torch::kFloat32)));
  EXPECT_TRUE(torch::equal(torch::view_as_real(complex).select(2, 1), torch::ones({3, 4})));
}

TEST(NpyReader, RefusesOtherTypesAndSaysWhatToDo) {
  const auto error_of_golden = [](const char* name) {
    return error_text<DataError>([&] { read_npy(kWrittenByNumPy / name); });
  };
  EXPECT_THAT(error_of_golden("structured.npy"),
              AllOf(HasSubstr("structured.npy: "), HasSubstr("array['x']")));
  EXPECT_THAT(error_of_golden("objects.npy"), HasSubstr("Python's objects, which are never run"));
  EXPECT_THAT(error_of_golden("text.npy"), HasSubstr("its type is '<U2', text"));
}

TEST(NpyReader, IsAViewOfTheFile) {
  const TemporaryDirectory folder;
  const std::string bytes = npy_bytes(torch::ones({4}));
  write_file_atomically(folder / "a.npy", bytes);
  const torch::Tensor tensor = read_npy(folder / "a.npy");
  EXPECT_EQ(tensor[3].item<float>(), 1);
  std::fstream file(folder / "a.npy", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(bytes.size() - 4));
  const float seven = 7;
  file.write(reinterpret_cast<const char*>(&seven), sizeof seven).flush();
  EXPECT_EQ(tensor[3].item<float>(), 7) << "a copy would still have the old number";
  std::filesystem::remove(folder / "a.npy");
  EXPECT_EQ(tensor[3].item<float>(), 7) << "the mapping lives as long as the tensor";
}

TEST(NpyReader, AHeaderIsALiteralOfOneForm) {
  EXPECT_EQ(npy_error(npy_with_header(
                "{\"shape\": (2,), 'fortran_order': False, 'descr': '<f4'}  \n", 8)),
            "")
      << "in any order";
  const auto header_error = [](const std::string& text) {
    return npy_error(npy_with_header(text, 8));
  };
  for (const char* const text : {
           "{'descr': '<f4', 'fortran_order': False, 'shape': __import__('os')}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1+1,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x",
           "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
           "{'descr': '<f4', 'descr': '<f4', 'shape': (2,)}",
           "{'descr': '<f4', 'shape': (2,)}",
           "{'descr': '<f4",
           "              ",
       }) {
    EXPECT_THAT(header_error(text), HasSubstr("a.npy: the header of the array: expected")) << text;
  }
  EXPECT_THAT(header_error("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}" +
                           std::string("\0x", 2)),
              HasSubstr("the end of the header"));
  EXPECT_THAT(header_error("{'descr': '<f16', 'fortran_order': False, 'shape': (2,)}"),
              HasSubstr("its type is '<f16'"));
}

TEST(NpyReader, ComparesTheShapeWithTheFile) {
  const auto shape_error = [](const std::string& shape) {
    return npy_error(
        npy_with_header("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }", 8));
  };
  EXPECT_EQ(shape_error("(2,)"), "");
  EXPECT_EQ(shape_error("(1, 2)"), "");
  EXPECT_THAT(shape_error("(3,)"), HasSubstr("12 bytes in all, but 8 follow"));
  EXPECT_THAT(shape_error("(1,)"), HasSubstr("but 8 follow"));
  EXPECT_THAT(shape_error("(1000000000000,)"), HasSubstr("but 8 follow"));
  EXPECT_THAT(shape_error("(4294967296, 4294967296)"), HasSubstr("more than a file can hold"));
  EXPECT_THAT(shape_error("(9999999999999999999,)"), HasSubstr("a size below 2^63"));
}

TEST(NpyReader, NamesAFileThatIsNoArray) {
  EXPECT_THAT(npy_error(""), HasSubstr("a.npy: not an .npy file"));
  EXPECT_THAT(npy_error("PK and other things"), HasSubstr("not an .npy file"));
  EXPECT_THAT(npy_error(std::string("\x93NUMPY\x04\x00\x10\x00\x00\x00", 12)),
              HasSubstr("version 4.0"));
  EXPECT_THAT(npy_error(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12)),
              HasSubstr("4294967295 bytes long, expected at most"));
  EXPECT_THAT(npy_error(std::string("\x93NUMPY\x01\x00\x00\x00  ", 12)), HasSubstr("empty"));
  EXPECT_THAT(error_text<DataError>([] { read_npy("nowhere.npy"); }),
              HasSubstr("nowhere.npy: cannot open"));
}

TEST(NpyReader, DamagedFilesAreErrorsOrArrays) {
  const TemporaryDirectory folder;
  const auto read = [](const auto& path) { read_npy(path).sum(); };
  const torch::Tensor numbers = torch::arange(60, torch::kFloat32);
  for (const torch::Tensor& array : {numbers, numbers.gt(30)}) {
    EXPECT_GT(refused_if_damaged<DataError>(npy_bytes(array), folder / "a.npy", read), 10);
  }
}

TEST(NpzFile, ReadsWhatNumPyWrote) {
  for (const char* const name : {"stored.npz", "packed.npz"}) {
    const NpzFile file(kWrittenByNumPy / name);
    EXPECT_THAT(file.names(), ElementsAre("x", "y")) << name;
    EXPECT_TRUE(torch::equal(file.read("x"), twelve(torch::kFloat32) / 8)) << name;
    EXPECT_TRUE(torch::equal(file.read("y"), torch::arange(3))) << name;
    EXPECT_THAT(error_text<DataError>([&] { file.read("z"); }),
                AllOf(HasSubstr(name), HasSubstr("there is no array 'z'")));
  }
}

TEST(NpzFile, StoredArraysAreMappedWhereverTheyBegin) {
  const TemporaryDirectory folder;
  const std::string array = npy_bytes(torch::ones({4}));
  for (const char* const name : {"x.npy", "xx.npy", "xxx.npy", "xxxx.npy"}) {
    const std::string bytes = checkpoint::zip({{.name = name, .content = array}});
    write_file_atomically(folder / "a.npz", bytes);
    const NpzFile file(folder / "a.npz");
    const torch::Tensor view = file.read(file.names()[0], Alignment::kAny);
    const torch::Tensor copy = file.read(file.names()[0]);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(copy.data_ptr()) % 4, 0u);
    std::fstream out(folder / "a.npz", std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(bytes.find(array) + array.size() - 4));
    const float seven = 7;
    out.write(reinterpret_cast<const char*>(&seven), sizeof seven).flush();
    float last = 0;
    std::memcpy(&last, static_cast<const char*>(view.data_ptr()) + 12, sizeof last);
    EXPECT_EQ(last, 7) << name;
  }
}

TEST(NpzFile, ADamagedArrayIsNamed) {
  const TemporaryDirectory folder;
  checkpoint::ZipEntry entry = deflated_entry("x.npy", npy_bytes(torch::ones({100})));
  entry.checksum ^= 1;
  write_file_atomically(folder / "a.npz", checkpoint::zip({entry}));
  EXPECT_THAT(error_text<DataError>([&] { NpzFile(folder / "a.npz").read("x"); }),
              HasSubstr("a.npz: array 'x': damaged: its checksum"));
  // A header that promises more than the member has.
  entry = deflated_entry("x.npy", npy_header(torch::kFloat32, {1LL << 40}) + "1234");
  write_file_atomically(folder / "a.npz", checkpoint::zip({entry}));
  EXPECT_THAT(error_text<DataError>([&] { NpzFile(folder / "a.npz").read("x"); }),
              HasSubstr("array 'x': its header says [1099511627776]"));
  // Both promise more than the packed bytes can have: no memory is taken for it.
  const std::string header = npy_header(torch::kUInt8, {1LL << 40});
  entry = deflated_entry("x.npy", header + "1234");
  entry.is_large = true;
  entry.unpacked = header.size() + (1ULL << 40);
  write_file_atomically(folder / "a.npz", checkpoint::zip({entry}));
  EXPECT_THAT(error_text<DataError>([&] { NpzFile(folder / "a.npz").read("x"); }),
              HasSubstr("array 'x': damaged: "));
  write_file_atomically(folder / "a.npz", "text");
  EXPECT_THAT(error_text<DataError>([&] { NpzFile(folder / "a.npz"); }),
              HasSubstr("a.npz: not a whole zip archive"));
}

TEST(NpzFile, DamagedFilesAreErrorsOrArrays) {
  const TemporaryDirectory folder;
  const auto read_all = [](const std::filesystem::path& path) {
    const NpzFile file(path);
    for (const std::string& name : file.names()) file.read(name).sum();
  };
  const std::string array = npy_bytes(torch::arange(60, torch::kFloat32));
  for (const checkpoint::ZipEntry& entry :
       {checkpoint::ZipEntry{.name = "x.npy", .content = array}, deflated_entry("x.npy", array)}) {
    const std::string good = checkpoint::zip({entry});
    EXPECT_GT(refused_if_damaged<DataError>(good, folder / "a.npz", read_all), 10);
  }
}

}  // namespace
}  // namespace lockstep::data
