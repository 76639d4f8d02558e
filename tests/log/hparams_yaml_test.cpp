#include "lockstep/log/hparams_yaml.h"

#include <cmath>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using namespace std::string_literals;

TEST(HparamsYaml, EveryKind) {
  EXPECT_EQ(
      to_yaml(
          {{"amp", false}, {"batch_size", std::int64_t{32}}, {"lr", 0.02}, {"optimizer", "Adam"s}}),
      "amp: false\nbatch_size: 32\nlr: 0.02\noptimizer: Adam\n");
  EXPECT_EQ(to_yaml({}), "{}\n");
}

TEST(HparamsYaml, AFloatIsReadAsAFloatByYaml11) {
  EXPECT_EQ(to_yaml({{"x", 1.0}}), "x: 1.0\n");
  EXPECT_EQ(to_yaml({{"x", 1e-5}}), "x: 1.0e-05\n");
  EXPECT_EQ(to_yaml({{"x", 2.5e+30}}), "x: 2.5e+30\n");
  EXPECT_EQ(to_yaml({{"x", -INFINITY}}), "x: -.inf\n");
  EXPECT_EQ(to_yaml({{"x", std::nan("")}}), "x: .nan\n");
}

TEST(HparamsYaml, TextThatCouldBeSomethingElseIsQuoted) {
  for (const auto& text : {"yes"s, "No"s, "null"s, "1e3"s, "12"s, "2020-01-01"s, "- a"s, "a: b"s,
                           "# x"s, ""s, " x"s, "~"s, "*ref"s, "{a}"s}) {
    EXPECT_EQ(to_yaml({{"k", text}}), "k: \"" + text + "\"\n");
  }
  EXPECT_EQ(to_yaml({{"k", "a\"b\\c\nd\te\x01"s}}), "k: \"a\\\"b\\\\c\\nd\\te\\x01\"\n");
  EXPECT_EQ(to_yaml({{"on", true}}), "\"on\": true\n");
  EXPECT_EQ(to_yaml({{"path", "data/mnist-1.bin"s}}), "path: data/mnist-1.bin\n");
}

}  // namespace
}  // namespace lockstep
