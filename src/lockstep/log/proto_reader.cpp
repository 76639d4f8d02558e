#include "lockstep/log/proto_reader.h"

#include <bit>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

}  // namespace

float ProtoField::float32() const {
  return std::bit_cast<float>(static_cast<std::uint32_t>(raw));
}

double ProtoField::float64() const {
  return std::bit_cast<double>(raw);
}

std::optional<ProtoField> ProtoReader::next() {
  if (rest_.empty()) return std::nullopt;
  constexpr std::uint64_t kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;
  const std::uint64_t key = varint();
  ProtoField field{.number = static_cast<int>(key >> 3)};
  switch (key & 7) {
    case kVarint:
      field.raw = varint();
      break;
    case kFixed64:
      field.raw = little_endian(take(8));
      break;
    case kLengthDelimited:
      field.bytes = take(varint());
      field.is_bytes = true;
      break;
    case kFixed32:
      field.raw = little_endian(take(4));
      break;
    default:
      throw DataError("protobuf: field {} has the unknown wire type {}", field.number, key & 7);
  }
  return field;
}

std::uint64_t ProtoReader::varint() {
  constexpr int kMostBits = 64;
  std::uint64_t value = 0;
  for (int shift = 0; shift < kMostBits; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1).front());
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  throw DataError("protobuf: a number has more than 64 bits");
}

std::string_view ProtoReader::take(std::uint64_t count) {
  if (count > rest_.size()) {
    throw DataError("protobuf: expected {} bytes more, got {}; the message is cut off", count,
                    rest_.size());
  }
  const std::string_view taken = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return taken;
}

}  // namespace lockstep
