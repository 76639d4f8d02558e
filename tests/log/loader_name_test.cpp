#include "lockstep/log/loader_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(LoaderName, OrdinaryNamesPass) {
  for (const char* name : {"train", "valid_2", "infer-a.b", "größe", "my loader"}) {
    EXPECT_NO_THROW(check_loader_name(name)) << name;
  }
}

TEST(LoaderName, NamesThatWouldLeaveTheFolderAreRefused) {
  for (const char* name :
       {"", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "a\nb", ".hidden"}) {
    EXPECT_THROW(check_loader_name(name), ConfigError) << name;
  }
  EXPECT_THROW(check_loader_name(std::string("a\0b", 3)), ConfigError);
}

TEST(LoaderName, ALoaderCannotTakeTheEpochsPlace) {
  EXPECT_THROW(check_loader_name(kEpochKey), ConfigError);
  EXPECT_EQ(file_name_of({.scope = Scope::kEpoch, .loader = kEpochKey}), kEpochKey);
  EXPECT_EQ(file_name_of({.scope = Scope::kLoader, .loader = "train"}), "train");
}

TEST(LoaderName, TheMessageNamesTheLoader) {
  try {
    check_loader_name("a/b");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'a/b'"));
  }
}

TEST(LoaderName, MetricsOfEpochsAreSortedByFile) {
  const auto sorted = by_loader({{1, {{"train", {{"loss", 1}}}, {"valid", {}}}},
                                 {2, {{"train", {{"loss", 2}}}, {kEpochKey, {{"lr", 3}}}}}});
  const decltype(sorted) expected = {{"train", {{1, {{"loss", 1}}}, {2, {{"loss", 2}}}}},
                                     {kEpochKey, {{2, {{"lr", 3}}}}}};
  EXPECT_EQ(sorted, expected);
  EXPECT_THROW(by_loader({{1, {{"../x", {{"loss", 1}}}}}}), ConfigError);
}

}  // namespace
}  // namespace lockstep
