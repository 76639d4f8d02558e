#include "lockstep/process/failure.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::process {
namespace {

using namespace std::chrono_literals;

TEST(FailureKind, IsFoundFromTheException) {
  struct OwnConfigError : ConfigError {
    using ConfigError::ConfigError;
  };
  EXPECT_EQ(failure_kind(ConfigError("workers: expected 1 or more")), FailureKind::kConfig);
  EXPECT_EQ(failure_kind(OwnConfigError("workers")), FailureKind::kConfig);
  EXPECT_EQ(failure_kind(std::bad_alloc()), FailureKind::kOutOfMemory);
  for (const char* const text :
       {"[enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory: you "
        "tried "
        "to allocate 8 bytes. Error code 12 (Cannot allocate memory)",
        "DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.",
        "CUDA out of memory. Tried to allocate 2.00 GiB", "CUDA error: out of memory",
        "shared memory: cannot get 800 bytes: Cannot allocate memory"}) {
    EXPECT_EQ(failure_kind(std::runtime_error(text)), FailureKind::kOutOfMemory) << text;
  }
  EXPECT_EQ(failure_kind(DataError("image 7 is broken")), FailureKind::kError);
  EXPECT_EQ(failure_kind(std::logic_error("memory")), FailureKind::kError);
}

TEST(FailureKind, HasANameForFilesAndMessages) {
  EXPECT_EQ(name_of(FailureKind::kError), "error");
  EXPECT_EQ(name_of(FailureKind::kConfig), "wrong option");
  EXPECT_EQ(name_of(FailureKind::kOutOfMemory), "out of memory");
  EXPECT_EQ(name_of(FailureKind::kLost), "lost");
  EXPECT_EQ(name_of(FailureKind::kHang), "hang");
}

TEST(Failure, TheSameExceptionAtTheSameBatchIsARepetition) {
  for (const FailureKind kind : {FailureKind::kError, FailureKind::kOutOfMemory}) {
    const FailurePlace first{.kind = kind, .epoch = 2, .batch = 3};
    EXPECT_TRUE(is_repetition(first, first));
    EXPECT_FALSE(is_repetition(first, {.kind = kind, .epoch = 2, .batch = 4}));
    EXPECT_FALSE(is_repetition(first, {.kind = kind, .epoch = 1, .batch = 3}));
    EXPECT_FALSE(is_repetition(first, {.kind = FailureKind::kLost, .epoch = 2, .batch = 3}));
  }
  for (const FailureKind kind : {FailureKind::kLost, FailureKind::kHang, FailureKind::kConfig}) {
    const FailurePlace first{.kind = kind, .epoch = 2, .batch = 3};
    EXPECT_FALSE(is_repetition(first, first)) << name_of(kind);
  }
}

TEST(Failure, RestartsWaitLongerEachTime) {
  std::vector<std::chrono::milliseconds> waits;
  for (int restart = 1; restart <= 9; ++restart) waits.push_back(restart_backoff(restart));
  EXPECT_THAT(
      waits, testing::ElementsAre(0ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 5000ms, 5000ms));
  EXPECT_EQ(restart_backoff(1000), 5000ms);
}

}  // namespace
}  // namespace lockstep::process
