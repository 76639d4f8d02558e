#include "lockstep/command/search_space.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/config/value.h"

namespace lockstep::command {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

double number_in(const config::Node& node) {
  return *config::parse_double(node.text());
}

std::vector<std::string> shown(const TrialValues& values) {
  std::vector<std::string> texts;
  for (const auto& [path, value] : values) texts.push_back(path + "=" + show_value(value));
  return texts;
}

TEST(Dimension, UniformNumbersAreInTheRange) {
  const Dimension dimension("a", "uniform(0.1, 0.3)");
  EXPECT_EQ(show_value(dimension.at(0)), "0.1");
  EXPECT_EQ(show_value(dimension.at(0.5)), "0.2");
  EXPECT_EQ(show_value(dimension.at(0.333333)), "0.1667") << "4 digits";
  EXPECT_EQ(dimension.count(), 0);
}

TEST(Dimension, EveryPowerOfTenIsAsLikely) {
  const Dimension dimension("a", "loguniform(1e-4, 1e-1)");
  EXPECT_NEAR(number_in(dimension.at(1.0 / 3)), 1e-3, 1e-6);
  EXPECT_NEAR(number_in(dimension.at(2.0 / 3)), 1e-2, 1e-5);
}

TEST(Dimension, RoundingDoesNotLeaveTheRange) {
  const Dimension dimension("a", "uniform(0.123456, 0.123457)");
  for (const double fraction : {0.0, 0.5, 0.999}) {
    EXPECT_GE(number_in(dimension.at(fraction)), 0.123456);
    EXPECT_LE(number_in(dimension.at(fraction)), 0.123457);
  }
}

TEST(Dimension, IntegersHaveBothEnds) {
  const Dimension dimension("a", "int(16, 64, 16)");
  EXPECT_EQ(dimension.count(), 4);
  EXPECT_EQ(show_value(dimension.at(0)), "16");
  EXPECT_EQ(show_value(dimension.at(0.9999)), "64");
  EXPECT_EQ(Dimension("a", "int(-1, 1)").count(), 3);
  EXPECT_EQ(show_value(Dimension("a", "int(-1, 1)").listed(0)), "-1");
}

TEST(Dimension, ChoicesAreYaml) {
  const Dimension dimension("a", "choice(Adam, {_target_: SGD, lr: 0.1}, [1, 2], 'x, y', null)");
  std::vector<std::string> values;
  for (std::int64_t i = 0; i < dimension.count(); ++i) {
    values.push_back(show_value(dimension.listed(i)));
  }
  EXPECT_THAT(values,
              ElementsAre("Adam", "{_target_: SGD, lr: 0.1}", "[1, 2]", "\"x, y\"", "null"));
}

TEST(Dimension, DescribesItself) {
  for (const char* range :
       {"uniform(0, 1)", "loguniform(0.001, 1)", "int(1, 9, 2)", "choice(1, a)"}) {
    EXPECT_EQ(Dimension("a", range).describe(), range);
  }
}

TEST(Dimension, MistakesAreNamed) {
  for (const char* range : {"uniform(1, 0)", "uniform(1)", "uniform(a, b)", "loguniform(0, 1)",
                            "int(1.5, 2)", "int(1)", "int(2, 1)", "int(1, 2, 0)", "choice()",
                            "choice(1,,2)", "normal(0, 1)", "0.1", "", "uniform(nan, 1)"}) {
    EXPECT_THAT(([&] { Dimension("optimizer.lr", range); }),
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("optimizer.lr"), HasSubstr(range))));
  }
  EXPECT_THROW(Dimension("a", std::vector<config::Node>()), ConfigError);
}

SearchSpace example() {
  SearchSpace space;
  space.add({"lr", "loguniform(1e-4, 1e-1)"});
  space.add({"width", "choice(16, 32)"});
  return space;
}

TEST(SearchSpace, ATrialDependsOnSeedAndNumberOnly) {
  EXPECT_EQ(shown(example().sample(1, 7)), shown(example().sample(1, 7)));
  EXPECT_NE(shown(example().sample(1, 7)), shown(example().sample(2, 6)));
  SearchSpace larger;
  larger.add({"depth", "int(1, 9)"});
  larger.add({"lr", "loguniform(1e-4, 1e-1)"});
  EXPECT_EQ(shown(larger.sample(1, 7))[1], shown(example().sample(1, 7))[0])
      << "another dimension does not change it";
}

TEST(SearchSpace, TrialsCoverTheSpace) {
  std::set<std::string> lrs, widths;
  for (std::int64_t trial = 1; trial <= 50; ++trial) {
    const auto values = shown(example().sample(1, trial));
    lrs.insert(values[0]);
    widths.insert(values[1]);
  }
  EXPECT_GT(lrs.size(), 45u);
  EXPECT_EQ(widths.size(), 2u);
}

TEST(SearchSpace, AGridHasAllCombinations) {
  SearchSpace space;
  space.add({"a", "choice(x, y)"});
  space.add({"b", "int(1, 3)"});
  ASSERT_EQ(space.grid_size(), 6);
  EXPECT_THAT(shown(space.grid_point(0)), ElementsAre("a=x", "b=1"));
  EXPECT_THAT(shown(space.grid_point(1)), ElementsAre("a=x", "b=2"));
  EXPECT_THAT(shown(space.grid_point(5)), ElementsAre("a=y", "b=3"));
  EXPECT_THAT(([] { example().grid_size(); }),
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("lr"), HasSubstr("choice"))));
  space.add({"c", "int(1, 1000000)"});
  EXPECT_THROW(space.grid_size(), ConfigError);
}

TEST(SearchSpace, APathIsThereOnce) {
  SearchSpace space = example();
  EXPECT_THROW(space.add({"lr", "choice(1)"}), ConfigError);
}

}  // namespace
}  // namespace lockstep::command
