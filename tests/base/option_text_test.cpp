#include "lockstep/base/option_text.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(OptionText, EveryKindOfValue) {
  EXPECT_EQ(OptionText().str(), "");
  EXPECT_EQ(OptionText()
                .with("lr", 0.1)
                .with("patience", std::int64_t{3})
                .with("is_set", true)
                .with("key", std::string("loss"))
                .str(),
            "lr=0.1, patience=3, is_set=true, key=loss");
  EXPECT_EQ(OptionText()
                .with("none", std::optional<double>())
                .with("some", std::optional(0.5))
                .with("list", std::vector<std::int64_t>{2, 4})
                .with("lists", std::map<std::string, std::vector<std::int64_t>>{{"train", {1}},
                                                                                {"valid", {2, 3}}})
                .str(),
            "none=none, some=0.5, list=[2, 4], lists={train: [1], valid: [2, 3]}");
  EXPECT_NE(OptionText().with("lr", 0.1).str(), OptionText().with("lr", 0.1 + 2e-17).str());
}

}  // namespace
}  // namespace lockstep
