#include "lockstep/source/byte_reader.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/data/error_text.h"
#include "tests/source/idx_files.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

class ByteReaderTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& bytes) {
    write_bytes(folder_ / "file", bytes);
    return folder_ / "file";
  }

  static std::string read_all(const std::filesystem::path& path) {
    ByteReader reader(path);
    std::string bytes(1 << 20, '\0');
    bytes.resize(reader.read(bytes));
    return bytes;
  }

  TemporaryDirectory folder_;
};

TEST_F(ByteReaderTest, ReadsAPlainFile) {
  const auto path = file("hello");
  EXPECT_EQ(read_all(path), "hello");
  ByteReader reader(path);
  EXPECT_FALSE(reader.packed());
  EXPECT_EQ(reader.at_most_left(), 5U);
  char two[2];
  EXPECT_EQ(reader.read(two), 2U);
  EXPECT_EQ(reader.at_most_left(), 3U);
}

TEST_F(ByteReaderTest, ReadsAnEmptyFile) {
  EXPECT_EQ(read_all(file("")), "");
}

TEST_F(ByteReaderTest, UnpacksGzipInPieces) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += static_cast<char>((i % 251) * (i % 251) % 251);
  const auto path = file(gzip(text));
  EXPECT_EQ(read_all(path), text);
  ByteReader reader(path);
  EXPECT_TRUE(reader.packed());
  std::string pieces;
  char piece[777];
  while (const std::size_t n = reader.read(piece)) pieces.append(piece, n);
  EXPECT_EQ(pieces, text);
}

// 100 MB of zeros are packed into 100 KB. Reading stops before all of it is unpacked.
TEST_F(ByteReaderTest, RefusesAGzipBomb) {
  const auto path = file(gzip(std::string(100 << 20, '\0')));
  ByteReader reader(path);
  EXPECT_GT(reader.at_most_left(), 64u << 20);
  EXPECT_LT(reader.at_most_left(), 80u << 20);
  std::string piece(1 << 20, '\0');
  std::size_t unpacked = 0;
  EXPECT_THAT(error_text<DataError>([&] {
                while (const auto got = reader.read(piece)) unpacked += got;
              }),
              AllOf(HasSubstr(path.string()), HasSubstr("100 times")));
  EXPECT_LT(unpacked, 80u << 20);
}

TEST_F(ByteReaderTest, ReadsJoinedMembers) {
  EXPECT_EQ(read_all(file(gzip("hello ") + gzip("world"))), "hello world");
}

TEST_F(ByteReaderTest, RefusesDamagedGzip) {
  const std::string good = gzip("hello world");
  std::string wrong_crc = good;
  wrong_crc[good.size() - 8] ^= 1;
  EXPECT_THAT(error_text<DataError>([&] { read_all(file(wrong_crc)); }),
              HasSubstr("damaged gzip: incorrect data check"));
  const std::string cut = good.substr(0, good.size() - 5);
  EXPECT_THAT(error_text<DataError>([&] { read_all(file(cut)); }), HasSubstr("ends too early"));
  EXPECT_THAT(error_text<DataError>([&] { read_all(file(good + "rest")); }),
              HasSubstr("damaged gzip"));
}

TEST_F(ByteReaderTest, NamesTheFileThatIsNotThere) {
  EXPECT_THAT(error_text<DataError>([&] { ByteReader reader(folder_ / "none"); }),
              HasSubstr((folder_ / "none").string()));
  EXPECT_THROW(ByteReader reader(folder_.path()), DataError);
}

TEST_F(ByteReaderTest, DoesNotWaitForTheWriterOfAPipe) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_text<DataError>([&] { ByteReader reader(folder_ / "pipe"); }),
              HasSubstr("pipe: not a regular file"));
}

TEST_F(ByteReaderTest, ReadsAWholeFile) {
  EXPECT_EQ(read_unpacked(file("")), "");
  std::string bytes(9 << 20, 'x');  // more than two pieces
  bytes += "the end";
  EXPECT_EQ(read_unpacked(file(bytes)), bytes);
  EXPECT_EQ(read_unpacked(file(gzip(bytes))), bytes);
}

}  // namespace
}  // namespace lockstep::data
