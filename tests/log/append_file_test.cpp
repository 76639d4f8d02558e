#include "lockstep/log/append_file.h"

#include <csignal>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(AppendFile, GrowsAndGoesOn) {
  TemporaryDirectory folder;
  AppendFile(folder / "log", AppendFile::Open::kNew).append("one,");
  AppendFile again(folder / "log", AppendFile::Open::kExisting);
  again.append("two");
  again.sync();
  EXPECT_EQ(read_file(folder / "log"), "one,two");
}

TEST(AppendFile, NewNeverTakesAnExistingFile) {
  TemporaryDirectory folder;
  write_file_atomically(folder / "log", "precious");
  EXPECT_THROW(AppendFile(folder / "log", AppendFile::Open::kNew), Error);
  EXPECT_EQ(read_file(folder / "log"), "precious");
  EXPECT_THROW(AppendFile(folder / "absent", AppendFile::Open::kExisting), Error);
}

TEST(AppendFile, APieceThatDoesNotFitLeavesTheFileAsItWas) {
  TemporaryDirectory folder;
  AppendFile file(folder / "log", AppendFile::Open::kNew);
  file.append("whole;");

  // A limit on the size of files has the same effect as a full disk.
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = 10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  try {
    file.append("more than four bytes");
  } catch (const Error& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, before);

  EXPECT_THAT(message, HasSubstr((folder / "log").string()));
  EXPECT_EQ(read_file(folder / "log"), "whole;");
  file.append("next;");
  EXPECT_EQ(read_file(folder / "log"), "whole;next;");
}

}  // namespace
}  // namespace lockstep
