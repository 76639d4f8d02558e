// As much of protobuf's wire format as TensorBoard's events need: fields are written one after the
// other, each with its number. Encoding the few messages by hand keeps libprotobuf, of which
// LibTorch carries a copy of its own, out of users' programs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

class ProtoMessage {
 public:
  // int32, int64, bool and enums.
  ProtoMessage& integer(int field, std::int64_t value);
  ProtoMessage& float32(int field, float value);
  ProtoMessage& float64(int field, double value);
  // string and bytes.
  ProtoMessage& bytes(int field, std::string_view value);
  ProtoMessage& message(int field, const ProtoMessage& value);
  // All fields of another message, as if they had been added here.
  ProtoMessage& merge(const ProtoMessage& other);

  const std::string& encoded() const { return encoded_; }

 private:
  std::string encoded_;
};

// The low `count` bytes, the lowest first.
void append_little_endian(std::string& out, std::uint64_t value, int count);

}  // namespace lockstep
