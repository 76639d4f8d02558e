#include <array>
#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "tests/command/support.h"

namespace lockstep::command {
namespace {

using ::testing::HasSubstr;
using testing::run_command;

// The words that bash would offer for a command line.
std::string offers(const std::string& script, const std::string& words, int current) {
  const std::string command = "bash -c 'source " + script + "; COMP_WORDS=(" + words +
                              "); COMP_CWORD=" + std::to_string(current) +
                              "; _lockstep; echo \"${COMPREPLY[@]}\"'";
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::string text;
  std::array<char, 256> bytes;
  while (std::fgets(bytes.data(), bytes.size(), pipe) != nullptr) text += bytes.data();
  EXPECT_EQ(::pclose(pipe), 0);
  return text;
}

TEST(Completion, BashOffersCommandsOptionsAndTargets) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "completion", run_command({"completion", "bash"}).output);
  const std::string script = (folder / "completion").string();
  EXPECT_EQ(offers(script, "lockstep ru", 1), "run\n");
  EXPECT_THAT(offers(script, "lockstep run --auto", 2), HasSubstr("--autoresume"));
  EXPECT_EQ(offers(script, "lockstep targets AdamW", 2), "AdamW\n");
  EXPECT_EQ(offers(script, "lockstep run --autoresume l", 3), "last\n");
  EXPECT_EQ(offers(script, "lockstep pre", 1), "predict\n");
  EXPECT_EQ(offers(script, "lockstep evaluate logs --checkpoint b", 4), "best\n");
  EXPECT_EQ(offers(script, "lockstep export logs --format on", 4), "onnx\n");
}

}  // namespace
}  // namespace lockstep::command
