#include "lockstep/checkpoint/pickle.h"

#include <gtest/gtest.h>

#include "lockstep/state/hash.h"

namespace lockstep::checkpoint {
namespace {

StateDict everything() {
  return {{"none", StateValue()},
          {"yes", true},
          {"count", 7},
          {"ratio", 0.1},
          {"name", "täst"},
          {"list", StateList{1, 2.5, "three", StateList{}, torch::ones({2})}},
          {"nested", StateDict{{"a.b/c", torch::arange(6).reshape({2, 3})}}},
          {"empty", StateDict()},
          {"half", torch::ones({3}, torch::kHalf)},
          {"bytes", torch::arange(5, torch::kUInt8)},
          {"scalar", torch::tensor(3.5)},
          {"no_elements", torch::empty({0, 4})}};
}

TEST(Pickle, RoundTripKeepsEveryKindOfValue) {
  const StateDict state = everything();
  const StateDict back = from_pickle(to_pickle(state), "test");
  EXPECT_EQ(back.keys(), state.keys());
  EXPECT_EQ(content_hash(back), content_hash(state));
  EXPECT_TRUE(back.at("none").get_if<std::monostate>());
}

TEST(Pickle, AViewBringsOnlyItsOwnValues) {
  const auto flat = torch::zeros({1'000'000});
  const auto bytes = to_pickle({{"view", flat.narrow(0, 10, 4)}});
  EXPECT_LT(bytes.size(), 10'000u);
}

TEST(Pickle, GradientsAreLeftBehind) {
  const auto weight = torch::ones({2}, torch::requires_grad());
  const auto back = from_pickle(to_pickle({{"w", weight}}), "test");
  EXPECT_FALSE(back.get<torch::Tensor>("w").requires_grad());
}

TEST(Pickle, GarbageIsNamed) {
  for (const std::string text : {"", "PK", "not a zip file at all"}) {
    try {
      from_pickle({text.begin(), text.end()}, "checkpoint x.pth");
      FAIL() << "accepted '" << text << "'";
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find("checkpoint x.pth"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
