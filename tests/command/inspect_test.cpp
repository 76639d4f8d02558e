#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "tests/command/support.h"

namespace lockstep::command {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_command;

TEST(Inspect, ShowsWhatIsInACheckpoint) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "tiny.yml", testing::kTinyConfig);
  ASSERT_EQ(run_command(
                {"run", "-C", (folder / "tiny.yml").string(), "--logdir", (folder / "l").string()})
                .code,
            kDone);
  const std::string path = (folder / "l/checkpoints/last.pth").string();
  EXPECT_THAT(run_command({"inspect", path}).output,
              AllOf(HasSubstr("complete; a model of 15 weights"), HasSubstr("epoch: 2"),
                    HasSubstr("model_state_dict: 2 tensors"), HasSubstr("metrics of 2 epochs"),
                    HasSubstr("valid: loss: ")));
  EXPECT_THAT(run_command({"inspect", path, "--tensors"}).output,
              HasSubstr("0.weight: Float [3, 4]"));
  EXPECT_EQ(run_command({"inspect", path, "--config"}).output,
            read_file(folder / "l/configs/config.yml"));
  EXPECT_THAT(run_command({"inspect", path, "--environment"}).output, HasSubstr("libtorch"));
  EXPECT_EQ(run_command({"inspect", "nowhere.pth"}).code, kFailed);
}

TEST(Inspect, ShowsWhatPythonWrote) {
  const std::string path = std::string(LOCKSTEP_GOLDENS) + "/python/state_dict.pth";
  EXPECT_THAT(run_command({"inspect", path}).output,
              AllOf(HasSubstr("of torch.save, without a checksum; a model of 56 weights"),
                    HasSubstr("0.weight: Float [2, 1, 3, 3]")));
}

TEST(Inspect, NothingInAFileReachesTheTerminalRaw) {
  const TemporaryDirectory folder;
  const std::string path = (folder / "a.pth").string();
  const std::string evil = "\x1b]0;title\x07\n\u202e";
  checkpoint::save(path, {{evil, evil},
                          {"epoch_metrics", StateDict{{evil, StateDict{{evil, 1.0}}}, {"x", 1}}},
                          {"nested", StateDict{{evil, StateDict{{evil, torch::ones({1})}}}}}});
  for (const auto& words :
       {std::vector<std::string>{"inspect", path}, {"inspect", path, "--tensors"}}) {
    const testing::Ran ran = run_command(words);
    EXPECT_EQ(ran.code, kDone) << ran.errors;
    EXPECT_THAT(ran.output, HasSubstr("\\x1b]0;title\\x07\\n\\u202e"));
    EXPECT_EQ(ran.output.find_first_of("\x1b\x07"), std::string::npos);
    EXPECT_EQ(ran.output.find("\u202e"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::command
