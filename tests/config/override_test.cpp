#include "lockstep/config/override.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/config/value.h"
#include "lockstep/config/yaml.h"

namespace lockstep::config {
namespace {

using testing::HasSubstr;

Node document() {
  return parse_yaml("{optimizer: {lr: 0.1}, model: [Flatten, {Linear: {out_features: 10}}]}",
                    "a.yml");
}

std::string refusal_of(const std::string& argument) {
  Node node = document();
  try {
    apply_override(node, argument);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Override, WithSlashesOrDots) {
  Node node = document();
  apply_override(node, "optimizer.lr=1e-3");
  EXPECT_EQ(node.find("optimizer")->find("lr")->text(), "1e-3");
  apply_override(node, "optimizer/layers/conv.*/lr=3");
  EXPECT_EQ(node.find("optimizer")->find("layers")->find("conv.*")->find("lr")->text(), "3");
  apply_override(node, "stages/train/num_epochs=3:int");
  EXPECT_EQ(node.find("stages")->find("train")->find("num_epochs")->text(), "3");
  apply_override(node, "model/1/Linear/out_features=5");
  EXPECT_EQ(node.find("model")->items()[1].find("Linear")->find("out_features")->text(), "5");
  apply_override(node, "shape=[3, 16]");
  EXPECT_EQ(node.find("shape")->items().size(), 2u);
  apply_override(node, "optimizer=");
  EXPECT_TRUE(node.find("optimizer")->is_null());
}

TEST(Override, ATextMayBeginWithAPlaceholder) {
  Node node = document();
  const auto text = [&](const std::string& argument) {
    apply_override(node, argument);
    return node.find("path")->text();
  };
  EXPECT_EQ(text("path={feature}_{checkpoint:04d}.h5"), "{feature}_{checkpoint:04d}.h5");
  EXPECT_EQ(text("path=run/{feature}_{checkpoint:04d}.h5"), "run/{feature}_{checkpoint:04d}.h5");
  EXPECT_EQ(text("path={feature}/{checkpoint}"), "{feature}/{checkpoint}");
  apply_override(node, "path={a: {b: 1}} ");
  EXPECT_EQ(node.find("path")->find("a")->find("b")->text(), "1") << "this is a mapping";
  EXPECT_THAT(refusal_of("path={a: 1"), HasSubstr("cannot read '{a: 1'"));
}

TEST(Override, ErrorsSayThatItCameFromTheCommandLine) {
  Node node = document();
  apply_override(node, "optimizer.lr=fast");
  try {
    Value<double>::read(*node.find("optimizer")->find("lr"));
    FAIL();
  } catch (const LocatedError& error) {
    EXPECT_STREQ(error.what(),
                 "command line: optimizer/lr: expected a number, got the text 'fast'");
  }
}

TEST(Override, RefusesPathsThatLeadNowhere) {
  EXPECT_THAT(refusal_of("optimizer.lr.x=1"), HasSubstr("leads through the number 0.1"));
  EXPECT_THAT(refusal_of("model/5/x=1"), HasSubstr("expected a place in a list of 2"));
  EXPECT_THAT(refusal_of("a//b=1"), HasSubstr("a key is empty"));
  EXPECT_THAT(refusal_of("nothing"), HasSubstr("expected path=value"));
  EXPECT_THAT(refusal_of("a=[1"), HasSubstr("cannot read '[1'"));
}

}  // namespace
}  // namespace lockstep::config
