#include "lockstep/config/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/config/yaml.h"

namespace lockstep::config {
namespace {

using testing::ElementsAre;

TEST(Node, KeepsKeysInTheirOrderAndReplacesInPlace) {
  Node map = Node::map();
  map.set("b", Node::text("1"));
  map.set("a", Node::text("2"));
  map.set("b", Node::text("3"));
  EXPECT_THAT(map.keys(), ElementsAre("b", "a"));
  EXPECT_EQ(map.find("b")->text(), "3");
  map.erase("b");
  EXPECT_FALSE(map.contains("b"));
}

TEST(Node, ErrorsSayWhere) {
  const Node document = parse_yaml("loaders:\n  train:\n    batch_size: -3\n", "mnist.yml");
  const Node& size = *document.find("loaders")->find("train")->find("batch_size");
  try {
    size.fail("expected a positive integer, got {}", size.text());
    FAIL();
  } catch (const LocatedError& error) {
    EXPECT_STREQ(error.what(),
                 "mnist.yml:3: loaders/train/batch_size: expected a positive integer, got -3");
  }
}

TEST(Node, DescribesItself) {
  const Node document = parse_yaml("{a: 3, b: text, c: true, d: [], e: {}, f: , g: '3'}", "x");
  EXPECT_EQ(document.find("a")->describe(), "the number 3");
  EXPECT_EQ(document.find("b")->describe(), "the text 'text'");
  EXPECT_EQ(document.find("c")->describe(), "true");
  EXPECT_EQ(document.find("d")->describe(), "an empty list");
  EXPECT_EQ(document.find("e")->describe(), "an empty mapping");
  EXPECT_EQ(document.find("f")->describe(), "nothing");
  EXPECT_EQ(document.find("g")->describe(), "the text '3'");
}

TEST(Merge, GoesIntoMappingsAndReplacesTheRest) {
  Node base = parse_yaml("{a: {x: 1, y: 2}, b: [1, 2], c: 3}", "base");
  merge(base, parse_yaml("{a: {y: 5, z: 6}, b: [9], d: 4}", "over"));
  EXPECT_EQ(to_yaml(base), to_yaml(parse_yaml("{a: {x: 1, y: 5, z: 6}, b: [9], c: 3, d: 4}", "")));
  EXPECT_EQ(base.find("a")->find("y")->place().source, "over");
}

TEST(Merge, AnotherTargetDoesNotInheritOptions) {
  Node base = parse_yaml("{optimizer: {_target_: Adam, lr: 0.1, amsgrad: true}}", "");
  merge(base, parse_yaml("{optimizer: {_target_: SGD, momentum: 0.9}}", ""));
  EXPECT_THAT(base.find("optimizer")->keys(), ElementsAre("_target_", "momentum"));
  merge(base, parse_yaml("{optimizer: {_target_: SGD, lr: 1}}", ""));
  EXPECT_THAT(base.find("optimizer")->keys(), ElementsAre("_target_", "momentum", "lr"));
}

}  // namespace
}  // namespace lockstep::config
