#include "lockstep/log/proto.h"

#include <bit>

namespace lockstep {
namespace {

enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
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
