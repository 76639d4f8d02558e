#include "lockstep/launcher/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/rank_process.h"

namespace lockstep::launcher {
namespace {

using namespace std::chrono_literals;

TEST(Signals, AWaitEndsWithTheTimeOrWithASignal) {
  const Signals signals;
  EXPECT_EQ(signals.take(), 0);
  EXPECT_EQ(signals.wait(1ms), 0);
  ::kill(::getpid(), SIGTERM);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(signals.wait(20s), SIGTERM);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  EXPECT_EQ(signals.take(), 0);
}

TEST(Signals, AfterwardsASignalHasItsUsualEffect) {
  RankProcess process([] {
    { const Signals signals; }
    ::kill(::getpid(), SIGTERM);
    return 0;
  });
  EXPECT_EQ(process.wait(), -SIGTERM);
}

}  // namespace
}  // namespace lockstep::launcher
