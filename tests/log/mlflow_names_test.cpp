#include "lockstep/log/mlflow_names.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/warn.h"

namespace lockstep {
namespace {

TEST(MlflowNames, UsualNamesStay) {
  MlflowNames names;
  EXPECT_EQ(names.accepted("train/loss"), "train/loss");
  EXPECT_EQ(names.accepted("model - lr_2.5"), "model - lr_2.5");
}

TEST(MlflowNames, OthersAreReplacedAndStayDifferent) {
  std::vector<std::string> warnings;
  const auto before =
      set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  MlflowNames names;
  EXPECT_EQ(names.accepted("../x"), "_/x");
  EXPECT_EQ(names.accepted("/x"), "_/x_2") << "another name must not become the same";
  EXPECT_EQ(names.accepted("../x"), "_/x");
  EXPECT_EQ(names.accepted("a//b/./c"), "a/_/b/_/c");
  EXPECT_EQ(names.accepted("eval: ü"), "eval_ __");
  EXPECT_EQ(names.accepted(""), "_");
  EXPECT_EQ(names.accepted("x/"), "x/_");
  EXPECT_LE(names.accepted(std::string(1000, 'a')).size(), 250u);
  EXPECT_NE(names.accepted(std::string(1000, 'a')), names.accepted(std::string(1001, 'a')));
  set_warning_handler(before);
  ASSERT_EQ(warnings.size(), 1u) << "one warning for all names";
  EXPECT_THAT(warnings[0], ::testing::HasSubstr("'../x' is sent as '_/x'"));
}

}  // namespace
}  // namespace lockstep
