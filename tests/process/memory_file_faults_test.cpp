// Every call of the memory for restarts to the system fails once.
#include <cstring>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/process/memory_file.h"
#include "tests/support/io_faults.h"

namespace lockstep::process {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const IoFaultPlan kMemoryPlan{.files = "/memfd:lockstep-memory"};

void expect_named_or_harmless(const FaultedRun& run) {
  ASSERT_TRUE(run.struck);
  if (run.is_harmless()) {
    EXPECT_EQ(run.error, "");
  } else {
    EXPECT_THAT(run.error,
                AllOf(HasSubstr("memory for restarts"), HasSubstr(std::strerror(run.fault.error))));
  }
}

TEST(MemoryFileFaults, MemoryThatCannotBeMadeIsNoLeak) {
  const auto descriptors = open_descriptors();
  const auto runs = fail_each_call(
      {.plan = kMemoryPlan,
       .operation = [] { const MemoryFile memory; },
       .check =
           [&](const FaultedRun& run) {
             expect_named_or_harmless(run);
             EXPECT_EQ(open_descriptors(), descriptors);
           },
       .faults =
           [](IoCall call) {
             // The launcher has no handlers of signals at this time.
             auto faults = faults_of(call);
             std::erase_if(faults, [](const IoFault& fault) { return fault.error == EINTR; });
             return faults;
           }});
  EXPECT_GE(runs, 4) << "memfd_create, fallocate, mmap";

  const MemoryFile memory;
  const Environment environment = {{MemoryFile::kVariable, std::to_string(memory.descriptor())}};
  const auto before = open_descriptors();
  fail_each_call({.plan = kMemoryPlan,
                  .operation = [&] { MemoryFile::inherited(environment); },
                  .check =
                      [&](const FaultedRun& run) {
                        expect_named_or_harmless(run);
                        EXPECT_EQ(open_descriptors(), before);
                      }});
}

// The first piece fits into the place of the point before the last one. For the second piece the
// place moves, with the bytes of the first one.
TEST(MemoryFileFaults, APointThatCannotBeStoredLeavesTheOneBefore) {
  const std::string first(3'000, 'a'), second(100'000, 'b');
  std::optional<MemoryFile> memory;
  const auto runs =
      fail_each_call({.plan = kMemoryPlan,
                      .prepare =
                          [&] {
                            memory.emplace();
                            memory->write(0, 1, "one");
                            memory->write(0, 2, "two");
                          },
                      .operation =
                          [&] {
                            memory->write(0, 3, [&](const WriteBytes& write) {
                              write(first);
                              write(second);
                            });
                          },
                      .check =
                          [&](const FaultedRun& run) {
                            // That the pages of an older place stay does no harm.
                            if (run.call.call != IoCall::kAllocate) expect_named_or_harmless(run);
                            const bool stored = run.error.empty();
                            EXPECT_EQ(memory->read(0)->sequence, stored ? 3u : 2u);
                            EXPECT_EQ(memory->read(0)->bytes, stored ? first + second : "two");
                            memory->write(0, 4, second);
                            EXPECT_EQ(memory->read(0)->bytes, second);
                          }});
  EXPECT_GE(runs, 10);
}

TEST(MemoryFileFaults, APointThatCannotBeReadIsNotHalfAPoint) {
  MemoryFile memory;
  memory.write(0, 1, "one");
  memory.write(0, 2, "two");
  std::optional<StoredPoint> point;
  fail_each_call({.plan = kMemoryPlan,
                  .operation = [&] { point = memory.read(0); },
                  .check =
                      [&](const FaultedRun& run) {
                        EXPECT_EQ(run.error, "");
                        ASSERT_TRUE(point);
                        EXPECT_EQ(point->bytes, run.is_harmless() ? "two" : "one");
                      }});
}

}  // namespace
}  // namespace lockstep::process
