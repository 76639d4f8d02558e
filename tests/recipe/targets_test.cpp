#include "lockstep/recipe/targets.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::recipe {
namespace {

TEST(Targets, AreThereOnceAndDescribed) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const auto& info : targets().all()) {
    EXPECT_TRUE(seen.emplace(info.kind, info.name).second) << info.name;
    EXPECT_FALSE(info.about.empty()) << info.name;
    for (const auto& field : info.fields) {
      EXPECT_FALSE(field.about.empty()) << info.name << "/" << field.name;
      EXPECT_FALSE(field.type.empty()) << info.name << "/" << field.name;
    }
  }
  EXPECT_GT(seen.size(), 60u);
}

TEST(Targets, HaveEveryKind) {
  std::set<std::string> kinds;
  for (const auto& info : targets().all()) kinds.insert(info.kind);
  EXPECT_THAT(kinds, ::testing::UnorderedElementsAre("model", "layer", "criterion", "optimizer",
                                                     "scheduler", "dataset", "transform",
                                                     "batch transform", "sampler", "collate",
                                                     "callback", "logger", "engine", "runner"));
}

}  // namespace
}  // namespace lockstep::recipe
