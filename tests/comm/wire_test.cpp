#include "lockstep/comm/wire.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/numbers.h"

namespace lockstep::comm {
namespace {

// All bfloat16 numbers, and around each of them the float32 numbers that are close to it, close to
// the middle between it and the next one, and the middle itself.
torch::Tensor all_kinds_of_floats() {
  constexpr std::uint32_t kLow[] = {0, 1, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xffff};
  const torch::Tensor numbers = torch::empty({(1 << 16) * std::ssize(kLow)});
  float* to = numbers.data_ptr<float>();
  for (std::uint32_t high = 0; high < 1 << 16; ++high) {
    for (const std::uint32_t low : kLow) *to++ = std::bit_cast<float>(high << 16 | low);
  }
  return numbers;
}

torch::Tensor rounded_by_us(const torch::Tensor& numbers) {
  torch::Tensor rounded = torch::empty_like(numbers);
  round_to_bf16(numbers.data_ptr<float>(), rounded.data_ptr<float>(), numbers.numel());
  return rounded;
}

std::uint32_t bits_of(float number) {
  return std::bit_cast<std::uint32_t>(number);
}

TEST(Wire, RoundsAsPyTorchDoes) {
  const torch::Tensor numbers = all_kinds_of_floats();
  const torch::Tensor ours = rounded_by_us(numbers);
  const torch::Tensor theirs = numbers.to(torch::kBFloat16).to(torch::kFloat32);
  const torch::Tensor is_number = numbers.isnan().logical_not();
  EXPECT_TRUE(same_bits(ours.masked_select(is_number), theirs.masked_select(is_number)));
  EXPECT_TRUE(ours.isnan().equal(numbers.isnan()));
  EXPECT_TRUE(same_bits(rounded_by_us(ours), ours)) << "rounding twice is rounding once";
}

TEST(Wire, NaNAndInfinitySurvive) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // The payload of the second NaN is only in bits that bfloat16 does not have.
  const std::vector<float> from = {std::numeric_limits<float>::quiet_NaN(),
                                   std::bit_cast<float>(0xff800001U),
                                   kInfinity,
                                   -kInfinity,
                                   std::numeric_limits<float>::max(),
                                   -0.0F,
                                   std::numeric_limits<float>::denorm_min()};
  std::vector<float> to(from.size());
  round_to_bf16(from.data(), to.data(), std::ssize(from));
  const std::vector<std::uint32_t> expected = {0x7fc00000, 0x7fc00000, 0x7f800000, 0xff800000,
                                               0x7f800000, 0x80000000, 0};
  for (std::size_t i = 0; i < from.size(); ++i) EXPECT_EQ(bits_of(to[i]), expected[i]) << i;
}

// Whole vectors and the rest of an array are computed by different instructions.
TEST(Wire, AnElementDoesNotDependOnItsPlace) {
  const torch::Tensor a = random_tensor(1, 100, torch::kFloat32);
  const torch::Tensor b = random_tensor(2, 100, torch::kFloat32);
  const auto of_element = [&](std::int64_t i) {
    float sum = 0;
    add_rounded(a.data_ptr<float>() + i, b.data_ptr<float>() + i, &sum, 1);
    return sum;
  };
  for (const std::int64_t count : {0, 1, 7, 8, 9, 31, 32, 33, 100}) {
    torch::Tensor sum = a.clone();
    float* const at = sum.data_ptr<float>();
    add_rounded(at, b.data_ptr<float>(), at, count);
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(bits_of(at[i]), bits_of(of_element(i)));
    ASSERT_TRUE(same_bits(sum.slice(0, count), a.slice(0, count))) << "wrote beyond " << count;
  }
}

TEST(Wire, SumsOfFloatsAndOfStoredNumbersAreTheSame) {
  const torch::Tensor a = random_tensor(1, 5003, torch::kFloat32);
  const torch::Tensor b = random_tensor(2, 5003, torch::kFloat32);
  const torch::Tensor sum = torch::empty_like(a);
  add_rounded(a.data_ptr<float>(), b.data_ptr<float>(), sum.data_ptr<float>(), 5003);

  const torch::Tensor narrow_a = torch::empty({5003}, torch::kBFloat16);
  const torch::Tensor narrow_b = torch::empty({5003}, torch::kBFloat16);
  narrow_to_bf16(a.data_ptr<float>(), narrow_a.data_ptr<c10::BFloat16>(), 5003);
  narrow_to_bf16(b.data_ptr<float>(), narrow_b.data_ptr<c10::BFloat16>(), 5003);
  EXPECT_TRUE(same_bits(narrow_a, a.to(torch::kBFloat16)));
  const torch::Tensor narrow_sum = torch::empty({5003}, torch::kBFloat16);
  add_rounded(narrow_a.data_ptr<c10::BFloat16>(), narrow_b.data_ptr<c10::BFloat16>(),
              narrow_sum.data_ptr<c10::BFloat16>(), 5003);
  EXPECT_TRUE(same_bits(narrow_sum, narrow_a + narrow_b));

  const torch::Tensor wide = torch::empty({5003});
  widen_from_bf16(narrow_sum.data_ptr<c10::BFloat16>(), wide.data_ptr<float>(), 5003);
  EXPECT_TRUE(same_bits(wide, sum));
}

TEST(Wire, OnlyFloat32IsRounded) {
  EXPECT_TRUE(is_rounded(Wire::kBf16, torch::kFloat32));
  EXPECT_FALSE(is_rounded(Wire::kFp32, torch::kFloat32));
  for (const auto type : {torch::kFloat64, torch::kFloat16, torch::kBFloat16, torch::kInt64}) {
    EXPECT_FALSE(is_rounded(Wire::kBf16, type));
  }
  EXPECT_EQ(name_of(Wire::kFp32), "fp32");
  EXPECT_EQ(name_of(Wire::kBf16), "bf16");
}

}  // namespace
}  // namespace lockstep::comm
