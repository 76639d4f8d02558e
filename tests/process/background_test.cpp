#include "lockstep/process/background.h"

#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>

namespace lockstep::process {
namespace {

bool readable(const Wakeup& wakeup) {
  pollfd poll{.fd = wakeup.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&poll, 1, 0) == 1;
}

TEST(Background, AWakeupLastsUntilCleared) {
  const Wakeup wakeup;
  EXPECT_FALSE(readable(wakeup));
  wakeup.wake();
  wakeup.wake();
  EXPECT_TRUE(readable(wakeup));
  wakeup.clear();
  EXPECT_FALSE(readable(wakeup));
  wakeup.clear();
}

TEST(Background, SignalsFromOutsideGoElsewhere) {
  std::thread([] {
    enter_background_thread("a name that is too long");
    sigset_t blocked;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    EXPECT_TRUE(sigismember(&blocked, SIGINT));
    EXPECT_TRUE(sigismember(&blocked, SIGTERM));
    EXPECT_FALSE(sigismember(&blocked, SIGSEGV));
    char name[16];
    ::pthread_getname_np(::pthread_self(), name, sizeof name);
    EXPECT_STREQ(name, "a name that is ");
  }).join();
}

}  // namespace
}  // namespace lockstep::process
