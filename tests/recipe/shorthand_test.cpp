#include "lockstep/recipe/shorthand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/config/override.h"
#include "lockstep/config/yaml.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

std::string spelled_out(const std::string& text) {
  config::Node document = config::parse_yaml(text, "a.yml");
  spell_out(document);
  return config::to_yaml(document);
}

TEST(Shorthand, IsSpelledOut) {
  EXPECT_EQ(spelled_out("{optimizer: Adam}"), "optimizer:\n  _target_: Adam\n");
  EXPECT_EQ(spelled_out("{optimizer: {Adam: {lr: 1}}}"), "optimizer:\n  _target_: Adam\n  lr: 1\n");
  EXPECT_EQ(spelled_out("{optimizer: {Adam: }}"), "optimizer:\n  _target_: Adam\n");
  EXPECT_EQ(spelled_out("{optimizer: {_target_: Adam, lr: 1}}"),
            "optimizer:\n  _target_: Adam\n  lr: 1\n");
  EXPECT_EQ(spelled_out("{optimizer: {lr: 1}}"), "optimizer:\n  lr: 1\n")
      << "it has no target, because it is merged over another document";
  EXPECT_EQ(spelled_out("{loaders: {train: {dataset: Noise}}}"),
            "loaders:\n  train:\n    dataset:\n      _target_: Noise\n");
  EXPECT_EQ(spelled_out("{stages: {A: {num_epochs: 1}}}"), "stages:\n  A:\n    num_epochs: 1\n");
}

TEST(Shorthand, ValuesByNameAreSpelledOutToo) {
  EXPECT_EQ(spelled_out("{optimizers: {a: Adam, b: {SGD: {lr: 1}}}}"),
            "optimizers:\n  a:\n    _target_: Adam\n  b:\n    _target_: SGD\n    lr: 1\n");
  EXPECT_EQ(spelled_out("{criterions: {ce: CrossEntropyLoss}}"),
            "criterions:\n  ce:\n    _target_: CrossEntropyLoss\n");
  const std::string losses = "losses:\n  - criterion: ce\n";
  EXPECT_EQ(spelled_out(losses), losses) << "the name of a criterion";
}

TEST(Shorthand, CanBeLaidOverAndOverridden) {
  config::Node base = config::parse_yaml("{optimizer: {SGD: {momentum: 0.9}}}", "");
  config::Node over = config::parse_yaml("{optimizer: {SGD: {lr: 1}}}", "");
  spell_out(base);
  spell_out(over);
  config::merge(base, over);
  EXPECT_EQ(config::to_yaml(base), "optimizer:\n  _target_: SGD\n  momentum: 0.9\n  lr: 1\n");
  config::apply_override(base, "optimizer=Adam");
  spell_out(base);
  config::apply_override(base, "optimizer.lr=2");
  EXPECT_EQ(config::to_yaml(base), "optimizer:\n  _target_: Adam\n  lr: 2\n");
}

TEST(Args, GoToTheTopLevel) {
  config::Node document = config::parse_yaml("{args: {seed: 1}, check: true}", "a.yml");
  lift_args(document);
  EXPECT_EQ(config::to_yaml(document), "check: true\nseed: 1\n");
  config::Node twice = config::parse_yaml("{args: {seed: 1}, seed: 2}", "a.yml");
  EXPECT_THAT(error_of([&] { lift_args(twice); }), HasSubstr("given twice"));
}

}  // namespace
}  // namespace lockstep::recipe
