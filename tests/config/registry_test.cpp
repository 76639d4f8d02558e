#include "lockstep/config/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/config/yaml.h"

namespace lockstep::config {
namespace {

using testing::HasSubstr;

struct CircleOptions {
  double radius = 1;
};

class Shapes : public testing::Test {
 protected:
  Shapes() {
    shapes_.add<CircleOptions>(
        "Circle", "Round.", {{"radius", &CircleOptions::radius, "from the middle"}},
        [](const CircleOptions& o) {
          if (o.radius < 0)
            throw ConfigError("Circle: radius: expected a number >= 0, got {}", o.radius);
          return fmt::format("circle {}", o.radius);
        });
    shapes_.add("Point", "Nothing.", [](int scale) { return fmt::format("point {}", scale); });
  }

  std::string make(const std::string& text) const {
    return shapes_.make(*parse_yaml("shape: " + text, "a.yml").find("shape"), 7);
  }
  std::string error_of(const std::string& text) const {
    try {
      make(text);
    } catch (const LocatedError& error) {
      return error.what();
    }
    return "";
  }

  Registry<std::string, int> shapes_{"shape"};
};

TEST_F(Shapes, AreNamedInThreeWays) {
  EXPECT_EQ(make("{_target_: Circle, radius: 2}"), "circle 2");
  EXPECT_EQ(make("{Circle: {radius: 3}}"), "circle 3");
  EXPECT_EQ(make("Circle"), "circle 1");
  EXPECT_EQ(make("{Circle: }"), "circle 1");
  EXPECT_EQ(make("Point"), "point 7");
}

TEST_F(Shapes, ErrorsNameTheNearestAndTheLine) {
  EXPECT_THAT(error_of("Cirkle"),
              HasSubstr("a.yml:1: shape: unknown shape 'Cirkle'; did you mean 'Circle'?"));
  EXPECT_THAT(error_of("{_target_: Cirkle}"), HasSubstr("shape/_target_: unknown shape"));
  EXPECT_THAT(error_of("{Circle: {radios: 1}}"), HasSubstr("shape/Circle/radios: unknown key"));
  EXPECT_THAT(error_of("{Point: {x: 1}}"), HasSubstr("there are no options here"));
  EXPECT_THAT(error_of("[Circle]"), HasSubstr("expected a shape: its name, or a mapping"));
  EXPECT_THAT(error_of("{Circle: 3}"), HasSubstr("expected _target_"));
}

TEST_F(Shapes, WhatAMakerThrowsIsFoundAtItsOption) {
  EXPECT_THAT(error_of("{_target_: Circle, radius: -1}"),
              HasSubstr("a.yml:1: shape/radius: expected a number >= 0, got -1"));
}

TEST_F(Shapes, ANameCanBeTakenOnce) {
  EXPECT_THROW(shapes_.add("Point", "", [] { return "x"; }), ConfigError);
  EXPECT_EQ(shapes_.info("Circle").fields[0].name, "radius");
}

}  // namespace
}  // namespace lockstep::config
