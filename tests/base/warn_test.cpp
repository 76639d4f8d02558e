#include "lockstep/base/warn.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;

// Collects warnings. The destructor restores the previous handler.
class Collector {
 public:
  Collector()
      : previous_(set_warning_handler([this](const std::string& m) { messages.push_back(m); })) {}
  ~Collector() { set_warning_handler(std::move(previous_)); }

  std::vector<std::string> messages;

 private:
  WarningHandler previous_;
};

TEST(Warn, GoesToTheHandler) {
  Collector collector;
  warn("a");
  warn("a");
  EXPECT_THAT(collector.messages, ElementsAre("a", "a"));
}

TEST(Warn, GoesToStandardErrorWithoutOne) {
  testing::internal::CaptureStderr();
  warn("the disk is nearly full");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "lockstep: warning: the disk is nearly full\n");
}

TEST(Warn, HandlersNest) {
  Collector outer;
  {
    Collector inner;
    warn("inside");
    EXPECT_THAT(inner.messages, ElementsAre("inside"));
  }
  warn("outside");
  EXPECT_THAT(outer.messages, ElementsAre("outside"));
}

TEST(Warn, AHandlerMayWarnItself) {
  Collector outer;
  set_warning_handler([](const std::string& message) {
    set_warning_handler({});
    warn("again: " + message);
  });
  testing::internal::CaptureStderr();
  warn("a");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "lockstep: warning: again: a\n");
}

TEST(Warn, CannotSteerATerminal) {
  Collector collector;
  warn("key \x1b]0;title\x07");
  EXPECT_THAT(collector.messages, ElementsAre("key \\x1b]0;title\\x07"));
}

TEST(WarnOnce, ShowsEachMessageOnce) {
  Collector collector;
  for (int i = 0; i < 3; ++i) warn_once("slow BLAS");
  warn_once("few cores");
  EXPECT_THAT(collector.messages, ElementsAre("slow BLAS", "few cores"));
}

}  // namespace
}  // namespace lockstep
