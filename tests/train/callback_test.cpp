#include "lockstep/train/callback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

struct Ordered : Callback {
  Ordered(Order place, std::string text) : place_(place), text_(std::move(text)) {}
  CallbackTraits traits() const override { return {.order = place_}; }
  std::string name() const override { return text_; }
  Order place_;
  std::string text_;
};

TEST(Callbacks, AreSortedByOrderAndTiesStay) {
  const Callbacks callbacks = {Ordered(Order::kExternal, "c"), Ordered(Order::kMetric, "a"),
                               Ordered(Order::kExternal, "d"), Ordered(Order::kScheduler, "b")};
  std::vector<std::string> names;
  for (const auto& callback : callbacks.sorted()) names.push_back(callback->name());
  EXPECT_THAT(names, ElementsAre("a", "b", "c", "d"));
}

TEST(Callbacks, ASharedOneStaysTheCallers) {
  auto mine = std::make_shared<toy::Hooks>();
  const Callbacks callbacks = {mine};
  EXPECT_EQ(callbacks.begin()->get(), mine.get());
  EXPECT_THROW(Callbacks({std::shared_ptr<toy::Hooks>()}), ConfigError);
}

// A callback that says nothing may do anything.
TEST(Callback, TraitsAllowEverythingByDefault) {
  struct Silent : Callback {};
  const CallbackTraits traits = Silent().traits();
  EXPECT_EQ(traits.order, Order::kExternal);
  EXPECT_EQ(traits.ranks, Ranks::kAll);
  EXPECT_TRUE(traits.uses_gradients);
  EXPECT_FALSE(traits.needs_training);
  EXPECT_EQ(traits.metric_names, std::nullopt);
}

TEST(Callback, IsNamedByItsType) {
  EXPECT_EQ(toy::Hooks().name(), "Hooks");
}

TEST(Notify, EveryEndHookRunsEvenWhereAnotherThrew) {
  std::vector<std::string> calls;
  auto first = std::make_shared<toy::Hooks>();
  first->epoch_end = [&](State&) {
    calls.push_back("first");
    throw Error("first failed");
  };
  auto second = std::make_shared<toy::Hooks>();
  second->epoch_end = [&](State&) {
    calls.push_back("second");
    throw Error("second failed");
  };
  State state;
  EXPECT_EQ(toy::error_of([&] {
              notify_end({first, second}, &Callback::on_epoch_end, state);
            }),
            "first failed");
  EXPECT_THAT(calls, ElementsAre("first", "second"));
}

TEST(Notify, AStartHookThatThrowsIsTheLast) {
  bool reached = false;
  auto first = std::make_shared<toy::Hooks>();
  first->epoch_start = [](State&) { throw Error("no"); };
  auto second = std::make_shared<toy::Hooks>();
  second->epoch_start = [&](State&) { reached = true; };
  State state;
  EXPECT_THROW(notify_all({first, second}, &Callback::on_epoch_start, state), Error);
  EXPECT_FALSE(reached);
}

}  // namespace
}  // namespace lockstep
