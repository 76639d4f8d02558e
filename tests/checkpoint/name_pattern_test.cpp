#include "lockstep/checkpoint/name_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string name_by(const std::string& pattern) {
  return NamePattern(pattern).name([](const std::string& field) -> NamePattern::Value {
    if (field == "epoch") return std::int64_t{7};
    if (field == "step") return std::int64_t{1200};
    return 0.3456;
  });
}

TEST(NamePattern, FormatsAsPythonDoes) {
  EXPECT_EQ(name_by("model.{epoch:02d}-{valid_loss:.2f}"), "model.07-0.35.pth");
  EXPECT_EQ(name_by("{epoch}"), "7.pth");
  EXPECT_EQ(name_by("{step:08d}-{score:.3e}.pt"), "00001200-3.456e-01.pt");
  EXPECT_EQ(name_by("epoch.{epoch:04d}.pth"), "epoch.0007.pth");
}

TEST(NamePattern, KnowsItsFields) {
  const NamePattern pattern("a{epoch}b{valid/accuracy01:.1f}");
  EXPECT_THAT(pattern.fields(), ElementsAre("epoch", "valid/accuracy01"));
  EXPECT_TRUE(pattern.has("epoch"));
  EXPECT_FALSE(pattern.has("step"));
}

TEST(NamePattern, ABadOneIsQuoted) {
  const auto refusal = [](const std::string& pattern) -> std::string {
    try {
      NamePattern{pattern};
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(refusal("model"), HasSubstr("'model': expected {epoch} or {step}"));
  EXPECT_THAT(refusal(""), HasSubstr("expected {epoch} or {step}"));
  EXPECT_THAT(refusal("model.{epoch"), HasSubstr("braces do not match"));
  EXPECT_THAT(refusal("model.epoch}{epoch}"), HasSubstr("braces do not match"));
  EXPECT_THAT(refusal("{epoch}{}"), HasSubstr("a field has no name"));
  EXPECT_THAT(refusal("../{epoch}"), HasSubstr("without a folder"));
  EXPECT_THAT(refusal(".{epoch}"), HasSubstr("a name that a file can have"));
  EXPECT_THAT(refusal("{epoch}\n"), HasSubstr("a name that a file can have"));
  EXPECT_THAT(refusal("{epoch:.2f}"), HasSubstr("an integer, such as 04d"));
  EXPECT_THAT(refusal("{epoch}-{valid_loss:04d}"), HasSubstr("a real number, such as .3f"));
}

}  // namespace
}  // namespace lockstep::checkpoint
