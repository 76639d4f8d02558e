#include "lockstep/command/torchrun_habits.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::command {
namespace {

using ::testing::HasSubstr;

template <typename Action>
std::string refusal_of(const Action& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TorchrunHabits, AnOptionThatIsNotHereIsNamedWithWhatToWriteInstead) {
  EXPECT_EQ(instead_of_torchrun_option("--monitor_interval"),
            "--monitor-interval: torchrun's option is not supported here: the end of a rank is "
            "noticed at once; leave it out");
  EXPECT_THAT(instead_of_torchrun_option("--rdzv-conf=timeout=9").value(),
              HasSubstr("use --timeout SECONDS"));
  EXPECT_FALSE(instead_of_torchrun_option("--nproc-per-node"));
  EXPECT_FALSE(instead_of_torchrun_option("--nonsense"));
}

TEST(TorchrunHabits, ANumberOfNodesMayBeARange) {
  EXPECT_EQ(parse_node_count("2").least, 2);
  EXPECT_EQ(parse_node_count("2").most, 2);
  EXPECT_EQ(parse_node_count("1:4").least, 1);
  EXPECT_EQ(parse_node_count("1:4").most, 4);
  EXPECT_THAT(refusal_of([] { parse_node_count("3:2"); }),
              HasSubstr("--nnodes: expected MIN:MAX with MIN <= MAX, got '3:2'"));
  for (const char* wrong : {"", "0", "-1", "x", "1:", ":2", "1:x", "70000"}) {
    EXPECT_THAT(refusal_of([&] { parse_node_count(wrong); }),
                HasSubstr("expected a positive integer"))
        << wrong;
  }
}

TEST(TorchrunHabits, StreamsAreBits) {
  using Streams = std::array<bool, 2>;
  EXPECT_EQ(parse_streams("--tee", "0"), (Streams{false, false}));
  EXPECT_EQ(parse_streams("--tee", "1"), (Streams{true, false}));
  EXPECT_EQ(parse_streams("--tee", "2"), (Streams{false, true}));
  EXPECT_EQ(parse_streams("--tee", "3"), (Streams{true, true}));
  for (const std::string bad : {"4", "-1", "0:1,1:3", "program"}) {
    EXPECT_THAT(refusal_of([&] { parse_streams("--tee", bad); }),
                AllOf(HasSubstr("--tee: expected 0 (none), 1"), HasSubstr("got '" + bad + "'")));
  }
}

TEST(TorchrunHabits, APythonScriptNeedsPython) {
  const TemporaryDirectory folder;
  const std::string plain = (folder / "plain.py").string(), own = (folder / "own.py").string();
  write_file_atomically(plain, "print(1)\n");
  write_file_atomically(own, "#!/usr/bin/env python3\nprint(1)\n");
  EXPECT_THAT(refusal_of([&] {
                check_is_program({plain, "--lr", "1"});
              }),
              HasSubstr("lockstep launch [OPTIONS] python3 " + plain));
  EXPECT_NE(refusal_of([&] { check_is_program({own}); }), "");
  std::filesystem::permissions(own, std::filesystem::perms::owner_all);
  EXPECT_EQ(refusal_of([&] { check_is_program({own}); }), "");
  EXPECT_EQ(refusal_of([&] { check_is_program({"python3", plain}); }), "");
  EXPECT_EQ(refusal_of([&] { check_is_program({"nowhere.py"}); }), "");  // the start reports it
}

}  // namespace
}  // namespace lockstep::command
