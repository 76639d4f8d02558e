#include "lockstep/log/proto.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using namespace std::string_literals;

// The first two are the examples of protobuf's own encoding guide.
TEST(Proto, KnownEncodings) {
  EXPECT_EQ(ProtoMessage().integer(1, 150).encoded(), "\x08\x96\x01"s);
  EXPECT_EQ(ProtoMessage().bytes(2, "testing").encoded(), "\x12\x07testing"s);
  EXPECT_EQ(ProtoMessage().message(3, ProtoMessage().integer(1, 150)).encoded(),
            "\x1a\x03\x08\x96\x01"s);
  EXPECT_EQ(ProtoMessage().float32(1, 1.0f).encoded(), "\x0d\x00\x00\x80\x3f"s);
  EXPECT_EQ(ProtoMessage().float64(1, 1.0).encoded(), "\x09\0\0\0\0\0\0\xf0\x3f"s);
}

TEST(Proto, NegativeIntegersTakeTenBytes) {
  EXPECT_EQ(ProtoMessage().integer(1, -1).encoded(),
            "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s);
}

TEST(Proto, FieldNumbersAboveFifteenTakeTwoBytes) {
  EXPECT_EQ(ProtoMessage().integer(16, 0).encoded(), "\x80\x01\x00"s);
}

TEST(Proto, ZeroIsWritten) {
  // A member of a oneof must be written even if it has its default value.
  EXPECT_EQ(ProtoMessage().integer(4, 0).encoded(), "\x20\x00"s);
}

TEST(Proto, MergeAddsTheFields) {
  ProtoMessage message;
  message.integer(1, 1).merge(ProtoMessage().integer(2, 2));
  EXPECT_EQ(message.encoded(), "\x08\x01\x10\x02"s);
}

TEST(Proto, BytesOfAnInteger) {
  std::string bytes;
  append_little_endian(bytes, 0x01020384, 4);
  EXPECT_EQ(bytes, "\x84\x03\x02\x01");
  EXPECT_EQ(read_little_endian(bytes), 0x01020384u);
}

}  // namespace
}  // namespace lockstep
