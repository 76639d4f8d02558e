#include "lockstep/optim/torch_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

StateDict kinds(double value) {
  return {{"step", steps_as_tensor(3)}, {"exp_avg", torch::full({2}, value)}};
}

TorchState two_groups() {
  return {.groups = {{.names = {"0.weight", "1.weight"},
                      .options = {{"lr", 0.1}, {"beta1", 0.9}, {"beta2", 0.99}}},
                     {.names = {"0.bias"}, .options = {{"lr", 0.2}}}},
          .parameters = {{"0.bias", kinds(1)}, {"1.weight", kinds(2)}}};
}

TEST(TorchLayout, NumbersCountThroughTheGroups) {
  const StateDict saved = to_torch_layout(two_groups());
  ASSERT_TRUE(has_torch_layout(saved));
  const auto groups = saved.get<StateList>("param_groups");
  ASSERT_EQ(groups.size(), 2u);
  const auto first = *groups[0].get_if<StateDict>(), second = *groups[1].get_if<StateDict>();
  EXPECT_THAT(first.keys(), ElementsAre("lr", "betas", "params", "param_names"));
  EXPECT_EQ(*first.get<StateList>("betas")[1].get_if<double>(), 0.99);
  EXPECT_EQ(*first.get<StateList>("params")[1].get_if<std::int64_t>(), 1);
  EXPECT_EQ(*second.get<StateList>("params")[0].get_if<std::int64_t>(), 2);
  // 0.weight has no state. The numbers are in order.
  EXPECT_THAT(saved.get<StateDict>("state").keys(), ElementsAre("1", "2"));
}

TEST(TorchLayout, ComesBackByName) {
  const TorchState again = from_torch_layout(to_torch_layout(two_groups()), {.optimizer = "X"});
  ASSERT_EQ(again.groups.size(), 2u);
  EXPECT_THAT(again.groups[0].names, ElementsAre("0.weight", "1.weight"));
  EXPECT_EQ(again.groups[0].options.get<double>("beta2"), 0.99);
  EXPECT_EQ(again.groups[1].options.get<double>("lr"), 0.2);
  ASSERT_EQ(again.parameters.size(), 2u);
  EXPECT_EQ(again.parameters[0].first, "1.weight");
  EXPECT_TRUE(again.parameters[0].second.get<torch::Tensor>("exp_avg").equal(torch::full({2}, 2)));
}

// As Python writes it: groups of these sizes, without names.
StateDict without_names(const std::vector<std::int64_t>& sizes) {
  StateList groups;
  StateDict states;
  std::int64_t number = 0;
  for (const std::int64_t size : sizes) {
    StateList params;
    for (std::int64_t i = 0; i < size; ++i, ++number) {
      params.emplace_back(number);
      states.set(std::to_string(number), kinds(static_cast<double>(number)));
    }
    groups.emplace_back(StateDict{{"lr", 0.1}, {"params", params}});
  }
  return {{"state", states}, {"param_groups", groups}};
}

std::vector<std::string> names_in(const StateDict& state, const TorchNames& names) {
  std::vector<std::string> found;
  for (const auto& [name, kinds] : from_torch_layout(state, names).parameters) {
    found.push_back(name);
  }
  return found;
}

TEST(TorchLayout, WithoutNamesTheOrderDecides) {
  const TorchNames names{.optimizer = "Adam",
                         .groups = {{.names = {"a", "c"}}, {.names = {"b"}}},
                         .all = {"a", "b", "c"},
                         .trainable = {"b", "c"}};
  EXPECT_THAT(names_in(without_names({2, 1}), names), ElementsAre("a", "c", "b"));
  EXPECT_THAT(names_in(without_names({3}), names), ElementsAre("a", "b", "c"));
  EXPECT_THAT(names_in(without_names({2}), names), ElementsAre("b", "c"));
  EXPECT_THAT(message_of<CheckpointError>([&] {
                names_in(without_names({1, 2}), names);
              }),
              HasSubstr("optimizer Adam: its state has groups of 1, 2 parameters without names, "
                        "this run has groups of 2, 1"));
}

TEST(TorchLayout, TheNameOfAWrapperIsRemoved) {
  TorchState wrapped = two_groups();
  for (auto& group : wrapped.groups) {
    for (auto& name : group.names) name = "module." + name;
  }
  for (auto& [name, kinds] : wrapped.parameters) name = "module." + name;
  EXPECT_THAT(names_in(to_torch_layout(wrapped), {.optimizer = "X"}),
              ElementsAre("1.weight", "0.bias"));
}

TEST(TorchLayout, StepsAreAnyKindOfNumber) {
  EXPECT_EQ(steps_from(std::int64_t{5}), 5);
  EXPECT_EQ(steps_from(5.0), 5);
  EXPECT_EQ(steps_from(torch::full({1}, 5)), 5);
  EXPECT_EQ(steps_from(steps_as_tensor(7)), 7);
  EXPECT_THAT(message_of<CheckpointError>([] { steps_from("5"); }),
              HasSubstr("step: expected a number of steps, found a string"));
  EXPECT_THROW(steps_from(torch::zeros({2})), CheckpointError);
  EXPECT_THROW(steps_from(std::numeric_limits<double>::quiet_NaN()), CheckpointError);
}

TEST(TorchLayout, AnotherLayoutIsRefused) {
  const auto refusal = [](const StateDict& state) {
    return message_of<CheckpointError>([&] { from_torch_layout(state, {.optimizer = "SGD"}); });
  };
  EXPECT_THAT(refusal({{"state", StateDict()}, {"param_groups", StateList{1}}}),
              HasSubstr("optimizer SGD: param_groups: expected dictionaries, found an integer"));
  EXPECT_THAT(refusal({{"state", StateDict()}, {"param_groups", StateList{}}}),
              HasSubstr("expected at least one group"));
  StateDict saved = to_torch_layout(two_groups());
  saved.set("state", StateDict{{"1", 5}});
  EXPECT_THAT(refusal(saved), HasSubstr("state: expected dictionaries"));
}

}  // namespace
}  // namespace lockstep::optim
