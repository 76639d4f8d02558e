#include "lockstep/source/stored_array.h"

#include <cstring>
#include <limits>
#include <string>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();

// An array that owns its bytes. They begin `shift` bytes after an address that fits all types.
StoredArray stored(const StoredNumber& number, std::vector<std::int64_t> shape,
                   const std::string& bytes, std::size_t shift = 0) {
  const auto memory = std::make_shared<std::vector<std::max_align_t>>(bytes.size() / 8 + 2);
  char* const begin = reinterpret_cast<char*>(memory->data()) + shift;
  std::memcpy(begin, bytes.data(), bytes.size());
  return {.number = number,
          .shape = std::move(shape),
          .is_column_major = false,
          .bytes = {begin, bytes.size()},
          .owner = memory};
}

template <typename T>
std::string bytes_of_numbers(std::initializer_list<T> numbers) {
  return {reinterpret_cast<const char*>(numbers.begin()), numbers.size() * sizeof(T)};
}

TEST(BytesOf, CountsWithoutOverflow) {
  const StoredNumber number{.type = torch::kFloat32, .bytes = 4};
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(bytes_of(Shape{3, 5}, number), 60u);
  EXPECT_EQ(bytes_of(Shape{}, number), 4u);
  EXPECT_EQ(bytes_of(Shape{3, 0}, number), 0u);
  EXPECT_FALSE(bytes_of(Shape{kLargest}, number));
  EXPECT_FALSE(bytes_of(Shape{1LL << 32, 1LL << 32}, number));
  EXPECT_FALSE(bytes_of(Shape{0, kLargest, 2}, number)) << "its strides would overflow";
  EXPECT_FALSE(bytes_of(Shape{-1}, number));
  EXPECT_FALSE(bytes_of(Shape(33, 1), number));
}

TEST(TensorOf, IsAViewThatKeepsItsBytes) {
  StoredArray array = stored({torch::kFloat32, 4}, {2, 2}, bytes_of_numbers({1.F, 2.F, 3.F, 4.F}));
  const void* const bytes = array.bytes.data();
  const std::weak_ptr<const void> owner = array.owner;
  torch::Tensor tensor = tensor_of(array);
  array.owner.reset();
  EXPECT_FALSE(owner.expired());
  EXPECT_EQ(tensor.data_ptr(), bytes);
  EXPECT_TRUE(torch::equal(tensor, torch::tensor({1.F, 2.F, 3.F, 4.F}).view({2, 2})));
  tensor.reset();
  EXPECT_TRUE(owner.expired());
}

TEST(TensorOf, FortransOrderHasItsStrides) {
  StoredArray array =
      stored({torch::kInt16, 2}, {2, 3}, bytes_of_numbers<std::int16_t>({0, 3, 1, 4, 2, 5}));
  array.is_column_major = true;
  const torch::Tensor tensor = tensor_of(array);
  EXPECT_EQ(tensor.data_ptr(), array.bytes.data());
  EXPECT_TRUE(torch::equal(tensor, torch::arange(6, torch::kInt16).view({2, 3})));
  array.number.is_swapped = true;
  EXPECT_TRUE(torch::equal(tensor_of(array), 256 * torch::arange(6, torch::kInt16).view({2, 3})));
}

TEST(TensorOf, SwapsBytesOfEverySize) {
  const auto swapped = [](torch::ScalarType type, std::size_t bytes, std::string text) {
    const std::size_t part = c10::isComplexType(type) ? bytes / 2 : bytes;
    for (std::size_t at = 0; at < text.size(); at += part) {
      std::reverse(text.begin() + static_cast<std::ptrdiff_t>(at),
                   text.begin() + static_cast<std::ptrdiff_t>(at + part));
    }
    return tensor_of(stored({type, bytes, false, true}, {2}, text));
  };
  EXPECT_TRUE(torch::equal(swapped(torch::kInt16, 2, bytes_of_numbers<std::int16_t>({-2, 300})),
                           torch::tensor({-2, 300}, torch::kInt16)));
  EXPECT_TRUE(torch::equal(swapped(torch::kFloat32, 4, bytes_of_numbers({1.5F, -2.F})),
                           torch::tensor({1.5F, -2.F})));
  EXPECT_TRUE(torch::equal(swapped(torch::kFloat64, 8, bytes_of_numbers({1.5, -2.})),
                           torch::tensor({1.5, -2.}, torch::kFloat64)));
  const torch::Tensor complex =
      swapped(torch::kComplexFloat, 8, bytes_of_numbers({1.F, 2.F, 3.F, 4.F}));
  EXPECT_TRUE(
      torch::equal(torch::view_as_real(complex), torch::tensor({1.F, 2.F, 3.F, 4.F}).view({2, 2})));
}

TEST(TensorOf, UnsignedNumbersGetALargerType) {
  const torch::Tensor half =
      tensor_of(stored({torch::kInt32, 2, true}, {2}, bytes_of_numbers<std::uint16_t>({1, 65535})));
  EXPECT_TRUE(torch::equal(half, torch::tensor({1, 65535}, torch::kInt32)));
  const torch::Tensor word = tensor_of(
      stored({torch::kInt64, 4, true}, {2}, bytes_of_numbers<std::uint32_t>({1, 4294967295})));
  EXPECT_TRUE(torch::equal(word, torch::tensor({1L, 4294967295L}, torch::kInt64)));
  const auto large = [](std::uint64_t number) {
    return tensor_of(
        stored({torch::kInt64, 8, true}, {1}, bytes_of_numbers<std::uint64_t>({number})));
  };
  EXPECT_EQ(large(kLargest).item<std::int64_t>(), kLargest);
  EXPECT_THAT(error_text<DataError>([&] { large(std::uint64_t{1} << 63); }),
              HasSubstr("number 0 is 9223372036854775808"));
}

TEST(TensorOf, IsCopiedIfItsPlaceIsNotAllowed) {
  const StoredArray array = stored({torch::kFloat32, 4}, {2}, bytes_of_numbers({1.F, 2.F}), 1);
  EXPECT_EQ(tensor_of(array, Alignment::kAny).data_ptr(), array.bytes.data());
  const torch::Tensor copy = tensor_of(array);
  EXPECT_NE(copy.data_ptr(), array.bytes.data());
  EXPECT_TRUE(torch::equal(copy, torch::tensor({1.F, 2.F})));
}

TEST(TensorOf, BoolsAreZeroOrOne) {
  const auto bools = [](const std::string& bytes) {
    return tensor_of(
        stored({torch::kBool, 1}, {static_cast<std::int64_t>(bytes.size())}, bytes, 0));
  };
  EXPECT_TRUE(
      torch::equal(bools(std::string("\0\1\1", 3)), torch::tensor({0, 1, 1}).to(torch::kBool)));
  EXPECT_THAT(error_text<DataError>([&] { bools(std::string("\0\1\xff\2", 4)); }),
              HasSubstr("bool 2 is 255, expected 0 or 1"));
}

TEST(TensorOf, MayBeEmptyOrANumber) {
  EXPECT_EQ(tensor_of(stored({torch::kFloat32, 4}, {0, 3}, "")).sizes(),
            (torch::IntArrayRef{0, 3}));
  EXPECT_EQ(tensor_of(stored({torch::kFloat32, 4}, {}, bytes_of_numbers({2.F}))).item<float>(), 2);
}

}  // namespace
}  // namespace lockstep::data
