#include "lockstep/source/mapped_file.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

TEST(MappedFile, HasTheBytesOfTheFileWithoutACopy) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "a", "abc");
  const MappedFile file(folder / "a");
  EXPECT_EQ(std::string(file.bytes().begin(), file.bytes().end()), "abc");
  std::fstream(folder / "a", std::ios::in | std::ios::out | std::ios::binary) << "x";
  EXPECT_EQ(file.bytes()[0], 'x') << "not a copy";
}

TEST(MappedFile, KeepsAFileThatWasRemoved) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "a", "abc");
  const MappedFile file(folder / "a");
  std::filesystem::remove(folder / "a");
  EXPECT_EQ(file.bytes()[2], 'c');
}

TEST(MappedFile, MayBeEmpty) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "a", "");
  const MappedFile file(folder / "a");
  EXPECT_TRUE(file.bytes().empty());
  EXPECT_TRUE(file.part(0, 0, "nothing").empty());
}

TEST(MappedFile, PartsAreInsideTheFile) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "a", "abcdef");
  const MappedFile file(folder / "a");
  EXPECT_EQ(file.part(2, 4, "a part").size(), 4u);
  EXPECT_EQ(file.part(6, 0, "a part").size(), 0u);
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> outside = {
      {2, 5}, {7, 0}, {1, ~std::uint64_t{0}}};
  for (const auto& [offset, size] : outside) {
    EXPECT_THAT(error_text<DataError>(
                    [&, offset = offset, size = size] { file.part(offset, size, "the header"); }),
                testing::AllOf(HasSubstr("a: the header: expected"), HasSubstr("has only 6")));
  }
}

TEST(MappedFile, NamesAFileThatCannotBeMapped) {
  const TemporaryDirectory folder;
  EXPECT_THAT(error_text<DataError>([&] { MappedFile(folder / "none"); }),
              HasSubstr("none: cannot open: No such file"));
  EXPECT_THAT(error_text<DataError>([&] { MappedFile file(folder.path()); }),
              HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_text<DataError>([&] { MappedFile(folder / "pipe"); }),
              HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace lockstep::data
