#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "tests/command/support.h"

namespace lockstep::command {
namespace {

using ::testing::HasSubstr;
using testing::run_command;

TEST(Swa, AveragesWhatThePatternStandsFor) {
  const TemporaryDirectory folder;
  for (int i = 1; i <= 3; ++i) {
    checkpoint::save(folder / fmt::format("epoch.{}.pth", i),
                     StateDict{{"model_state_dict",
                                StateDict{{"w", torch::full({2}, static_cast<double>(i))}}}});
  }
  // A second name of a file does not count again.
  std::filesystem::create_hard_link(folder / "epoch.3.pth", folder / "epoch.best.pth");
  const std::string output = (folder / "out/swa.pth").string();
  std::filesystem::create_directory(folder / "out");
  const auto ran =
      run_command({"swa", "--logdir", folder.path().string(), "-m", "epoch.*.pth", "-o", output});
  ASSERT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(ran.output, HasSubstr("the mean of 3 checkpoints"));
  EXPECT_EQ(checkpoint::load(output)
                .get<StateDict>("model_state_dict")
                .get<torch::Tensor>("w")[0]
                .item<double>(),
            2.0);
  EXPECT_EQ(run_command({"swa", "-m", (folder / "none*.pth").string()}).code, kBadUsage);
  // A copy has the same weights, so it does not count. An input cannot be the output.
  std::filesystem::copy_file(folder / "epoch.2.pth", folder / "epoch.last.pth");
  EXPECT_THAT(run_command({"swa", "-m", (folder / "epoch.*.pth").string(), "-o", output}).output,
              HasSubstr("the mean of 3 checkpoints"));
  EXPECT_EQ(run_command({"swa", "-m", (folder / "epoch.*.pth").string(), "-o",
                         (folder / "epoch.1.pth").string()})
                .code,
            kBadUsage);
}

}  // namespace
}  // namespace lockstep::command
