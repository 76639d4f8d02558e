#include "lockstep/config/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/config/yaml.h"

namespace lockstep::config {
namespace {

using testing::HasSubstr;

struct Options {
  std::int64_t width = 64;
  bool bias = true;
  std::string name;
};

struct Outer {
  Options inner;
};

const std::vector<Field<Options>> kFields = {{"width", &Options::width, "how wide"},
                                             {"bias", &Options::bias, "whether it has one"},
                                             required("name", &Options::name, "what it is called")};

TEST(Fields, ThoseLeftOutKeepTheirDefaults) {
  const auto options = read_fields(parse_yaml("{name: x, width: 8}", "a.yml"), kFields);
  EXPECT_EQ(options.width, 8);
  EXPECT_TRUE(options.bias);
  EXPECT_EQ(options.name, "x");
}

TEST(Fields, EveryMistakeIsFoundAtOnce) {
  try {
    read_fields(parse_yaml("widht: 8\nbias: 3\n", "a.yml"), kFields);
    FAIL();
  } catch (const LocatedError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("a.yml:1: widht: unknown key 'widht'; did you mean 'width'?"));
    EXPECT_THAT(error.what(), HasSubstr("a.yml:2: bias: expected true or false"));
    EXPECT_THAT(error.what(), HasSubstr("name is missing"));
  }
}

TEST(Fields, KnowWhatTheyAre) {
  EXPECT_EQ(kFields[0].info().type, "integer");
  EXPECT_EQ(kFields[0].info().fallback, "64");
  EXPECT_FALSE(kFields[0].info().required);
  EXPECT_TRUE(kFields[2].info().required);
}

TEST(Fields, CanBeOfAMember) {
  const std::vector<Field<Outer>> fields = {kFields[0].inside(&Outer::inner)};
  EXPECT_EQ(read_fields(parse_yaml("{width: 3}", ""), fields).inner.width, 3);
}

TEST(Fields, OtherKeysCanBeAllowed) {
  EXPECT_NO_THROW(read_fields(parse_yaml("{name: x, other: 1}", ""), kFields, {"other"}));
  EXPECT_THROW(read_fields(parse_yaml("[1]", ""), kFields), LocatedError);
}

}  // namespace
}  // namespace lockstep::config
