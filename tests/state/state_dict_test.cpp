#include "lockstep/state/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

StateDict one_of_each() {
  return {{"flag", true},
          {"count", 3},
          {"rate", 0.5},
          {"name", "adam"},
          {"weight", torch::ones({2})},
          {"list", StateList{1, "two"}},
          {"inner", StateDict{{"step", 7}}},
          {"nothing", StateValue()}};
}

TEST(StateDict, KeepsTheOrderOfItsKeys) {
  StateDict state = {{"z", 1}, {"a", 2}};
  state.set("m", 3);
  state.set("z", 4);
  EXPECT_THAT(state.keys(), ElementsAre("z", "a", "m"));
  EXPECT_EQ(state.get<std::int64_t>("z"), 4);
  std::vector<std::string> iterated;
  for (const auto& [key, value] : state) iterated.push_back(key);
  EXPECT_EQ(iterated, state.keys());
}

TEST(StateDict, HoldsAKeyOnce) {
  const StateDict state = {{"a", 1}, {"a", 2}};
  EXPECT_EQ(state.size(), 1u);
  EXPECT_EQ(state.get<int>("a"), 2);
}

TEST(StateDict, GivesBackWhatWasSet) {
  const StateDict state = one_of_each();
  EXPECT_TRUE(state.get<bool>("flag"));
  EXPECT_EQ(state.get<std::int64_t>("count"), 3);
  EXPECT_EQ(state.get<int>("count"), 3);
  EXPECT_EQ(state.get<double>("rate"), 0.5);
  EXPECT_EQ(state.get<double>("count"), 3.0);
  EXPECT_EQ(state.get<std::string>("name"), "adam");
  EXPECT_TRUE(torch::equal(state.get<torch::Tensor>("weight"), torch::ones({2})));
  EXPECT_EQ(*state.get<StateList>("list").at(0).get_if<std::int64_t>(), 1);
  EXPECT_EQ(*state.get<StateList>("list").at(1).get_if<std::string>(), "two");
  EXPECT_EQ(state.get<StateDict>("inner").get<int>("step"), 7);
}

TEST(StateDict, FallsBackOnlyWhereAKeyIsMissing) {
  const StateDict state = one_of_each();
  EXPECT_EQ(state.get_or<double>("rate", 0.1), 0.5);
  EXPECT_EQ(state.get_or<double>("momentum", 0.1), 0.1);
  EXPECT_THROW(state.get_or<double>("name", 0.1), CheckpointError);
}

TEST(StateDict, NamesTheKeyAndBothTypes) {
  const StateDict state = one_of_each();
  EXPECT_THAT([&] { state.get<torch::Tensor>("count"); },
              ThrowsMessage<CheckpointError>("count: expected a tensor, found an integer"));
  EXPECT_THAT([&] { state.get<std::int64_t>("rate"); },
              ThrowsMessage<CheckpointError>("rate: expected an integer, found a number"));
  EXPECT_THAT([&] { state.get<bool>("count"); },
              ThrowsMessage<CheckpointError>("count: expected a boolean, found an integer"));
  EXPECT_THAT([&] { state.get<double>("flag"); },
              ThrowsMessage<CheckpointError>("flag: expected a number, found a boolean"));
  EXPECT_THAT([&] { state.get<std::string>("list"); },
              ThrowsMessage<CheckpointError>("list: expected a string, found a list"));
  EXPECT_THAT([&] { state.get<StateList>("inner"); },
              ThrowsMessage<CheckpointError>("inner: expected a list, found a dictionary"));
  EXPECT_THAT([&] { state.get<StateDict>("nothing"); },
              ThrowsMessage<CheckpointError>("nothing: expected a dictionary, found nothing"));
}

TEST(StateDict, SuggestsTheNearestKey) {
  EXPECT_THAT([] { one_of_each().at("wieght"); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("no 'wieght' in this state; did you mean 'weight'?")));
}

TEST(StateDict, RefusesAnIntegerThatDoesNotFit) {
  const StateDict state = {{"seed", std::int64_t{1} << 40}};
  EXPECT_EQ(state.get<std::int64_t>("seed"), std::int64_t{1} << 40);
  EXPECT_THAT([&] { state.get<int>("seed"); },
              ThrowsMessage<CheckpointError>(HasSubstr("seed: expected an integer of 32 bits")));
}

TEST(StateDict, CopiesAreApart) {
  StateDict state = one_of_each();
  const StateDict copy = state;
  state.set("inner", StateDict{{"step", 8}});
  state.set("count", 4);
  EXPECT_EQ(copy.get<StateDict>("inner").get<int>("step"), 7);
  EXPECT_EQ(copy.get<int>("count"), 3);
}

TEST(StateDict, OfEntriesTheLastOfAKeyCounts) {
  std::vector<StateDict::Entry> entries = {{"a", 1}, {"b", 2}, {"a", 3}};
  StateDict dict(std::move(entries));
  EXPECT_EQ(dict.keys(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(dict.get<int>("a"), 3);
  dict.erase("a");
  dict.erase("not there");
  EXPECT_EQ(dict.keys(), std::vector<std::string>{"b"});
}

}  // namespace
}  // namespace lockstep
