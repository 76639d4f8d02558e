#include "lockstep/base/file.h"

#include <fstream>
#include <utility>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

TEST(WriteFileAtomically, LeavesTheContentAndNothingElse) {
  const TemporaryDirectory folder;
  const std::string bytes("a\0b\n", 4);
  write_file_atomically(folder / "file", bytes);
  EXPECT_EQ(read_file(folder / "file"), bytes);
  write_file_atomically(folder / "file", std::string_view("shorter"));
  EXPECT_EQ(read_file(folder / "file"), "shorter");
  write_file_atomically(folder / "empty", std::string_view());
  EXPECT_EQ(read_file(folder / "empty"), "");
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("file", "empty"));
}

TEST(WriteFileAtomically, TakesARelativeName) {
  const TemporaryDirectory folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  write_file_atomically("file", std::string_view("here"));
  fs::current_path(before);
  EXPECT_EQ(read_file(folder / "file"), "here");
}

TEST(WriteFileAtomically, NamesAMissingFolder) {
  const TemporaryDirectory folder;
  const fs::path path = folder / "missing" / "file";
  EXPECT_THAT([&] { write_file_atomically(path, std::string_view("x")); },
              ThrowsMessage<Error>(AllOf(HasSubstr(path.string()), HasSubstr("No such file"))));
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(WriteFileAtomically, KeepsWhatItCannotReplace) {
  const TemporaryDirectory folder;
  make_directories(folder / "taken");
  EXPECT_THROW(write_file_atomically(folder / "taken", std::string_view("x")), Error);
  EXPECT_TRUE(fs::is_directory(folder / "taken"));
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("taken"));
}

// The file written aside is made to be /dev/full, which takes no byte: a full disk in miniature.
TEST(WriteFileAtomically, AFullDiskLosesNothing) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full here";
  const TemporaryDirectory folder;
  write_file_atomically(folder / "file", std::string_view("old"));
  fs::create_symlink("/dev/full", folder / ("file.tmp." + std::to_string(::getpid())));
  EXPECT_THAT([&] { write_file_atomically(folder / "file", std::string_view("new")); },
              ThrowsMessage<Error>(AllOf(HasSubstr((folder / "file").string()),
                                         HasSubstr("cannot write 3 bytes: No space left"))));
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("file"));
}

TEST(LinkFileAtomically, GivesAnotherName) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "model.3", std::string_view("three"));
  write_file_atomically(folder / "model.4", std::string_view("four"));
  link_file_atomically(folder / "model.3", folder / "last");
  EXPECT_EQ(read_file(folder / "last"), "three");
  link_file_atomically(folder / "model.4", folder / "last");
  EXPECT_EQ(read_file(folder / "last"), "four");
  EXPECT_EQ(read_file(folder / "model.3"), "three");
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("model.3", "model.4", "last"));
}

TEST(LinkFileAtomically, OutlivesItsTarget) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "model.3", std::string_view("three"));
  link_file_atomically(folder / "model.3", folder / "best");
  write_file_atomically(folder / "model.3", std::string_view("replaced"));
  EXPECT_EQ(read_file(folder / "best"), "three");
  fs::remove(folder / "model.3");
  EXPECT_EQ(read_file(folder / "best"), "three");
}

TEST(LinkFileAtomically, OntoItselfChangesNothing) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "model", std::string_view("content"));
  link_file_atomically(folder / "model", folder / "model");
  link_file_atomically(folder / "model", folder / "last");
  link_file_atomically(folder / "model", folder / "last");
  EXPECT_EQ(read_file(folder / "model"), "content");
  EXPECT_EQ(read_file(folder / "last"), "content");
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("model", "last"));
}

TEST(LinkFileAtomically, FollowsASymbolicLink) {
  const TemporaryDirectory folder;
  make_directories(folder / "deep");
  write_file_atomically(folder / "deep" / "model", std::string_view("content"));
  fs::create_symlink("model", folder / "deep" / "current");
  link_file_atomically(folder / "deep" / "current", folder / "last");
  EXPECT_EQ(read_file(folder / "last"), "content");
}

TEST(LinkFileAtomically, NamesAMissingTarget) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "last", std::string_view("kept"));
  EXPECT_THAT([&] { link_file_atomically(folder / "missing", folder / "last"); },
              ThrowsMessage<Error>(HasSubstr((folder / "missing").string())));
  EXPECT_EQ(read_file(folder / "last"), "kept");
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("last"));
}

TEST(ReadFile, ReadsLongFilesWhole) {
  const TemporaryDirectory folder;
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i) + '\n';
  write_file_atomically(folder / "long", text);
  EXPECT_EQ(read_file(folder / "long"), text);
}

TEST(ReadFile, ReadsWhatDoesNotTellItsSize) {
  EXPECT_THAT(read_file("/proc/self/status"), HasSubstr("Pid:"));
}

TEST(ReadFile, SaysWhyItCannot) {
  const TemporaryDirectory folder;
  EXPECT_THAT([&] { read_file(folder / "missing"); },
              ThrowsMessage<Error>(AllOf(HasSubstr((folder / "missing").string()),
                                         HasSubstr("cannot open: No such file"))));
  EXPECT_THAT([&] { read_file(folder.path()); },
              ThrowsMessage<Error>(HasSubstr("cannot read: Is a directory")));
}

TEST(AbandonedWrites, AreRemovedAndNothingElseIs) {
  TemporaryDirectory folder;
  for (const char* name : {"a.pth", "a.pth.tmp.123", "b.tmp.", "c.tmp.12x", "notes.tmp.txt"}) {
    std::ofstream(folder / name) << "x";
  }
  remove_abandoned_writes(folder.path());
  EXPECT_FALSE(std::filesystem::exists(folder / "a.pth.tmp.123"));
  for (const char* name : {"a.pth", "b.tmp.", "c.tmp.12x", "notes.tmp.txt"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
  }
  EXPECT_NO_THROW(remove_abandoned_writes(folder / "nowhere"));
}

TEST(MakeDirectories, MakesTheParentsToo) {
  const TemporaryDirectory folder;
  make_directories(folder / "a" / "b" / "c");
  EXPECT_TRUE(fs::is_directory(folder / "a" / "b" / "c"));
  EXPECT_NO_THROW(make_directories(folder / "a" / "b"));
  write_file_atomically(folder / "file", std::string_view("x"));
  EXPECT_THAT([&] { make_directories(folder / "file" / "b"); },
              ThrowsMessage<Error>(HasSubstr((folder / "file" / "b").string())));
}

TEST(TemporaryDirectory, IsGoneWithAllInIt) {
  fs::path path;
  {
    const TemporaryDirectory folder, other;
    path = folder.path();
    EXPECT_NE(folder.path(), other.path());
    make_directories(folder / "a" / "b");
    write_file_atomically(folder / "a" / "file", std::string_view("x"));
  }
  EXPECT_FALSE(fs::exists(path));
}

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) != -1;
}

TEST(FileDescriptor, ClosesWhatItOwnsOnce) {
  int first = -1, second = -1;
  {
    FileDescriptor a(::open("/dev/null", O_RDONLY));
    FileDescriptor b(::open("/dev/null", O_RDONLY));
    ASSERT_TRUE(a && b);
    first = a.get();
    second = b.get();
    const FileDescriptor c(std::move(a));
    EXPECT_FALSE(a);
    EXPECT_EQ(c.get(), first);
    b = FileDescriptor();
    EXPECT_FALSE(is_open(second));
    EXPECT_TRUE(is_open(first));
  }
  EXPECT_FALSE(is_open(first));
}

}  // namespace
}  // namespace lockstep
