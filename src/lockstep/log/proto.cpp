#include "lockstep/log/proto.h"

#include <bit>
#include <optional>

namespace lockstep {
namespace {

enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

// Removes the value from `rest`. Nothing if it is not complete.
std::optional<std::uint64_t> take_varint(std::string_view& rest) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<std::string_view> take_bytes(std::string_view& rest, std::uint64_t count) {
  if (count > rest.size()) return std::nullopt;
  const std::string_view taken = rest.substr(0, count);
  rest.remove_prefix(count);
  return taken;
}

std::optional<ProtoField> take_field(std::string_view& rest) {
  const auto key = take_varint(rest);
  if (!key) return std::nullopt;
  ProtoField field{.number = static_cast<int>(*key >> 3)};
  const auto type = static_cast<WireType>(*key & 7);
  if (type == kVarint) {
    const auto value = take_varint(rest);
    if (!value) return std::nullopt;
    field.value = *value;
    return field;
  }
  std::optional<std::uint64_t> size;
  if (type == kFixed64) size = 8;
  if (type == kFixed32) size = 4;
  if (type == kLengthDelimited) size = take_varint(rest);
  const auto bytes = size ? take_bytes(rest, *size) : std::nullopt;
  if (!bytes) return std::nullopt;
  if (type == kLengthDelimited) {
    field.bytes = *bytes;
  } else {
    field.value = read_little_endian(*bytes);
  }
  return field;
}

void append_key(std::string& out, int field, WireType type) {
  append_varint(out, static_cast<std::uint64_t>(field) << 3 | type);
}

}  // namespace

ProtoMessage& ProtoMessage::integer(int field, std::int64_t value) {
  append_key(encoded_, field, kVarint);
  append_varint(encoded_, static_cast<std::uint64_t>(value));
  return *this;
}

ProtoMessage& ProtoMessage::float32(int field, float value) {
  append_key(encoded_, field, kFixed32);
  append_little_endian(encoded_, std::bit_cast<std::uint32_t>(value), 4);
  return *this;
}

ProtoMessage& ProtoMessage::float64(int field, double value) {
  append_key(encoded_, field, kFixed64);
  append_little_endian(encoded_, std::bit_cast<std::uint64_t>(value), 8);
  return *this;
}

ProtoMessage& ProtoMessage::packed_float64(int field, std::span<const double> values) {
  std::string packed;
  for (const double value : values) {
    append_little_endian(packed, std::bit_cast<std::uint64_t>(value), 8);
  }
  return bytes(field, packed);
}

ProtoMessage& ProtoMessage::bytes(int field, std::string_view value) {
  append_key(encoded_, field, kLengthDelimited);
  append_varint(encoded_, value.size());
  encoded_ += value;
  return *this;
}

ProtoMessage& ProtoMessage::message(int field, const ProtoMessage& value) {
  return bytes(field, value.encoded());
}

ProtoMessage& ProtoMessage::merge(const ProtoMessage& other) {
  encoded_ += other.encoded();
  return *this;
}

std::vector<ProtoField> read_proto(std::string_view encoded) {
  std::vector<ProtoField> fields;
  while (const auto field = take_field(encoded)) fields.push_back(*field);
  return fields;
}

void append_little_endian(std::string& out, std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

std::uint64_t read_little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

}  // namespace lockstep
