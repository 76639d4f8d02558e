#include "lockstep/checkpoint/archive.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/checkpoint/zip.h"

namespace lockstep::checkpoint {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::string content(const Archive& archive, const std::string& name) {
  const auto found = archive.find(name);
  return found ? std::string(found->begin(), found->end()) : "(none)";
}

TEST(Archive, FindsEntriesByTheirNamesInItsFolder) {
  const std::string bytes = zip({{.name = "a/data.pkl", .content = "one"},
                                 {.name = "a/data/0", .content = ""},
                                 {.name = "other/data/1", .content = "x"}});
  const Archive archive(bytes);
  EXPECT_EQ(content(archive, "data.pkl"), "one");
  EXPECT_EQ(content(archive, "data/0"), "");
  EXPECT_EQ(content(archive, "data/1"), "(none)");
}

TEST(Archive, ReadsWhatPythonWrote) {
  const std::string bytes =
      read_file(std::filesystem::path(LOCKSTEP_GOLDENS) / "python" / "state_dict.pth");
  const Archive archive(bytes);
  EXPECT_TRUE(archive.find("data.pkl"));
  EXPECT_EQ(content(archive, "version"), "3\n");
}

TEST(Archive, ReadsTheLargeForm) {
  const std::string bytes = zip({{.name = "a/data.pkl", .content = "one", .is_large = true}});
  EXPECT_EQ(content(Archive(bytes), "data.pkl"), "one");
}

TEST(Archive, RefusesWhatIsCompressedOrEncrypted) {
  const std::string compressed = zip({{.name = "a/x", .content = "one", .method = 8}});
  EXPECT_THAT([&] { Archive{compressed}; },
              ThrowsMessage<CheckpointError>(HasSubstr("a/x is compressed")));
  const std::string encrypted = zip({{.name = "a/x", .content = "one", .flags = 1}});
  EXPECT_THAT([&] { Archive{encrypted}; },
              ThrowsMessage<CheckpointError>(HasSubstr("a/x is encrypted")));
}

TEST(Archive, RefusesEntriesThatShareTheirBytes) {
  std::vector<ZipEntry> entries = {{.name = "a/0", .content = std::string(1000, 'x')}};
  for (int i = 1; i < 20; ++i) {
    entries.push_back({.name = "a/" + std::to_string(i), .shares_first = true});
  }
  const std::string bytes = zip(entries);
  EXPECT_THAT([&] { Archive{bytes}; }, ThrowsMessage<CheckpointError>(HasSubstr("overlap")));
}

TEST(Archive, CutShortOrChangedAnywhereItIsRefusedOrRead) {
  const std::string good = zip({{.name = "a/data.pkl", .content = "one"},
                                {.name = "a/data/0", .content = "two", .is_large = true}});
  for (std::size_t size = 0; size < good.size(); ++size) {
    const std::string cut = good.substr(0, size);
    EXPECT_THROW(Archive{cut}, CheckpointError) << size;
  }
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string changed = good;
    changed[at] = static_cast<char>(0xff);
    try {
      const Archive archive(changed);
      content(archive, "data.pkl");
    } catch (const CheckpointError&) {
      continue;
    }
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
