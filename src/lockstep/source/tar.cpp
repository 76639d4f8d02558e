#include "lockstep/source/tar.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/source/byte_reader.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kTarBlock = 512;
using TarBlock = std::array<char, kTarBlock>;

// The part of a header that has a text, which ends at the first zero byte or fills its place.
std::string_view tar_text(const TarBlock& block, std::size_t first, std::size_t size) {
  const std::string_view field(block.data() + first, size);
  return field.substr(0, field.find('\0'));
}

// Octal digits between spaces. Nothing if there is anything else.
std::optional<std::uint64_t> tar_number(const TarBlock& block, std::size_t first,
                                        std::size_t size) {
  std::string_view digits = tar_text(block, first, size);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  if (digits.empty()) return std::nullopt;
  std::uint64_t value = 0;  // at most 12 digits, which 64 bits can hold
  for (const char digit : digits) {
    if (digit < '0' || digit > '7') return std::nullopt;
    value = value * 8 + static_cast<std::uint64_t>(digit - '0');
  }
  return value;
}

constexpr std::size_t kTarChecksum = 148, kTarChecksumSize = 8;

// The sum of all bytes of a header, with spaces in the place of the sum itself.
std::uint64_t tar_checksum(const TarBlock& block) {
  std::uint64_t sum = kTarChecksumSize * ' ';
  for (std::size_t i = 0; i < kTarBlock; ++i) {
    if (i >= kTarChecksum && i < kTarChecksum + kTarChecksumSize) continue;
    sum += static_cast<unsigned char>(block[i]);
  }
  return sum;
}

class TarReader {
 public:
  TarReader(const std::filesystem::path& path, const TarOptions& options)
      : reader_(path), options_(options) {}

  std::map<std::string, std::string> read() {
    TarBlock block{};
    while (read_header(block)) {
      const auto size = tar_number(block, 124, 12);
      if (tar_number(block, kTarChecksum, kTarChecksumSize) != tar_checksum(block) || !size) {
        throw DataError(
            "byte {}: expected the header of a file in a tar archive, got something else",
            at_ - kTarBlock);
      }
      if (*size > reader_.at_most_left()) {
        throw DataError("byte {}: a file of {} bytes, but at most {} follow", at_ - kTarBlock,
                        *size, reader_.at_most_left());
      }
      const std::string name = name_of(block);
      const bool is_file = block[156] == '0' || block[156] == '\0';
      const bool is_wanted =
          is_file && std::ranges::find(options_.names, name) != options_.names.end();
      if (is_wanted) {
        keep(name, *size);
      } else {
        skip(*size);
      }
      skip((kTarBlock - *size % kTarBlock) % kTarBlock);
    }
    while (reader_.read(scratch_) > 0) {  // zeros up to the size of a tape's record
    }
    for (const std::string& name : options_.names) {
      if (!found_.contains(name)) {
        throw DataError("the archive has no '{}'; {}", name, suggest(name, names_));
      }
    }
    return std::move(found_);
  }

 private:
  // False at the end of the archive, which is a block of zeros.
  bool read_header(TarBlock& block) {
    fill(block);
    return !std::ranges::all_of(block, [](char byte) { return byte == 0; });
  }

  void fill(std::span<char> out) {
    const std::size_t got = reader_.read(out);
    at_ += got;
    if (got < out.size()) throw DataError("the archive ends early, after {} bytes", at_);
  }

  std::string name_of(const TarBlock& block) {
    const std::string_view prefix =
        tar_text(block, 257, 5) == "ustar" ? tar_text(block, 345, 155) : std::string_view();
    std::string name(prefix);
    if (!prefix.empty()) name += '/';
    name += tar_text(block, 0, 100);
    if (name.starts_with("./")) name.erase(0, 2);
    constexpr std::size_t kMostNames = 1000;  // of a message
    if (names_.size() < kMostNames) names_.push_back(name);
    return name;
  }

  void keep(const std::string& name, std::uint64_t size) {
    if (found_.contains(name)) throw DataError("byte {}: '{}' comes twice", at_ - kTarBlock, name);
    kept_ += size;
    if (kept_ > static_cast<std::uint64_t>(options_.max_bytes)) {
      throw DataError("byte {}: '{}': the files have {} bytes, expected at most {}",
                      at_ - kTarBlock, name, kept_, options_.max_bytes);
    }
    // A header may promise more than follows, so memory is taken as bytes arrive.
    std::string& bytes = found_[name];
    for (std::uint64_t left = size; left > 0;) {
      const std::size_t used = bytes.size();
      const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(left, 16 << 20));
      bytes.resize(used + piece);
      fill({bytes.data() + used, piece});
      left -= piece;
    }
  }

  void skip(std::uint64_t size) {
    while (size > 0) {
      const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(size, scratch_.size()));
      fill({scratch_.data(), piece});
      size -= piece;
    }
  }

  ByteReader reader_;
  const TarOptions& options_;
  std::uint64_t at_ = 0;
  std::uint64_t kept_ = 0;
  std::map<std::string, std::string> found_;
  std::vector<std::string> names_;  // of the archive, for messages
  std::array<char, 1 << 16> scratch_{};
};

}  // namespace

std::map<std::string, std::string> read_tar(const std::filesystem::path& path,
                                            const TarOptions& options) {
  return reading<DataError>({.path = path}, [&] { return TarReader(path, options).read(); });
}

}  // namespace lockstep::data
