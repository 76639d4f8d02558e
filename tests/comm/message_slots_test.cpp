#include "lockstep/comm/message_slots.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/ranks.h"

namespace lockstep::comm {
namespace {

TEST(MessageSlots, DoNotOverlap) {
  const auto memory = std::make_shared<process::HostGroupMemory>(3);
  const process::HostGroup host_group(memory, {});
  const MessageSlots slots(host_group);
  for (int turn = 0; turn < 2; ++turn) {
    for (int rank = 0; rank < 3; ++rank) {
      std::memset(slots.slot(rank, turn), 1 + 2 * rank + turn, MessageSlots::kSlotBytes);
    }
    std::memset(slots.results(turn), 7 + turn, MessageSlots::kSlotBytes);
  }
  for (int turn = 0; turn < 2; ++turn) {
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(std::to_integer<int>(slots.slot(rank, turn)[0]), 1 + 2 * rank + turn);
      EXPECT_EQ(std::to_integer<int>(slots.slot(rank, turn)[MessageSlots::kSlotBytes - 1]),
                1 + 2 * rank + turn);
    }
    EXPECT_EQ(std::to_integer<int>(slots.results(turn)[MessageSlots::kSlotBytes - 1]), 7 + turn);
  }
  EXPECT_EQ(host_group.state(1), process::MemberState::kEmpty);
  EXPECT_FALSE(host_group.failure());
  EXPECT_EQ(memory->memory.data() + memory->memory.size(),
            slots.results(1) + MessageSlots::kSlotBytes);
}

class MessageSlotRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(MessageSlots, MessageSlotRanks, ::testing::Values(1, 2, 3, 4, 8));

// If the slots did not alternate correctly, a rank that is ahead would overwrite what other ranks
// have not read yet.
TEST_P(MessageSlotRanks, TwoInTurnsNeedOneMeetingPerExchange) {
  run_ranks(GetParam(), [](process::HostGroup& host_group) {
    const MessageSlots slots(host_group);
    std::minstd_rand random(static_cast<unsigned>(host_group.rank()) + 1);
    for (std::uint64_t round = 0; round < 1000; ++round) {
      const int turn = static_cast<int>(round & 1);
      const auto pattern = [&](int rank) { return round * 16 + static_cast<std::uint64_t>(rank); };
      auto* own = reinterpret_cast<std::uint64_t*>(slots.slot(host_group.rank(), turn));
      std::fill(own, own + 64, pattern(host_group.rank()));
      if (random() % 16 == 0) std::this_thread::yield();
      host_group.meet({.operation = process::Operation::kGather});
      for (int rank = 0; rank < host_group.size(); ++rank) {
        const auto* others = reinterpret_cast<const std::uint64_t*>(slots.slot(rank, turn));
        for (int i = 0; i < 64; ++i) ASSERT_EQ(others[i], pattern(rank)) << "round " << round;
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::comm
