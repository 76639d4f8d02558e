#include "lockstep/image/exif.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>

namespace lockstep::data {
namespace {

constexpr std::size_t kEntryBytes = 12;
constexpr std::uint32_t kOrientationTag = 0x0112;
constexpr std::uint32_t kShortType = 3;

bool begins_with(ImageBytes bytes, std::string_view text) {
  return bytes.size() >= text.size() &&
         std::equal(text.begin(), text.end(), bytes.begin(),
                    [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; });
}

// Numbers in the byte order of the data. One beyond the end reads as 0.
class ExifNumbers {
 public:
  ExifNumbers(ImageBytes bytes, bool little) : bytes_(bytes), little_(little) {}

  std::uint32_t at(std::size_t place, std::size_t size) const {
    if (place > bytes_.size() || bytes_.size() - place < size) return 0;
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t next = place + (little_ ? size - 1 - i : i);
      number = (number << 8) | bytes_[next];
    }
    return number;
  }

 private:
  ImageBytes bytes_;
  bool little_;
};

}  // namespace

int exif_orientation(ImageBytes exif) {
  using namespace std::string_view_literals;
  constexpr std::string_view kPrefix = "Exif\0\0"sv;
  if (begins_with(exif, kPrefix)) exif = exif.subspan(kPrefix.size());
  const bool little = begins_with(exif, "II*\0"sv);
  if (!little && !begins_with(exif, "MM\0*"sv)) return 1;
  const ExifNumbers numbers(exif, little);
  const std::size_t directory = numbers.at(4, 4);
  const std::size_t entries = numbers.at(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > exif.size()) return 1;
    if (numbers.at(entry, 2) != kOrientationTag) continue;
    const std::uint32_t value = numbers.at(entry + 8, 2);
    const bool valid = numbers.at(entry + 2, 2) == kShortType && value >= 1 && value <= 8;
    return valid ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace lockstep::data
