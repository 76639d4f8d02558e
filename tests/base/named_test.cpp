#include "lockstep/base/named.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;

template <typename F>
std::string refusal(F action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

Named<int> two() {
  return {{"generator", 1}, {"discriminator", 2}};
}

TEST(Named, KeepsTheOrderInWhichNamesWereGiven) {
  Named<int> numbers = two();
  EXPECT_THAT(numbers.names(), ElementsAre("generator", "discriminator"));
  EXPECT_EQ(numbers["discriminator"], 2);
  numbers.set("generator", 3);
  numbers.set("teacher", 4);
  EXPECT_THAT(numbers.names(), ElementsAre("generator", "discriminator", "teacher"));
  int sum = 0;
  for (const auto& [name, value] : numbers) sum += value;
  EXPECT_EQ(sum, 3 + 2 + 4);
  EXPECT_EQ(numbers.size(), 3U);
  EXPECT_TRUE(Named<int>().empty());
  EXPECT_TRUE(numbers.contains("teacher"));
  EXPECT_FALSE(numbers.contains("teach"));
}

TEST(Named, SuggestsTheNearestName) {
  EXPECT_EQ(refusal([] { two().at("genrator"); }),
            "no 'genrator'; did you mean 'generator'? known: generator, discriminator");
  EXPECT_THAT(refusal([] { two().titled("models")["genrator"]; }),
              testing::StartsWith("models: no 'genrator'"));
}

TEST(Named, RefusesANameTwiceAndNone) {
  EXPECT_EQ(refusal([] { Named<int>{{"a", 1}, {"a", 2}}; }), "the name 'a' comes twice");
  EXPECT_EQ(refusal([] { two().titled("models").set("", 3); }),
            "models: expected a name, got an empty one");
}

}  // namespace
}  // namespace lockstep
