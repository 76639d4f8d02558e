#include "lockstep/compute/cpu_instructions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::compute {
namespace {

using testing::HasSubstr;

const char* const kOld = "processor : 0\nflags\t\t: fpu sse2 avx2 avx512f\n";
const char* const kZen4 = "processor : 0\nflags\t\t: fpu avx512f avx512_bf16 sse2\nbugs : x\n";
const char* const kSapphire = "flags : amx_bf16 avx512_bf16 avx512_fp16 avx2\n";
const char* const kArm = "processor\t: 0\nFeatures\t: fp asimd fphp asimdhp svebf16\n";

TEST(CpuInstructions, AreThoseThatLinuxLists) {
  EXPECT_EQ(half_instructions(kOld), "none");
  EXPECT_EQ(half_instructions(kZen4), "avx512_bf16");
  EXPECT_EQ(half_instructions(kSapphire), "amx_bf16 avx512_bf16 avx512_fp16");
  EXPECT_EQ(half_instructions(kArm), "svebf16 fphp asimdhp");
  EXPECT_EQ(half_instructions(""), "none");
  EXPECT_EQ(half_instructions("flags"), "none");
}

TEST(CpuInstructions, ThePrecisionIsSlowWithoutThem) {
  EXPECT_EQ(why_slow("fp32", kOld), "");
  EXPECT_THAT(why_slow("bf16", kOld),
              testing::AllOf(testing::StartsWith("precision: bf16: this CPU has no instructions"),
                             HasSubstr("avx512_bf16 or amx_bf16"), HasSubstr("slower")));
  EXPECT_THAT(why_slow("fp16", kZen4), HasSubstr("avx512_fp16"));
  for (const char* const cpu : {kZen4, kSapphire, kArm}) {
    EXPECT_THAT(why_slow("bf16", cpu), testing::Not(HasSubstr("this CPU")));
  }
}

TEST(CpuInstructions, OfThisMachineCanBeRead) {
  EXPECT_FALSE(read_cpuinfo().empty());
}

}  // namespace
}  // namespace lockstep::compute
