#include "lockstep/source/stored_array.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kMostDimensions = 32;  // as NumPy has

template <typename Word>
Word swapped_word(Word word) {
  if constexpr (sizeof(Word) == 2) return __builtin_bswap16(word);
  if constexpr (sizeof(Word) == 4) return __builtin_bswap32(word);
  if constexpr (sizeof(Word) == 8) return __builtin_bswap64(word);
  return word;
}

// Calls store(i, word) for each word of the array. Words may begin at any address.
template <typename Word, typename Store>
void for_each_word(const StoredArray& array, const Store& store) {
  const std::size_t count = array.bytes.size() / sizeof(Word);
  for (std::size_t i = 0; i < count; ++i) {
    Word word = 0;
    std::memcpy(&word, array.bytes.data() + i * sizeof(Word), sizeof(Word));
    store(i, array.number.is_swapped ? swapped_word(word) : word);
  }
}

template <typename Word>
void copy_words(const StoredArray& array, torch::Tensor& out) {
  auto* const to = static_cast<Word*>(out.data_ptr());
  for_each_word<Word>(array, [=](std::size_t i, Word word) { to[i] = word; });
}

template <typename Word, typename Number>
void convert_unsigned(const StoredArray& array, torch::Tensor& out) {
  auto* const to = out.data_ptr<Number>();
  for_each_word<Word>(array, [=](std::size_t i, Word word) {
    if constexpr (sizeof(Word) == sizeof(Number)) {
      if (word > static_cast<Word>(std::numeric_limits<Number>::max())) {
        throw DataError("number {} is {}, expected at most {}: it becomes int64", i, word,
                        std::numeric_limits<Number>::max());
      }
    }
    to[i] = static_cast<Number>(word);
  });
}

// All numbers in the order of the file.
torch::Tensor converted(const StoredArray& array) {
  const StoredNumber& number = array.number;
  const auto count = static_cast<std::int64_t>(array.bytes.size() / number.bytes);
  torch::Tensor out = torch::empty({count}, torch::dtype(number.type));
  if (number.is_unsigned) {
    if (number.bytes == 2) convert_unsigned<std::uint16_t, std::int32_t>(array, out);
    if (number.bytes == 4) convert_unsigned<std::uint32_t, std::int64_t>(array, out);
    if (number.bytes == 8) convert_unsigned<std::uint64_t, std::int64_t>(array, out);
    return out;
  }
  // Each part of a complex number has a byte order of its own.
  switch (c10::isComplexType(number.type) ? number.bytes / 2 : number.bytes) {
    case 2:
      copy_words<std::uint16_t>(array, out);
      break;
    case 4:
      copy_words<std::uint32_t>(array, out);
      break;
    case 8:
      copy_words<std::uint64_t>(array, out);
      break;
    default:
      std::memcpy(out.data_ptr(), array.bytes.data(), array.bytes.size());
  }
  return out;
}

void check_bools(std::span<const char> bytes) {
  const auto wrong = find_non_bool(bytes);
  if (!wrong) return;
  throw DataError(
      "bool {} is {}, expected 0 or 1; in Python, save array.view('uint8') != 0 instead", *wrong,
      static_cast<unsigned char>(bytes[*wrong]));
}

std::vector<std::int64_t> strides_of(const StoredArray& array) {
  const std::size_t dimensions = array.shape.size();
  std::vector<std::int64_t> strides(dimensions);
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    const std::size_t at = array.is_column_major ? i : dimensions - 1 - i;
    strides[at] = stride;
    stride *= array.shape[at];
  }
  return strides;
}

bool is_aligned(const StoredArray& array) {
  // A complex number is aligned as its parts are, but its size is a safe choice.
  return reinterpret_cast<std::uintptr_t>(array.bytes.data()) % array.number.bytes == 0;
}

}  // namespace

std::optional<std::uint64_t> bytes_of(std::span<const std::int64_t> shape,
                                      const StoredNumber& number) {
  if (shape.size() > kMostDimensions) return std::nullopt;
  auto bytes = static_cast<std::int64_t>(number.bytes);
  bool is_empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    is_empty = is_empty || size == 0;
    // The other sizes of an empty array count, too: its strides are products of them.
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes)) return std::nullopt;
  }
  return is_empty ? 0 : static_cast<std::uint64_t>(bytes);
}

std::optional<std::size_t> find_non_bool(std::span<const char> bytes) {
  // The loop has no exit, so that it is vectorised.
  unsigned char seen = 0;
  for (const char byte : bytes) seen |= static_cast<unsigned char>(byte);
  if (seen <= 1) return std::nullopt;
  const auto found = std::ranges::find_if(bytes, [](char byte) { return byte != 0 && byte != 1; });
  return static_cast<std::size_t>(found - bytes.begin());
}

torch::Tensor tensor_of(const StoredArray& array, Alignment alignment) {
  static_assert(std::endian::native == std::endian::little, "files are little-endian or swapped");
  const auto type = torch::dtype(array.number.type);
  if (array.bytes.empty()) return torch::empty(array.shape, type);
  if (array.number.type == torch::kBool) check_bools(array.bytes);
  const auto strides = strides_of(array);
  // Rows in Fortran's order are copied by torch, so they have to be aligned.
  const bool is_placed_well =
      is_aligned(array) || (alignment == Alignment::kAny && !array.is_column_major);
  if (array.number.is_unsigned || array.number.is_swapped || !is_placed_well) {
    return converted(array).as_strided(array.shape, strides);
  }
  return torch::from_blob(
      const_cast<char*>(array.bytes.data()), array.shape, strides, [owner = array.owner](void*) {},
      type);
}

}  // namespace lockstep::data
