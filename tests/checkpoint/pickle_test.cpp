#include "lockstep/checkpoint/pickle.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
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
  const StateDict back = from_pickle(to_pickle(state));
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
  const auto back = from_pickle(to_pickle({{"w", weight}}));
  EXPECT_FALSE(back.get<torch::Tensor>("w").requires_grad());
}

TEST(Pickle, GarbageIsRefused) {
  for (const std::string text : {"", "PK", "not a zip file at all"}) {
    EXPECT_THROW(from_pickle(text), CheckpointError) << text;
  }
}

TEST(Pickle, ABoolThatIsNoneIsRefused) {
  const std::string ones(77, '\1');
  std::string bytes = to_pickle({{"mask", torch::ones({77}, torch::kBool)}});
  ASSERT_NE(bytes.find(ones), std::string::npos);
  EXPECT_TRUE(from_pickle(bytes).get<torch::Tensor>("mask").all().item<bool>());
  bytes[bytes.find(ones) + 5] = '\7';
  EXPECT_THROW(from_pickle(bytes), CheckpointError);
}

TEST(Pickle, TiedTensorsShareTheirNumbersInTheFileAndAfterIt) {
  const auto flat = torch::arange(1'000'000.0);
  const auto a = flat.narrow(0, 1000, 500'000),
             b = flat.narrow(0, 1000, 500'000).reshape({500, 1000});
  const std::string bytes = to_pickle({{"a", a}, {"b", b}, {"again", a}});
  EXPECT_LT(bytes.size(), 2'100'000u);
  const StateDict back = from_pickle(bytes);
  EXPECT_TRUE(back.get<torch::Tensor>("b").equal(b));
  EXPECT_EQ(back.get<torch::Tensor>("a").data_ptr(), back.get<torch::Tensor>("b").data_ptr());
}

TEST(Pickle, WhatIsNotContiguousIsWrittenInItsOrder) {
  const auto matrix = torch::arange(6.0).reshape({2, 3});
  const auto back =
      from_pickle(to_pickle({{"t", matrix.t()}, {"e", torch::ones({1}).expand({4})}}));
  EXPECT_TRUE(back.get<torch::Tensor>("t").equal(matrix.t()));
  EXPECT_TRUE(back.get<torch::Tensor>("t").is_contiguous());
  EXPECT_TRUE(back.get<torch::Tensor>("e").equal(torch::ones({4})));
}

TEST(Pickle, AFailedWriteEndsInItsError) {
  int calls = 0;
  const auto write = [&](std::string_view) {
    if (++calls > 2) throw Error("the disk is full");
  };
  EXPECT_THROW(write_pickle(everything(), write), Error);
}

TEST(Pickle, TensorsLieInTheBytesThatWereRead) {
  const auto back = from_pickle(to_pickle({{"w", torch::ones({1000})}}));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(back.get<torch::Tensor>("w").data_ptr()) % 16, 0u);
}

}  // namespace
}  // namespace lockstep::checkpoint
