#include "lockstep/source/zip.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include "lockstep/base/error.h"
#include "tests/checkpoint/zip.h"
#include "tests/data/error_text.h"
#include "tests/source/zip_files.h"
#include "tests/support/damage.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

std::string unpacked_text(const ZipMember& member) {
  std::string text;
  unpack_zip_member(member, [&](std::string_view piece) { text += piece; });
  return text;
}

TEST(Zip, ListsItsMembers) {
  const std::string bytes = checkpoint::zip(
      {{.name = "a/x", .content = "one"}, {.name = "y", .content = "three", .is_large = true}});
  const auto members = read_zip(bytes);
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(members[0].name, "a/x");
  EXPECT_TRUE(members[0].is_stored());
  EXPECT_EQ(std::string(members[1].packed.begin(), members[1].packed.end()), "three");
}

TEST(Zip, UnpacksWhatIsDeflated) {
  const std::string text(3'000'000, 'x');  // more than two pieces
  const std::string bytes = checkpoint::zip({deflated_entry("x", text)});
  const auto members = read_zip(bytes);
  EXPECT_FALSE(members[0].is_stored());
  EXPECT_LT(members[0].packed.size(), 10'000u);
  EXPECT_EQ(unpacked_text(members[0]), text);
}

TEST(Zip, ComparesTheChecksumOfWhatIsStored) {
  checkpoint::ZipEntry entry{.name = "x", .content = "some text"};
  entry.checksum = deflated_entry("x", entry.content).checksum;
  const std::string good = checkpoint::zip({entry});
  EXPECT_EQ(unpacked_text(read_zip(good)[0]), "some text");
  entry.content = "same text";
  const std::string damaged = checkpoint::zip({entry});
  EXPECT_THAT(error_text<DataError>([&] { unpacked_text(read_zip(damaged)[0]); }),
              HasSubstr("damaged: its checksum is"));
}

TEST(Zip, RefusesAWrongChecksumOrLength) {
  const auto error_of_entry = [](const checkpoint::ZipEntry& entry) {
    const std::string bytes = checkpoint::zip({entry});
    return error_text<DataError>([&] { unpacked_text(read_zip(bytes)[0]); });
  };
  checkpoint::ZipEntry entry = deflated_entry("x", "some text");
  EXPECT_EQ(error_of_entry(entry), "");
  entry.checksum ^= 1;
  EXPECT_THAT(error_of_entry(entry), HasSubstr("checksum"));
  entry.checksum ^= 1;
  entry.unpacked = 8;
  EXPECT_THAT(error_of_entry(entry), HasSubstr("more bytes than the archive says"));
  entry.unpacked = 10;
  EXPECT_THAT(error_of_entry(entry), HasSubstr("1 bytes fewer"));
  entry.unpacked = 1 << 30;
  EXPECT_THAT(error_of_entry(entry), HasSubstr("cannot unpack to 1073741824"))
      << "before memory is taken for it";
  entry = deflated_entry("x", "some text");
  entry.content.resize(4);
  EXPECT_NE(error_of_entry(entry), "");
  entry.flags = 1;
  EXPECT_THAT(error_of_entry(entry), HasSubstr("encrypted"));
  entry.flags = 0;
  entry.method = 12;
  EXPECT_THAT(error_of_entry(entry), HasSubstr("method 12"));
}

TEST(Zip, RefusesWhatIsNoArchive) {
  EXPECT_THAT(error_text<DataError>([] { read_zip({}); }), HasSubstr("its end is missing"));
  const std::string bytes = checkpoint::zip({{.name = "x", .content = "one"}});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(read_zip(std::span(bytes).first(size)), DataError) << size;
  }
}

TEST(Zip, DamagedArchivesAreErrorsOrMembers) {
  const std::string text(300, 'x');
  const checkpoint::ZipEntry packed = deflated_entry("x", text);
  const std::string stored =
      checkpoint::zip({{.name = "x", .content = text, .checksum = packed.checksum}, packed});
  const std::string large = checkpoint::zip(
      {{.name = "x", .content = text, .is_large = true, .checksum = packed.checksum}});
  const auto read = [](const std::string& bytes) {
    for (const ZipMember& member : read_zip(bytes)) unpacked_text(member);
  };
  for (const std::string& good : {stored, large}) {
    EXPECT_GT(refused_if_damaged<DataError>(good, read), 10);
  }
}

}  // namespace
}  // namespace lockstep::data
