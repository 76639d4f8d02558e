#include "lockstep/http/url.h"

#include <gtest/gtest.h>

namespace lockstep::http {
namespace {

TEST(Url, SpecialCharactersAreEscaped) {
  EXPECT_EQ(escaped("a plot/ü.svg"), "a%20plot%2F%C3%BC.svg");
  EXPECT_EQ(escaped_path("7/a b"), "7/a%20b");
}

TEST(Url, IsUnescaped) {
  EXPECT_EQ(unescaped("se%20cret%3a"), "se cret:");
  EXPECT_EQ(unescaped("100%"), "100%");
  EXPECT_EQ(unescaped("%4"), "%4");
  EXPECT_EQ(unescaped("%xy"), "%xy");
  EXPECT_EQ(unescaped("%41"), "A");
}

TEST(Url, TheUserIsSeparatedFromTheAddress) {
  const Address address = split_address("https://me:se%20cret@host:5000/path//");
  EXPECT_EQ(address.url, "https://host:5000/path");
  EXPECT_EQ(address.username, "me");
  EXPECT_EQ(address.password, "se cret");
  const Address named = split_address("http://me@host");
  EXPECT_EQ(named.url, "http://host");
  EXPECT_EQ(named.username, "me");
  EXPECT_FALSE(named.password);
}

TEST(Url, AnAtSignInThePathBelongsToThePath) {
  const Address address = split_address("http://host/a@b");
  EXPECT_EQ(address.url, "http://host/a@b");
  EXPECT_FALSE(address.username);
  EXPECT_EQ(split_address("databricks").url, "databricks");
}

}  // namespace
}  // namespace lockstep::http
