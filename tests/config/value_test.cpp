#include "lockstep/config/value.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/config/yaml.h"

namespace lockstep::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Node node(const std::string& text) {
  return *parse_yaml("value: " + text, "x.yml").find("value");
}

template <typename T>
T read(const std::string& text) {
  return Value<T>::read(node(text));
}

template <typename T>
std::string error_of(const std::string& text) {
  try {
    read<T>(text);
  } catch (const LocatedError& error) {
    return error.what();
  }
  return "";
}

enum class Colour { kRed, kBlue };

TEST(Value, ReadsNumbersAsYaml12HasThem) {
  EXPECT_EQ(read<std::int64_t>("-12"), -12);
  EXPECT_EQ(read<std::int64_t>("1e3"), 1000);
  EXPECT_EQ(read<std::int64_t>("64.0"), 64);
  EXPECT_EQ(read<double>("1e-3"), 1e-3);
  EXPECT_EQ(read<double>("3"), 3.0);
  EXPECT_EQ(read<double>("-.inf"), -HUGE_VAL);
  EXPECT_TRUE(std::isnan(read<double>(".nan")));
  EXPECT_EQ(read<std::uint64_t>("9223372036854775807"), 9223372036854775807u);
}

TEST(Value, RefusesWhatIsAlmostANumber) {
  for (const char* const text : {"'3'", "three", "3x", "inf", "nan", "1.5", "[3]", "", "0x10"}) {
    EXPECT_THAT(error_of<std::int64_t>(text), HasSubstr("expected an integer")) << text;
  }
  for (const char* const text : {"'3'", "three", "3x", "inf", "nan", "true", "{}", ""}) {
    EXPECT_THAT(error_of<double>(text), HasSubstr("expected a number")) << text;
  }
  EXPECT_THAT(error_of<std::int64_t>("99999999999999999999"), HasSubstr("expected an integer"));
  EXPECT_THAT(error_of<int>("3000000000"), HasSubstr("expected an integer from -2147483648"));
  EXPECT_THAT(error_of<std::uint64_t>("-1"), HasSubstr("expected an integer from 0"));
}

TEST(Value, YesAndOnAreNotTruths) {
  EXPECT_TRUE(read<bool>("true"));
  EXPECT_THAT(error_of<bool>("yes"), HasSubstr("expected true or false, got the text 'yes'"));
  EXPECT_THAT(error_of<bool>("1"), HasSubstr("expected true or false, got the number 1"));
}

TEST(Value, ANumberCanBeText) {
  EXPECT_EQ(read<std::string>("abc"), "abc");
  EXPECT_EQ(read<std::string>("2026"), "2026");
  EXPECT_THAT(error_of<std::string>("[a]"), HasSubstr("expected text, got a list"));
  EXPECT_THAT(error_of<std::string>("~"), HasSubstr("expected text, got nothing"));
}

TEST(Value, ListsMapsAndOptionals) {
  EXPECT_THAT(read<std::vector<std::int64_t>>("[1, 2]"), ElementsAre(1, 2));
  EXPECT_THAT(read<std::vector<std::int64_t>>("7"), ElementsAre(7));
  EXPECT_THAT(error_of<std::vector<std::int64_t>>("[1, x]"),
              HasSubstr("value/1: expected an integer"));
  EXPECT_EQ(read<std::optional<double>>("~"), std::nullopt);
  EXPECT_EQ(read<std::optional<double>>("2"), 2.0);
  using Counts = std::map<std::string, std::variant<std::int64_t, double>>;
  const auto counts = read<Counts>("{a: 1, b: 1.0}");
  EXPECT_TRUE(std::holds_alternative<std::int64_t>(counts.at("a")));
  EXPECT_TRUE(std::holds_alternative<double>(counts.at("b")));
}

TEST(Value, SecondsMayHaveAFraction) {
  EXPECT_EQ(read<std::chrono::milliseconds>("1.5").count(), 1500);
  EXPECT_THAT(error_of<std::chrono::milliseconds>("-1"), HasSubstr("seconds"));
}

TEST(Value, ShowsDefaultsAsOneWouldWriteThem) {
  EXPECT_EQ(Value<double>::show(1e-8), "1e-08");
  EXPECT_EQ(Value<double>::show(0.9), "0.9");
  EXPECT_EQ(Value<bool>::show(true), "true");
  EXPECT_EQ(Value<std::string>::show("logits"), "logits");
  EXPECT_EQ(Value<std::string>::show("a: b"), "\"a: b\"");
  EXPECT_EQ(Value<std::vector<std::int64_t>>::show({1, 2}), "[1, 2]");
  EXPECT_EQ(Value<std::optional<int>>::show(std::nullopt), "");
}

}  // namespace

template <>
struct EnumNames<Colour> {
  static constexpr std::pair<Colour, const char*> names[] = {{Colour::kRed, "red"},
                                                             {Colour::kBlue, "blue"}};
};

namespace {

TEST(Value, EnumerationsHaveNames) {
  EXPECT_EQ(read<Colour>("blue"), Colour::kBlue);
  EXPECT_THAT(error_of<Colour>("blu"), HasSubstr("did you mean 'blue'"));
  EXPECT_EQ(Value<Colour>::show(Colour::kRed), "red");
}

}  // namespace
}  // namespace lockstep::config
