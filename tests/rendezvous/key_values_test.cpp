#include "lockstep/rendezvous/key_values.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/support/rank_process.h"

namespace lockstep::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Waiter = KeyValues::Waiter;

TEST(KeyValues, KeepWhatWasSetLast) {
  KeyValues values;
  EXPECT_EQ(values.find("a"), nullptr);
  values.set("a", "1");
  values.set("a", "2");
  EXPECT_EQ(*values.find("a"), "2");
  EXPECT_EQ(values.size(), 1u);
  EXPECT_TRUE(values.erase("a"));
  EXPECT_FALSE(values.erase("a"));
  EXPECT_EQ(values.size(), 0u);
}

TEST(KeyValues, WakeEachWaiterOnce) {
  KeyValues values;
  const Waiter first{.connection = 1, .request = 1}, second{.connection = 2, .request = 1};
  values.wait("a", first);
  values.wait("a", second);
  values.wait("b", {.connection = 1, .request = 2});
  EXPECT_THAT(values.set("a", ""), ElementsAre(first, second));
  EXPECT_THAT(values.set("a", ""), IsEmpty());
}

TEST(KeyValues, ForgetCancelledWaiters) {
  KeyValues values;
  const Waiter kept{.connection = 2, .request = 1};
  values.wait("a", {.connection = 1, .request = 1});
  values.wait("a", {.connection = 1, .request = 2});
  values.wait("a", {.connection = 2, .request = 2});
  values.wait("a", kept);
  values.cancel({.connection = 2, .request = 2});
  values.cancel_all(1);
  EXPECT_THAT(values.set("a", ""), ElementsAre(kept));
}

TEST(KeyValues, SumsAreOfNumbers) {
  KeyValues values;
  EXPECT_EQ(values.sum("n", -3), -3);
  values.set("n", "40");
  EXPECT_EQ(values.sum("n", 2), 42);
  values.set("n", "4x");
  EXPECT_THAT(message_of<CommError>([&] { values.sum("n", 2); }),
              AllOf(HasSubstr("key 'n'"), HasSubstr("'4x'")));
  values.set("n", std::to_string(std::numeric_limits<std::int64_t>::max()));
  EXPECT_THROW(values.sum("n", 1), CommError);
}

}  // namespace
}  // namespace lockstep::rendezvous
