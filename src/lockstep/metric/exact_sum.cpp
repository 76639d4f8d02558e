#include "lockstep/metric/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace lockstep::metric {
namespace {

constexpr int kDigitBits = 32;
constexpr std::uint64_t kDigitMask = 0xffffffff;
constexpr int kMantissaBits = 52;
constexpr int kLowestExponent = -1074;  // of the smallest subnormal, the first digit's unit
constexpr std::size_t kNaN = ExactSum::kDigits;
constexpr std::size_t kPositiveInfinity = kNaN + 1;
constexpr std::size_t kNegativeInfinity = kNaN + 2;

using Digits = std::array<std::int64_t, ExactSum::kDigits>;

// Brings each digit but the last into [0, 2^32); the last keeps the sign.
void carry(Digits& digits) {
  for (std::size_t i = 0; i + 1 < digits.size(); ++i) {
    digits[i + 1] += digits[i] >> kDigitBits;
    digits[i] &= static_cast<std::int64_t>(kDigitMask);
  }
}

// Rounds digits that are carried and not negative.
double round(const Digits& digits) {
  auto top = static_cast<int>(digits.size()) - 1;
  while (top >= 0 && digits[top] == 0) --top;
  if (top < 0) return 0;
  const auto digit = [&](int i) { return i < 0 ? 0 : static_cast<std::uint64_t>(digits[i]); };

  // The leading 64 bits. The lowest bit is also set if any later bit is not zero. The conversion
  // below, from 64 bits to 53, needs no more than this to round as if it saw every bit.
  const std::uint64_t two = digit(top) << kDigitBits | digit(top - 1);
  const int shift = std::countl_zero(two);
  std::uint64_t head = two << shift | digit(top - 2) << shift >> kDigitBits;
  bool rest = (digit(top - 2) << shift & kDigitMask) != 0;
  for (int i = top - 3; i >= 0 && !rest; --i) rest = digits[i] != 0;
  if (rest) head |= 1;
  return std::ldexp(static_cast<double>(head), kLowestExponent + kDigitBits * (top - 1) - shift);
}

}  // namespace

void ExactSum::add(double term) {
  const auto bits = std::bit_cast<std::uint64_t>(term);
  const auto exponent = static_cast<int>(bits >> kMantissaBits & 0x7ff);
  if (exponent == 0x7ff) {
    ++words_[std::isnan(term) ? kNaN : term > 0 ? kPositiveInfinity : kNegativeInfinity];
    return;
  }
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << kMantissaBits) - 1);
  const std::uint64_t mantissa = exponent == 0 ? fraction : fraction | 1ull << kMantissaBits;
  const int offset = exponent == 0 ? 0 : exponent - 1;
  const int shift = offset % kDigitBits;
  const std::uint64_t low = (mantissa & kDigitMask) << shift;
  const std::uint64_t high = (mantissa >> kDigitBits) << shift;
  const auto sign = term < 0 ? std::int64_t{-1} : std::int64_t{1};
  std::int64_t* word = &words_[static_cast<std::size_t>(offset / kDigitBits)];
  word[0] += sign * static_cast<std::int64_t>(low & kDigitMask);
  word[1] += sign * static_cast<std::int64_t>((low >> kDigitBits) + (high & kDigitMask));
  word[2] += sign * static_cast<std::int64_t>(high >> kDigitBits);
}

void ExactSum::add_product(double a, double b) {
  const double product = a * b;
  add(product);
  if (std::isfinite(product)) add(std::fma(a, b, -product));
}

void ExactSum::merge(const ExactSum& other) {
  for (std::size_t i = 0; i < kWords; ++i) words_[i] += other.words_[i];
}

double ExactSum::value() const {
  const bool up = words_[kPositiveInfinity] != 0;
  const bool down = words_[kNegativeInfinity] != 0;
  if (words_[kNaN] != 0 || (up && down)) return std::numeric_limits<double>::quiet_NaN();
  if (up || down) return up ? HUGE_VAL : -HUGE_VAL;

  Digits digits;
  for (std::size_t i = 0; i < kDigits; ++i) digits[i] = words_[i];
  carry(digits);
  if (digits.back() >= 0) return round(digits);
  for (std::int64_t& digit : digits) digit = -digit;
  carry(digits);
  return -round(digits);
}

std::vector<double> ExactSum::terms() const {
  std::vector<double> terms;
  ExactSum rest = *this;
  for (double term = rest.value(); term != 0; term = rest.value()) {
    terms.push_back(term);
    rest.add(-term);
  }
  return terms;
}

}  // namespace lockstep::metric
