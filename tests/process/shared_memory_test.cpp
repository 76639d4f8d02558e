#include "lockstep/process/shared_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "tests/support/rank_process.h"

namespace lockstep::process {
namespace {

using ::testing::HasSubstr;

TEST(SharedMemory, IsZeroedAndAsLargeAsWasAsked) {
  const SharedMemory memory(10'000);
  EXPECT_EQ(memory.size(), 10'000U);
  EXPECT_TRUE(std::all_of(memory.data(), memory.data() + memory.size(),
                          [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST(SharedMemory, TakesPagesPartByPart) {
  const auto pages_of = [](const SharedMemory& memory) {
    struct stat status {};
    EXPECT_EQ(::stat(fmt::format("/proc/self/fd/{}",
                                 std::stoi(memory.handle().substr(memory.handle().find(' '))))
                         .c_str(),
                     &status),
              0);
    return status.st_blocks;
  };
  const auto memory = SharedMemory::reserve(64 << 20);
  EXPECT_EQ(memory.size(), 64U << 20);
  EXPECT_EQ(pages_of(memory), 0);
  ASSERT_TRUE(memory.take(1 << 20, 5000));
  std::memset(memory.data() + (1 << 20), 1, 5000);
  EXPECT_GT(pages_of(memory), 0);
  EXPECT_LT(pages_of(memory), 64 << 10) << "units of 512 bytes: much less than all";
  EXPECT_THROW(SharedMemory::reserve(std::size_t{1} << 60), CommError);
}

TEST(SharedMemory, AForkSeesTheSame) {
  const SharedMemory memory(64);
  RankProcess other([&] {
    std::memcpy(memory.data(), "hello", 6);
    return 0;
  });
  EXPECT_EQ(other.wait(), 0);
  EXPECT_STREQ(reinterpret_cast<const char*>(memory.data()), "hello");
}

TEST(SharedMemory, AProcessThatWasStartedBeforeOpensItsHandle) {
  const NumberPipe numbers;
  RankProcess other([&] {
    const SharedMemory memory(1 << 20);
    std::memcpy(memory.data(), "from the other", 15);
    const std::string handle = memory.handle();
    for (const char letter : handle) numbers.put(letter);
    numbers.put(0);
    return eventually([&] { return memory.data()[100] == std::byte{42}; }) ? 0 : 1;
  });
  std::string handle;
  for (int letter = numbers.take(); letter != 0; letter = numbers.take()) {
    handle += static_cast<char>(letter);
  }
  const SharedMemory memory = SharedMemory::open(handle);
  EXPECT_EQ(memory.size(), std::size_t{1} << 20);
  EXPECT_STREQ(reinterpret_cast<const char*>(memory.data()), "from the other");
  memory.data()[100] = std::byte{42};
  EXPECT_EQ(other.wait(), 0);
  // The mapping stays after the other process has ended.
  EXPECT_EQ(memory.data()[100], std::byte{42});
}

TEST(SharedMemory, AHandleOfSomethingElseIsRefused) {
  std::optional<SharedMemory> memory(4096);
  const std::string handle = memory->handle();
  memory.reset();
  const SharedMemory another(8192);  // most likely with the same descriptor
  EXPECT_THAT(message_of<CommError>([&] { SharedMemory::open(handle); }),
              HasSubstr("shared memory of process " + std::to_string(::getpid())));
  EXPECT_THAT(message_of<CommError>([&] { SharedMemory::open("1 2 x"); }),
              HasSubstr("expected a handle, got '1 2 x'"));
  EXPECT_THAT(message_of<CommError>([&] { SharedMemory::open("999999999 3 64 1"); }),
              HasSubstr("No such file"));
}

TEST(SharedMemory, AClosedHandleCannotBeAskedFor) {
  SharedMemory memory(64);
  const std::string handle = memory.handle();
  memory.close_handle();
  EXPECT_THAT(message_of<CommError>([&] { memory.handle(); }), HasSubstr("closed"));
  EXPECT_NE(message_of<CommError>([&] { SharedMemory::open(handle); }), "");
  memory.data()[0] = std::byte{1};
}

TEST(SharedMemory, MovesWithItsMapping) {
  SharedMemory first(64);
  first.data()[0] = std::byte{7};
  SharedMemory second(std::move(first));
  EXPECT_EQ(second.data()[0], std::byte{7});
  SharedMemory third(32);
  third = std::move(second);
  EXPECT_EQ(third.size(), 64U);
  EXPECT_EQ(third.data()[0], std::byte{7});
}

TEST(SharedMemory, TooMuchIsRefusedWithTheSize) {
  EXPECT_THAT(message_of<CommError>([] { SharedMemory(std::size_t{1} << 62); }),
              HasSubstr("4611686018427387904 bytes"));
  EXPECT_THAT(message_of<CommError>([] { SharedMemory(std::size_t{1} << 46); }),
              HasSubstr("70368744177664 bytes: Cannot allocate memory"));
}

// The descriptor in a handle, which is "pid descriptor size inode".
int descriptor_of(const SharedMemory& memory) {
  const std::string handle = memory.handle();
  return std::stoi(handle.substr(handle.find(' ') + 1));
}

// If a page were allocated at the first write, a lack of memory would be a SIGBUS.
TEST(SharedMemory, HasItsPagesFromTheStart) {
  const SharedMemory memory(std::size_t{3} << 20);
  struct stat status {};
  ASSERT_EQ(::fstat(descriptor_of(memory), &status), 0);
  EXPECT_GE(status.st_blocks * 512, 3 << 20);
}

TEST(SharedMemory, CannotBeExecuted) {
  constexpr int kSealExec = 0x0020;  // F_SEAL_EXEC, since Linux 6.3
  const SharedMemory memory(64);
  const int seals = ::fcntl(descriptor_of(memory), F_GET_SEALS);
  struct stat status {};
  ASSERT_EQ(::fstat(descriptor_of(memory), &status), 0);
  utsname kernel{};
  ASSERT_EQ(::uname(&kernel), 0);
  int major = 0;
  int minor = 0;
  ASSERT_EQ(std::sscanf(kernel.release, "%d.%d", &major, &minor), 2);
  if (std::pair(major, minor) < std::pair(6, 3)) GTEST_SKIP() << "the kernel has no such seal";
  EXPECT_EQ(seals & kSealExec, kSealExec);
  EXPECT_EQ(status.st_mode & 0111, 0U);
}

TEST(SharedMemory, IsMappedFromItsDescriptor) {
  const SharedMemory memory(5000);
  std::memcpy(memory.data(), "hello", 6);
  const auto adopted = SharedMemory::adopt(FileDescriptor(::dup(memory.descriptor().get())));
  EXPECT_EQ(adopted.size(), 5000U);
  EXPECT_STREQ(reinterpret_cast<const char*>(adopted.data()), "hello");
  adopted.data()[4999] = std::byte{7};
  EXPECT_EQ(memory.data()[4999], std::byte{7});
  EXPECT_THAT(message_of<CommError>([] { SharedMemory::adopt(FileDescriptor()); }),
              HasSubstr("shared memory of another process"));
}

}  // namespace
}  // namespace lockstep::process
