#include "lockstep/train/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/named.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Weights, AreAPathOrAPathWithOptions) {
  const TrainOptions plain{.weights = "a.pth"};
  EXPECT_EQ(plain.weights.path(), "a.pth");
  EXPECT_TRUE(plain.weights.options().strict);
  const TrainOptions more{.weights = {"b.pth", {.strict = false, .skip = {"fc.*"}}}};
  EXPECT_EQ(more.weights.path(), "b.pth");
  EXPECT_FALSE(more.weights.options().strict);
  EXPECT_THAT(more.weights.without({"head.*"}).options().skip, ElementsAre("fc.*", "head.*"));
  const TrainOptions several{
      .network_weights = {{"generator", "g.pth"}, {"critic", {"c.pth", {.strict = false}}}}};
  EXPECT_EQ(several.network_weights["generator"].path(), "g.pth");
  EXPECT_FALSE(several.network_weights["critic"].options().strict);
  EXPECT_FALSE(TrainOptions().weights);
}

TEST(Weights, DescribeTheirOptionsWithoutThePath) {
  EXPECT_EQ(Weights().describe(), "none");
  EXPECT_EQ(Weights("a.pth").describe(), Weights(std::filesystem::path("/b.pth")).describe());
  EXPECT_EQ(Weights("a.pth", {.remove_prefix = "x.", .rename = {{"a.*", "b.*"}}}).describe(),
            "a file (strict=true, remove_prefix=x., rename=[a.* -> b.*], add_prefix=, skip=[])");
}

TEST(Weights, RefuseWhatCannotBe) {
  EXPECT_THAT(toy::error_of([] { Weights(""); }), HasSubstr("expected the path of a file"));
  EXPECT_THAT(toy::error_of([] {
                Weights("a.pth", {.rename = {{"a.*", "b.*.*"}}});
              }),
              HasSubstr("rename: expected at most 1 * in 'b.*.*', as in 'a.*'"));
  EXPECT_THAT(toy::error_of([] {
                Weights("a.pth", {.rename = {{"a", ""}}});
              }),
              HasSubstr("expected a name and a new one, got 'a' and ''"));
}

}  // namespace
}  // namespace lockstep
