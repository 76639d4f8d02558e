#include "lockstep/source/idx.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/data/error_text.h"
#include "tests/source/idx_files.h"
#include "tests/support/damage.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

torch::Tensor read(const std::string& bytes) {
  const TemporaryDirectory folder;
  write_bytes(folder / "file", bytes);
  return read_idx(folder / "file");
}

std::string bytes(std::initializer_list<int> values) {
  std::string result;
  for (const int value : values) result += static_cast<char>(value);
  return result;
}

TEST(Idx, ReadsEveryTypeFromBigEndian) {
  const auto expect = [](std::uint8_t code, const std::string& values,
                         const torch::Tensor& wanted) {
    const torch::Tensor got = read(idx(code, {2}, values));
    EXPECT_EQ(got.scalar_type(), wanted.scalar_type());
    EXPECT_TRUE(torch::equal(got, wanted)) << got;
  };
  expect(0x08, bytes({1, 255}), torch::tensor({1, 255}, torch::kUInt8));
  expect(0x09, bytes({1, 255}), torch::tensor({1, -1}, torch::kInt8));
  expect(0x0b, bytes({1, 2, 255, 254}), torch::tensor({258, -2}, torch::kInt16));
  expect(0x0c, bytes({0, 1, 0, 2, 255, 255, 255, 254}), torch::tensor({65538, -2}, torch::kInt32));
  expect(0x0d, bytes({0x3f, 0x80, 0, 0, 0xc0, 0x20, 0, 0}),
         torch::tensor({1.0, -2.5}, torch::kFloat32));
  expect(0x0e, bytes({0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xc0, 0x04, 0, 0, 0, 0, 0, 0}),
         torch::tensor({1.0, -2.5}, torch::kFloat64));
}

TEST(Idx, ReadsPlainAndPackedAlike) {
  const std::string file = idx(0x08, {2, 1, 3}, bytes({1, 2, 3, 4, 5, 6}));
  const torch::Tensor expected = torch::arange(1, 7, torch::kUInt8).view({2, 1, 3});
  EXPECT_TRUE(torch::equal(read(file), expected));
  EXPECT_TRUE(torch::equal(read(gzip(file)), expected));
  EXPECT_EQ(read(idx(0x08, {0, 28, 28}, "")).sizes(), (torch::IntArrayRef{0, 28, 28}));
}

struct Damage {
  std::string name;
  std::string file;
  std::string message;
};

class DamagedIdx : public testing::TestWithParam<Damage> {};

TEST_P(DamagedIdx, IsNamedPlainAndPacked) {
  const std::string& file = GetParam().file;
  const auto expected = AllOf(HasSubstr("/file: "), HasSubstr(GetParam().message));
  EXPECT_THAT(error_text<DataError>([&] { read(file); }), expected);
  EXPECT_THAT(error_text<DataError>([&] { read(gzip(file)); }), HasSubstr("/file: "));
}

INSTANTIATE_TEST_SUITE_P(
    Table, DamagedIdx,
    testing::Values(
        Damage{"Empty", "", "ends inside the IDX header, 4 bytes short"},
        Damage{"CutMagic", bytes({0, 0, 8}), "ends inside the IDX header, 1 bytes short"},
        Damage{"Text", "some text that is no IDX", "not an IDX file: starts with 73 6f 6d 65"},
        Damage{"Type", idx(0x0a, {1}, "a"), "type code 0x0a: expected 0x08"},
        Damage{"NoDimensions", idx(0x08, {}, "a"), "0 dimensions: expected 1 to 8"},
        Damage{"ManyDimensions", idx(0x08, {1, 1, 1, 1, 1, 1, 1, 1, 1}, "a"), "9 dimensions"},
        Damage{"CutDimensions", idx(0x08, {2, 2}, "").substr(0, 9), "3 bytes short"},
        Damage{"Short", idx(0x08, {2, 3}, "abcde"),
               "[2, 3] of Byte need 6 bytes, but only 5 follow"},
        Damage{"ShortWords", idx(0x0d, {2}, "abcdefg"), "[2] of Float need 8 bytes, but only 7"},
        Damage{"Long", idx(0x08, {2, 3}, "abcdefg"), "need 6 bytes, but more follow"},
        Damage{"Huge", idx(0x08, {0xffffffff, 0xff}, "abc"), "but only 3 follow"},
        Damage{"Overflow", idx(0x0e, {0xffffffff, 0xffffffff, 0xffffffff}, "abc"),
               "more than a file can hold"},
        // The product wraps around to zero, twice.
        Damage{"WrapAround", idx(0x08, {0x80000000, 0x80000000, 4, 4}, ""),
               "more than a file can hold"}),
    [](const auto& test) { return test.param.name; });

TEST(Idx, NamesShortAndLongPackedFiles) {
  EXPECT_THAT(error_text<DataError>([] {
                read(gzip(idx(0x08, {2, 3}, "abcde")));
              }),
              HasSubstr("need 6 bytes, but only 5 follow"));
  EXPECT_THAT(error_text<DataError>([] {
                read(gzip(idx(0x08, {2, 3}, "abcdefg")));
              }),
              HasSubstr("need 6 bytes, but more follow"));
}

TEST(Idx, DoesNotAllocateWhatPackedBytesCannotHold) {
  EXPECT_THAT(error_text<DataError>([] {
                read(gzip(idx(0x08, {0xffffffff, 0xff}, "abc")));
              }),
              AllOf(HasSubstr("need 1095216660225 bytes, but at most"), HasSubstr("follow")));
}

TEST(Idx, StopsABombAtWhatItsHeaderPromises) {
  EXPECT_THAT(error_text<DataError>([] { read(gzip(idx(0x08, {3}, std::string(1 << 26, '\0')))); }),
              HasSubstr("need 3 bytes, but more follow"));
}

TEST(Idx, RefusesDamagedGzip) {
  const std::string good = gzip(idx(0x08, {2, 3}, "abcdef"));
  std::string wrong_crc = good;
  wrong_crc[good.size() - 8] ^= 1;
  EXPECT_THAT(error_text<DataError>([&] { read(wrong_crc); }), HasSubstr("damaged gzip"));
  EXPECT_THAT(error_text<DataError>([&] { read(good.substr(0, good.size() - 3)); }),
              HasSubstr("ends too early"));
}

TEST(Idx, DamagedFilesAreErrorsOrImages) {
  const TemporaryDirectory folder;
  const std::string good = idx(0x08, {10, 4, 6}, std::string(240, 'a'));
  const auto read_file = [](const std::filesystem::path& path) { read_idx(path); };
  EXPECT_GT(refused_if_damaged<DataError>(good, folder / "file", read_file), 10);
  EXPECT_GT(refused_if_damaged<DataError>(gzip(good), folder / "file", read_file), 10);
}

}  // namespace
}  // namespace lockstep::data
