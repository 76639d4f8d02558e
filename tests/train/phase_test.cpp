#include "lockstep/train/phase.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Phases, ANameIsAPhase) {
  const Phases phases = {"discriminator", Phase{.name = "generator", .every = 2}};
  ASSERT_EQ(phases.size(), 2U);
  EXPECT_EQ(phases.begin()->name, "discriminator");
  EXPECT_EQ(phases.begin()->every, 1);
  EXPECT_EQ(std::next(phases.begin())->every, 2);
  EXPECT_TRUE(Phases().empty());
}

TEST(Phases, TextTellsThemApart) {
  EXPECT_EQ(describe({Phase{.name = "", .optimizers = {"optimizer"}}}), "");
  EXPECT_EQ(describe({Phase{.name = "a", .optimizers = {"a"}},
                      Phase{.name = "b", .optimizers = {"c", "d"}, .every = 2}}),
            "a, b (c and d, every 2)");
}

}  // namespace
}  // namespace lockstep
