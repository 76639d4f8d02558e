#include "lockstep/log/proto_reader.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/log/proto.h"

namespace lockstep {
namespace {

TEST(ProtoReader, ReadsWhatIsWritten) {
  ProtoMessage message;
  message.integer(1, -5).float32(2, 0.5F).float64(300, -0.25).bytes(4, "text");
  ProtoReader reader(message.encoded());
  const auto integer = reader.next();
  ASSERT_TRUE(integer);
  EXPECT_EQ(integer->number, 1);
  EXPECT_EQ(integer->integer(), -5);
  EXPECT_EQ(reader.next()->float32(), 0.5F);
  const auto number = reader.next();
  EXPECT_EQ(number->number, 300);
  EXPECT_EQ(number->float64(), -0.25);
  const auto text = reader.next();
  EXPECT_TRUE(text->is_bytes);
  EXPECT_EQ(text->bytes, "text");
  EXPECT_FALSE(reader.next());
}

TEST(ProtoReader, DamagedMessagesAreRefused) {
  const auto read_all = [](std::string_view bytes) {
    ProtoReader reader(bytes);
    while (reader.next()) {
    }
  };
  const std::string whole = ProtoMessage().bytes(4, "text").encoded();
  for (std::size_t size = 1; size < whole.size(); ++size) {
    EXPECT_THROW(read_all(std::string_view(whole).substr(0, size)), DataError) << size;
  }
  EXPECT_THROW(read_all("\x0b"), DataError);  // wire type 3
  EXPECT_THROW(read_all(std::string(1, '\x08') + std::string(11, '\xff')), DataError);
}

}  // namespace
}  // namespace lockstep
