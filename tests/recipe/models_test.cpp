#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

TEST(Models, ASequentialByName) {
  const Example example{.batch = {}, .input = torch::ones({1, 4})};
  const Model model = targets().models.make(
      node("{_target_: Sequential, layers: [{Linear: {out_features: 2}}]}"), example);
  EXPECT_EQ(model(torch::ones({3, 4})).sizes(), torch::IntArrayRef({3, 2}));
}

TEST(Models, ATorchScriptFile) {
  const TemporaryDirectory folder;
  torch::jit::Module module("net");
  module.register_parameter("w", torch::full({1}, 3.0), false);
  module.define("def forward(self, x):\n  return x * self.w\n");
  module.save((folder / "net.pt").string());
  const Model model = targets().models.make(
      node("{_target_: TorchScript, path: " + (folder / "net.pt").string() + "}"), {});
  EXPECT_EQ(model(torch::ones({1})).item<float>(), 3.0f);
  EXPECT_THAT(error_of([] {
                targets().models.make(node("{_target_: TorchScript, path: nowhere.pt}"), {});
              }),
              HasSubstr("nowhere.pt"));
}

}  // namespace
}  // namespace lockstep::recipe
