#include "lockstep/base/file.h"

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

// Simulates a full disk: no file of this process may have more than two bytes.
TEST(WriteFileAtomically, AWriteThatFailsLosesNothing) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "file", std::string_view("old"));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{.rlim_cur = 2, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  std::string message;
  try {
    write_file_atomically(folder / "file", std::string_view("new"));
  } catch (const Error& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, AllOf(HasSubstr((folder / "file").string()),
                             HasSubstr("cannot write 3 bytes: File too large")));
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("file"));
}

// While a file is written, it has no name, so nothing can be left behind.
TEST(WriteFileAtomically, AKilledWriterLeavesNothing) {
  const TemporaryDirectory folder;
  if (!FileDescriptor(::open(folder.path().c_str(), O_TMPFILE | O_WRONLY, 0600))) {
    GTEST_SKIP() << "this file system has no O_TMPFILE";
  }
  const pid_t writer = ::fork();
  if (writer == 0) {
    const std::string bytes(64 << 20, 'x');
    while (true) write_file_atomically(folder / "file", bytes);
  }
  while (!fs::exists(folder / "file")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the next write has begun
  ::kill(writer, SIGKILL);
  ::waitpid(writer, nullptr, 0);
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("file"));
  EXPECT_EQ(fs::file_size(folder / "file"), 64u << 20);
}

TEST(WriteFileAtomically, TakesContentPieceByPiece) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "file", [](const WriteBytes& write) {
    write("one, ");
    write("two");
  });
  EXPECT_EQ(read_file(folder / "file"), "one, two");
  EXPECT_THROW(write_file_atomically(folder / "file",
                                     [](const WriteBytes& write) {
                                       write("half");
                                       throw Error("stopped");
                                     }),
               Error);
  EXPECT_EQ(read_file(folder / "file"), "one, two");
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("file"));
}

TEST(AtomicFile, AppearsWhenItIsCommitted) {
  const TemporaryDirectory folder;
  for (const char* const content : {"first", "second"}) {
    AtomicFile file(folder / "file");
    for (const char c : std::string_view(content)) file.write({&c, 1});
    file.commit();
    EXPECT_EQ(read_file(folder / "file"), content);
  }
  {
    AtomicFile file(folder / "file");
    file.write("half");
    EXPECT_EQ(read_file(folder / "file"), "second");
  }
  EXPECT_EQ(read_file(folder / "file"), "second");
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("file"));
}

// Without /proc, files cannot be written without a name. Another user of the folder has created a
// symbolic link with the name that version 0.1.0 would have written to.
TEST(WriteFileAtomically, WithoutProcItFollowsNoLink) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "victim", std::string_view("precious"));
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
        ::mount("tmpfs", "/proc", "tmpfs", 0, nullptr) != 0) {
      ::_exit(77);
    }
    fs::create_symlink("victim", folder / ("file.tmp." + std::to_string(::getpid())));
    try {
      write_file_atomically(folder / "file", std::string_view("new"));
    } catch (const Error&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(folder / "victim"), "precious");
  EXPECT_EQ(read_file(folder / "file"), "new");
  EXPECT_FALSE(fs::is_symlink(folder / "file"));
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

TEST(OpenRegularFile, KnowsTheSizeAndReadsToTheEnd) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "file", "hello");
  const OpenedFile file = open_regular_file(folder / "file");
  EXPECT_EQ(file.size, 5U);
  std::string bytes(3, '\0');
  EXPECT_EQ(read_some(file.descriptor, bytes), 3U);
  EXPECT_EQ(bytes, "hel");
  EXPECT_EQ(read_some(file.descriptor, bytes), 2U);
  EXPECT_EQ(bytes.substr(0, 2), "lo");
}

TEST(OpenRegularFile, RefusesFoldersAndPipesWithoutWaiting) {
  const TemporaryDirectory folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const fs::path& path : {folder.path(), folder / "pipe"}) {
    EXPECT_THAT([&] { open_regular_file(path); },
                ThrowsMessage<DataError>(path.string() + ": not a regular file"));
  }
  EXPECT_THAT([&] { open_regular_file(folder / "none"); },
              ThrowsMessage<DataError>(HasSubstr("none: cannot open: No such file")));
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

TEST(Reading, NamesTheFileOnceWhateverIsThrown) {
  const fs::path path = "a.pth";
  const auto message = [&](const auto& exception, std::string_view kind = "") {
    try {
      reading<DataError>({.path = path, .kind = kind}, [&]() -> int { throw exception; });
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(message(Error("damaged")), "a.pth: damaged");
  EXPECT_EQ(message(Error("damaged"), "checkpoint"), "checkpoint a.pth: damaged");
  EXPECT_EQ(message(Error("a.pth: damaged"), "checkpoint"), "checkpoint a.pth: damaged");
  EXPECT_EQ(message(Error("checkpoint a.pth: damaged"), "checkpoint"), "checkpoint a.pth: damaged");
  EXPECT_EQ(message(std::bad_alloc()),
            "a.pth: not enough memory: a smaller batch_size or fewer workers need less");
  EXPECT_EQ(message(std::runtime_error("bad\nframe #0: x")), "a.pth: bad");
  EXPECT_EQ(reading<Error>({.path = path}, [] { return 3; }), 3);
}

TEST(Reading, KeepsTheTypeOfAnErrorThatIsComplete) {
  class Special : public DataError {
    using DataError::DataError;
  };
  const fs::path path = "a.yml";
  EXPECT_THROW(reading<DataError>({.path = path}, []() -> int { throw Special("a.yml:3: no"); }),
               Special);
}

TEST(AbandonedWrites, AreRemovedAndNothingElseIs) {
  TemporaryDirectory folder;
  for (const char* name :
       {"a.pth", "a.pth.tmp.123", "a.pth.tmp.12.34", "b.tmp.", "c.tmp.12x", "notes.tmp.txt"}) {
    std::ofstream(folder / name) << "x";
  }
  remove_abandoned_writes(folder.path());
  EXPECT_FALSE(std::filesystem::exists(folder / "a.pth.tmp.123"));
  EXPECT_FALSE(std::filesystem::exists(folder / "a.pth.tmp.12.34"));
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
