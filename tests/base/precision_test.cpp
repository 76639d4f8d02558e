#include "lockstep/base/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(Precision, HasItsNamesAndThoseOfPyTorch) {
  EXPECT_EQ(Precision(), Precision("fp32"));
  EXPECT_EQ(Precision("float32"), Precision::kFp32);
  EXPECT_EQ(Precision("bfloat16"), Precision("bf16"));
  EXPECT_EQ(Precision(std::string("float16")), Precision::kFp16);
  for (const char* const name : {"fp32", "bf16", "fp16"}) {
    EXPECT_STREQ(Precision(name).name(), name);
    EXPECT_EQ(Precision(name).is_mixed(), std::string(name) != "fp32");
  }
}

TEST(Precision, AnUnknownNameIsRefusedWithTheNearest) {
  try {
    const Precision wrong("fb16");
    FAIL() << wrong.name();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("precision: expected fp32, bf16 or fp16, got "
                                                  "'fb16'; did you mean"));
  }
}

}  // namespace
}  // namespace lockstep
