// The tests with whole runs are in recipe_test.cpp: see Autoresume there.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::recipe {
namespace {

TEST(AutoresumeOfNothing, StartsAnew) {
  const TemporaryDirectory folder;
  Recipe recipe;
  recipe.stages.resize(2);
  EXPECT_THROW(autoresume(recipe, "last"), ConfigError) << "without a logdir";
  for (auto& stage : recipe.stages) stage.options.logdir = folder / "nothing";
  autoresume(recipe, "last");
  EXPECT_EQ(recipe.stages.size(), 2u);
  EXPECT_FALSE(recipe.stages[0].options.resume);
}

}  // namespace
}  // namespace lockstep::recipe
