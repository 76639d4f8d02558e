// The part of protobuf's wire format that TensorBoard's events need. Fields are written one after
// the other, each with its number. Because the few messages are encoded here, users' programs need
// not link libprotobuf, of which LibTorch contains its own copy.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class ProtoMessage {
 public:
  // int32, int64, bool and enums.
  ProtoMessage& integer(int field, std::int64_t value);
  ProtoMessage& float32(int field, float value);
  ProtoMessage& float64(int field, double value);
  // repeated double, packed.
  ProtoMessage& packed_float64(int field, std::span<const double> values);
  // string and bytes.
  ProtoMessage& bytes(int field, std::string_view value);
  ProtoMessage& message(int field, const ProtoMessage& value);
  // Adds all fields of another message to this one.
  ProtoMessage& merge(const ProtoMessage& other);

  const std::string& encoded() const { return encoded_; }

 private:
  std::string encoded_;
};

// Appends the low `count` bytes of the value, the lowest first.
void append_little_endian(std::string& out, std::uint64_t value, int count);
// The value of up to 8 bytes, the lowest first.
std::uint64_t read_little_endian(std::string_view bytes);

}  // namespace lockstep
