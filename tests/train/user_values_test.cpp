#include "lockstep/train/user_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Point {
  int x = 0;
};

TEST(UserValues, HoldsAnyCopyableType) {
  UserValues values;
  values.set("ema", 0.5);
  values.set("n", 3);
  values.set("seen", std::size_t{7});
  values.set("on", true);
  values.set("name", "first");
  values.set("weights", torch::ones({2}));
  values.set("point", Point{4});
  EXPECT_EQ(values.get<double>("ema"), 0.5);
  EXPECT_EQ(values.get<int>("n"), 3);
  EXPECT_EQ(values.get<double>("n"), 3.0) << "an integer is a number, too";
  EXPECT_EQ(values.get<std::size_t>("seen"), 7u);
  EXPECT_TRUE(values.get<bool>("on"));
  EXPECT_EQ(values.get<std::string>("name"), "first");
  EXPECT_EQ(values.get<torch::Tensor>("weights").sum().item<float>(), 2);
  EXPECT_EQ(values.get<Point>("point").x, 4);
  EXPECT_EQ(values.get_or<double>("other", 1.5), 1.5);
  EXPECT_EQ(values.get_or<Point>("point", Point{9}).x, 4);
  values.set("point", 1);
  EXPECT_EQ(values.get<int>("point"), 1) << "a value of another type replaces it";
  values.set("n", Point{5});
  EXPECT_EQ(values.get<Point>("n").x, 5);
  values.erase("n");
  values.erase("ema");
  EXPECT_FALSE(values.contains("n"));
  EXPECT_FALSE(values.contains("ema"));
  EXPECT_TRUE(values.contains("name"));
}

TEST(UserValues, ErrorsNameKeysAndTypes) {
  UserValues values;
  values.set("ema", 0.5);
  values.set("point", Point{});
  const auto error = [&]<typename T>(const char* key, T*) {
    return toy::error_of([&] { values.get<T>(key); });
  };
  EXPECT_THAT(error("emma", static_cast<double*>(nullptr)),
              AllOf(HasSubstr("no 'emma'"), HasSubstr("did you mean 'ema'?")));
  EXPECT_EQ(error("ema", static_cast<std::string*>(nullptr)),
            fmt::format("state.user: 'ema' is {}, and get() asks for {}", StateValue(0.5).kind(),
                        StateValue("").kind()));
  EXPECT_THAT(error("ema", static_cast<Point*>(nullptr)),
              AllOf(HasSubstr(StateValue(0.5).kind()), HasSubstr("Point")));
  EXPECT_THAT(error("point", static_cast<double*>(nullptr)), HasSubstr("Point"));
  EXPECT_THAT(error("point", static_cast<std::vector<int>*>(nullptr)),
              AllOf(HasSubstr("Point"), HasSubstr("vector<int")));
  EXPECT_THAT(error("pint", static_cast<Point*>(nullptr)), HasSubstr("a checkpoint cannot hold"));
  values.set("n", 300);
  EXPECT_THAT(error("n", static_cast<std::int8_t*>(nullptr)), HasSubstr("300"));
  EXPECT_THAT(toy::error_of([&] { values.set("n", ~std::uint64_t{0}); }), HasSubstr("'n'"));
}

// A run that goes on in memory must not see what happened to a tensor after the state was taken.
TEST(UserValues, AStateSharesNoTensorWithTheRun) {
  UserValues values;
  const auto one = [&](const StateDict& state) { return state.get<torch::Tensor>("one"); };
  values.set("one", torch::ones({2}));
  values.set("inside", StateDict{{"one", torch::ones({2})}});
  values.set("list", StateList{torch::ones({2})});
  values.set("none", torch::Tensor());
  const auto change = [&](UserValues& of, double by) {
    of.get<torch::Tensor>("one").add_(by);
    one(of.get<StateDict>("inside")).add_(by);
    torch::Tensor(*of.get<StateList>("list")[0].get_if<torch::Tensor>()).add_(by);
  };
  const auto expect_ones = [&](const StateDict& state, const char* why) {
    const auto ones = torch::ones({2});
    EXPECT_TRUE(one(state).equal(ones)) << why;
    EXPECT_TRUE(one(state.get<StateDict>("inside")).equal(ones)) << why;
    EXPECT_TRUE(state.get<StateList>("list")[0].get_if<torch::Tensor>()->equal(ones)) << why;
  };
  const StateDict state = values.state();
  change(values, 1);
  expect_ones(state, "after state()");
  UserValues again;
  again.load_state(state);
  change(again, 5);
  expect_ones(state, "after load_state()");
  EXPECT_FALSE(again.get<torch::Tensor>("none").defined());
}

TEST(UserValues, AResumedRunHasThoseThatACheckpointCanHold) {
  const TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->epoch_end = [](State& s) {
    s.user.set("epochs", s.user.get_or<int>("epochs", 0) + 1);
    s.user.set("ema", torch::full({2}, 0.5, torch::requires_grad()));
    s.user.set("only in memory", Point{});
  };
  options.callbacks = {hooks};
  toy::Warnings warnings;
  toy::train(options);
  EXPECT_THAT(warnings.texts, ElementsAre(AllOf(HasSubstr("'only in memory'"), HasSubstr("Point"),
                                                HasSubstr("cannot hold"))));
  std::vector<std::string> keys;
  int epochs = 0;
  hooks->run_start = [&](State& s) { keys = s.user.keys(); };
  hooks->run_end = [&](State& s) { epochs = s.user.get<int>("epochs"); };
  options.num_epochs = 5;
  options.resume = "last";
  toy::train(options);
  EXPECT_THAT(keys, ElementsAre("epochs", "ema"));
  EXPECT_EQ(epochs, 5);
}

// Rank 0's values are saved, and every rank gets them.
TEST(UserValues, EveryRankIsGivenRank0s) {
  const TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.ddp = true;
  options.workers = 2;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->epoch_end = [](State& s) {
    s.user.set("rank", s.comm->rank());
    s.user.set("tensor", torch::full({1}, s.comm->rank() + 1));
  };
  std::vector<std::uint64_t> ranks;
  options.callbacks = {hooks};
  options.num_epochs = 1;
  toy::train(options);
  hooks->run_start = [&](State& s) {
    ranks = s.comm->vote(s.user.get<std::uint64_t>("rank") +
                         10 * s.user.get<torch::Tensor>("tensor").item<std::int64_t>());
  };
  options.num_epochs = 2;
  options.resume = "last";
  toy::train(options);
  EXPECT_THAT(ranks, ElementsAre(10u, 10u));
}

}  // namespace
}  // namespace lockstep
