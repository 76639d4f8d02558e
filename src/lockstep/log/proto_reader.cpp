#include "lockstep/log/proto_reader.h"

#include <bit>

#include "lockstep/base/error.h"
#include "lockstep/log/proto.h"

namespace lockstep {

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
      field.raw = read_little_endian(take(8));
      break;
    case kLengthDelimited:
      field.bytes = take(varint());
      field.is_bytes = true;
      break;
    case kFixed32:
      field.raw = read_little_endian(take(4));
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

std::vector<ProtoField> read_proto(std::string_view encoded) {
  std::vector<ProtoField> fields;
  ProtoReader reader(encoded);
  try {
    while (const auto field = reader.next()) fields.push_back(*field);
  } catch (const DataError&) {
    // The rest is damaged or was never written.
  }
  return fields;
}

}  // namespace lockstep
