#include "lockstep/source/tar.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/data/error_text.h"
#include "tests/source/cifar_files.h"
#include "tests/source/idx_files.h"
#include "tests/support/damage.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kLong(1500, 'x');

class TarTest : public testing::Test {
 protected:
  std::map<std::string, std::string> read(const std::string& bytes,
                                          std::vector<std::string> names = {"a/one"}) const {
    write_bytes(folder_ / "file.tar", bytes);
    return read_tar(folder_ / "file.tar", {.names = std::move(names), .max_bytes = 4096});
  }
  std::string error(const std::string& bytes) const {
    return error_text<DataError>([&] { read(bytes); });
  }

  TemporaryDirectory folder_;
};

TEST_F(TarTest, ReadsTheWantedFilesPlainOrPacked) {
  const std::string archive =
      tar_header("a/", 0, '5') + tar_archive({{"a/two", kLong}, {"./a/one", "1"}, {"a/zero", ""}});
  for (const std::string& bytes : {archive, gzip(archive)}) {
    const auto files = read(bytes, {"a/one", "a/two", "a/zero"});
    EXPECT_EQ(files.at("a/one"), "1");
    EXPECT_EQ(files.at("a/two"), kLong);
    EXPECT_EQ(files.at("a/zero"), "");
    EXPECT_EQ(files.size(), 3U);
  }
}

TEST_F(TarTest, LinksAreNotFiles) {
  EXPECT_THAT(error(tar_header("a/one", 0, '2') + tar_archive({})), HasSubstr("has no 'a/one'"));
}

TEST_F(TarTest, NamesWhatIsMissing) {
  EXPECT_THAT(error(tar_archive({{"a/onee", "1"}})),
              AllOf(HasSubstr("file.tar: the archive has no 'a/one'"), HasSubstr("a/onee")));
}

TEST_F(TarTest, RefusesAFileThatComesTwiceOrIsTooLarge) {
  EXPECT_THAT(error(tar_archive({{"a/one", "1"}, {"a/one", "2"}})), HasSubstr("comes twice"));
  EXPECT_THAT(error(tar_archive({{"a/one", std::string(5000, 'x')}})),
              HasSubstr("the files have 5000 bytes, expected at most 4096"));
}

TEST_F(TarTest, RefusesSizesBeyondTheFile) {
  EXPECT_THAT(error(tar_header("a/one", 077777777777) + "1"),
              HasSubstr("byte 0: a file of 8589934591 bytes, but at most 1 follow"));
}

TEST_F(TarTest, RefusesAWrongChecksum) {
  std::string archive = tar_archive({{"a/one", "1"}});
  archive[0] = 'b';
  EXPECT_THAT(error(archive), HasSubstr("byte 0: expected the header"));
}

TEST_F(TarTest, RefusesAnArchiveThatEndsEarly) {
  EXPECT_THAT(error(tar_archive({{"a/one", "1"}}).substr(0, 1024)),
              HasSubstr("ends early, after 1024 bytes"));
}

TEST_F(TarTest, SurvivesDamage) {
  const std::string archive = tar_archive({{"a/one", kLong}, {"a/two", "2"}});
  const auto read_archive = [](const std::filesystem::path& path) {
    read_tar(path, {.names = {"a/one"}, .max_bytes = 4096});
  };
  const auto path = folder_ / "file.tar";
  EXPECT_GT(refused_if_damaged<DataError>(archive, path, read_archive), 10);
  EXPECT_GT(refused_if_damaged<DataError>(gzip(archive), path, read_archive), 25);
}

}  // namespace
}  // namespace lockstep::data
