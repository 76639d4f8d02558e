// Every call of shared memory to the system fails once.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/process/shared_memory.h"
#include "tests/support/io_faults.h"

namespace lockstep::process {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kSize = 1 << 20;

TEST(SharedMemoryFaults, AnErrorHasTheSizeAndTheCause) {
  const auto descriptors = open_descriptors();
  const auto runs = fail_each_call(
      {.plan = {.files = "/memfd:lockstep"},
       .operation =
           [] {
             const SharedMemory memory(kSize);
             std::memset(memory.data(), 1, kSize);
           },
       .check =
           [&](const FaultedRun& run) {
             ASSERT_TRUE(run.struck);
             if (!run.is_harmless()) {
               EXPECT_THAT(run.error, AllOf(HasSubstr("shared memory"), HasSubstr("1048576 bytes"),
                                            HasSubstr(std::strerror(run.fault.error))));
             } else {
               EXPECT_EQ(run.error, "");
             }
             EXPECT_EQ(open_descriptors(), descriptors);
           }});
  EXPECT_GE(runs, 5) << "memfd_create, ftruncate, mmap, fallocate";
}

TEST(SharedMemoryFaults, APartThatCannotBeTakenIsReported) {
  const SharedMemory memory = SharedMemory::reserve(kSize);
  {
    const IoFaults faults({.files = "/memfd:lockstep",
                           .calls = {IoCall::kAllocate},
                           .nth = 1,
                           .fault = {.error = ENOSPC}});
    EXPECT_FALSE(memory.take(0, kSize / 2));
    EXPECT_TRUE(memory.take(0, kSize / 2));
  }
  std::memset(memory.data(), 1, kSize / 2);
}

TEST(SharedMemoryFaults, AHandleThatCannotBeOpenedNamesTheProcess) {
  const SharedMemory memory(kSize);
  memory.data()[7] = std::byte{42};
  const std::string handle = memory.handle();
  const auto descriptors = open_descriptors();
  // It is opened by the path of a descriptor, and mapped from the descriptor.
  for (const std::string files : {"/proc/", "/memfd:lockstep"}) {
    fail_each_call(
        {.plan = {.files = files},
         .operation = [&] { EXPECT_EQ(SharedMemory::open(handle).data()[7], std::byte{42}); },
         .check =
             [&](const FaultedRun& run) {
               EXPECT_THAT(run.error, HasSubstr("shared memory"));
               EXPECT_THAT(run.error, HasSubstr(std::strerror(run.fault.error)));
               EXPECT_EQ(open_descriptors(), descriptors);
             }});
  }
}

}  // namespace
}  // namespace lockstep::process
