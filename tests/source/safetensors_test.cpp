#include "lockstep/source/safetensors.h"

#include <chrono>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/data/error_text.h"
#include "tests/source/safetensors_files.h"
#include "tests/support/damage.h"
#include "tests/support/slowdown.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string safetensors_error(const std::string& bytes) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "a.safetensors", bytes);
  return error_text<DataError>([&] {
    const SafetensorsFile file(folder / "a.safetensors");
    for (const std::string& name : file.names()) file.read(name);
  });
}

std::string header_error(const std::string& header) {
  return safetensors_error(safetensors_file(header, std::string(16, '\0')));
}

TEST(Safetensors, ReadsTensorsByName) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "a.safetensors", small_safetensors());
  const SafetensorsFile file(folder / "a.safetensors");
  EXPECT_THAT(file.names(), ElementsAre("x", "y"));
  EXPECT_TRUE(torch::equal(file.read("x"), torch::arange(6, torch::kFloat32).view({2, 3})));
  EXPECT_TRUE(torch::equal(file.read("y"), torch::tensor({7L, 8L})));
  EXPECT_THAT(error_text<DataError>([&] { file.read("z"); }),
              AllOf(HasSubstr("a.safetensors: there is no tensor 'z'"), HasSubstr("x, y")));
}

TEST(Safetensors, ReadsNumbersOf16Bits) {
  const TemporaryDirectory folder;
  const torch::Tensor half = torch::tensor({0.5F, -2.F}).to(torch::kFloat16);
  const torch::Tensor brain = torch::tensor({0.5F, -2.F}).to(torch::kBFloat16);
  std::string data(static_cast<const char*>(half.data_ptr()), 4);
  data.append(static_cast<const char*>(brain.data_ptr()), 4);
  write_file_atomically(
      folder / "a.safetensors",
      safetensors_file(R"({"h": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]},)"
                       R"( "b": {"dtype": "BF16", "shape": [2], "data_offsets": [4, 8]}})",
                       data));
  const SafetensorsFile file(folder / "a.safetensors");
  EXPECT_TRUE(torch::equal(file.read("h"), half));
  EXPECT_TRUE(torch::equal(file.read("b"), brain));
}

TEST(Safetensors, TypesAreSortedByTheirSize) {
  EXPECT_EQ(safetensors_type(torch::kInt32)->name, "I32");
  EXPECT_EQ(safetensors_type(torch::kInt64)->name, "I64");
  EXPECT_LT(safetensors_type(torch::kHalf)->place, safetensors_type(torch::kFloat32)->place);
  EXPECT_LT(safetensors_type(torch::kFloat32)->place, safetensors_type(torch::kFloat64)->place);
  EXPECT_FALSE(safetensors_type(torch::kComplexDouble));
}

TEST(Safetensors, ATensorLivesLongerThanTheFile) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "a.safetensors", small_safetensors());
  const torch::Tensor y = SafetensorsFile(folder / "a.safetensors").read("y");
  std::filesystem::remove(folder / "a.safetensors");
  EXPECT_TRUE(torch::equal(y, torch::tensor({7L, 8L})));
}

TEST(Safetensors, ManyTensorsAreReadInLinearTime) {
  constexpr int kCount = 50'000;
  std::string header = "{";
  for (int i = 0; i < kCount; ++i) {
    header += fmt::format(R"({}"w{:05}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})",
                          i > 0 ? "," : "", i, i, i + 1);
  }
  const TemporaryDirectory folder;
  write_file_atomically(folder / "a.safetensors",
                        safetensors_file(header + "}", std::string(kCount, '\7')));
  const SafetensorsFile file(folder / "a.safetensors");
  const auto began = std::chrono::steady_clock::now();
  for (const std::string& name : file.names()) ASSERT_EQ(file.read(name).numel(), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - began, scaled(std::chrono::seconds(2)));
}

TEST(Safetensors, RefusesPlacesOutsideTheFileOrShared) {
  EXPECT_EQ(header_error(R"({"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}})"), "");
  EXPECT_THAT(header_error(R"({"x": {"dtype": "F32", "shape": [5], "data_offsets": [0, 20]}})"),
              HasSubstr("tensor 'x': has the bytes 0 to 20, but 16 follow the header"));
  EXPECT_THAT(header_error(R"({"x": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}})"),
              HasSubstr("has the bytes 8 to 4"));
  EXPECT_THAT(header_error(R"({"x": {"dtype": "F32", "shape": [5], "data_offsets": [0, 16]}})"),
              HasSubstr("a shape of [5] F32 does not fit its 16 bytes"));
  EXPECT_THAT(header_error(R"({"x": {"dtype": "F32", "shape": [4294967296, 4294967296],)"
                           R"( "data_offsets": [0, 16]}})"),
              HasSubstr("does not fit"));
  EXPECT_THAT(header_error(R"({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},)"
                           R"( "y": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})"),
              HasSubstr("'x' and 'y' share bytes"));
}

TEST(Safetensors, RefusesAHeaderOfAnotherForm) {
  EXPECT_THAT(header_error("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(header_error("{"), HasSubstr("is not JSON"));
  EXPECT_THAT(header_error(R"({"x": 1})"), HasSubstr("tensor 'x': has no 'dtype'"));
  EXPECT_THAT(header_error(R"({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})"),
              HasSubstr("expected sizes >= 0, got -1"));
  EXPECT_THAT(header_error(R"({"x": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}})"),
              HasSubstr("shape: expected a list"));
  EXPECT_THAT(header_error(R"({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})"),
              HasSubstr("data_offsets: expected two numbers"));
  EXPECT_THAT(header_error(R"({"x": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}})"),
              HasSubstr("tensor 'x': its type is 'F8_E4M3'"));
  EXPECT_THAT(header_error(R"({"x": {}, "x": {}})"), HasSubstr("'x' comes twice"));
  EXPECT_THAT(header_error(std::string(1000, '[')), HasSubstr("nested too deeply"));
}

TEST(Safetensors, RefusesABoolThatIsNone) {
  const std::string header = R"({"x": {"dtype": "BOOL", "shape": [3], "data_offsets": [0, 3]}})";
  EXPECT_EQ(safetensors_error(safetensors_file(header, std::string("\0\1\1", 3))), "");
  EXPECT_THAT(safetensors_error(safetensors_file(header, std::string("\0\2\1", 3))),
              HasSubstr("a.safetensors: tensor 'x': bool 1 is 2, expected 0 or 1"));
}

TEST(Safetensors, RefusesALengthThatIsNotThere) {
  EXPECT_THAT(safetensors_error("1234"), HasSubstr("the length of the header"));
  EXPECT_THAT(safetensors_error(std::string("\x10\0\0\0\0\0\0\0{}", 10)),
              HasSubstr("the header: expected 16 bytes from byte 8 on"));
  EXPECT_THAT(safetensors_error(std::string(8, '\xff')), HasSubstr("expected at most 100000000"));
}

TEST(Safetensors, DamagedFilesAreErrorsOrTensors) {
  const TemporaryDirectory folder;
  const auto read_all = [](const auto& path) {
    const SafetensorsFile file(path);
    for (const std::string& name : file.names()) file.read(name).sum();
  };
  const auto path = folder / "a.safetensors";
  EXPECT_GT(refused_if_damaged<DataError>(small_safetensors(), path, read_all), 10);
}

}  // namespace
}  // namespace lockstep::data
