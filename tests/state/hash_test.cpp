#include "lockstep/state/hash.h"

#include <set>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

NamedTensors weights() {
  return {{"weight", torch::arange(6, torch::kFloat32).view({2, 3})}, {"bias", torch::zeros({2})}};
}

// Hashes must not change, so that those in logs of different versions can be compared. The expected
// value is XXH3 of the bytes that the header describes, computed with the XXH3 library itself.
TEST(WeightsHash, IsStable) {
  EXPECT_EQ(weights_hash({}), "2d06800538d394c2");  // XXH3 of nothing
  EXPECT_EQ(weights_hash(weights()), "e0901ac72717797e");
  EXPECT_EQ(weights_hash(weights()), weights_hash(weights()));
}

TEST(WeightsHash, SeesEveryDifference) {
  std::set<std::string> hashes = {weights_hash(weights())};
  const auto expect_new = [&](const NamedTensors& tensors, const char* what) {
    EXPECT_TRUE(hashes.insert(weights_hash(tensors)).second) << what;
  };
  auto changed = weights();
  changed[0].first = "weight2";
  expect_new(changed, "a name");

  changed = weights();
  changed[0].second = changed[0].second.view({3, 2});
  expect_new(changed, "a shape");
  changed[0].second = changed[0].second.view({6});
  expect_new(changed, "a number of dimensions");

  changed = weights();
  changed[1].second = torch::zeros({2}, torch::kInt32);  // the same bytes
  expect_new(changed, "a type");

  changed = weights();
  changed[0].second[1][2] = std::nextafter(5.0f, 6.0f);
  expect_new(changed, "a single bit");
  changed = weights();
  changed[1].second[0] = -0.0f;
  expect_new(changed, "the sign of a zero");

  changed = weights();
  std::swap(changed[0], changed[1]);
  expect_new(changed, "the order");
  changed.pop_back();
  expect_new(changed, "a tensor less");
}

TEST(WeightsHash, NamesDoNotRunIntoEachOther) {
  const torch::Tensor none;
  EXPECT_NE(weights_hash({{"ab", none}, {"c", none}}), weights_hash({{"a", none}, {"bc", none}}));
}

TEST(WeightsHash, SeesEmptyTensors) {
  EXPECT_NE(weights_hash({{"a", torch::empty({0})}}), weights_hash({}));
  EXPECT_NE(weights_hash({{"a", torch::empty({0, 3})}}),
            weights_hash({{"a", torch::empty({3, 0})}}));
  EXPECT_NE(weights_hash({{"a", torch::empty({0})}}), weights_hash({{"a", torch::Tensor()}}));
}

TEST(WeightsHash, LooksAtTheValuesNotTheLayout) {
  const torch::Tensor matrix = torch::arange(12, torch::kFloat32).view({3, 4});
  EXPECT_EQ(weights_hash({{"a", matrix.t()}}), weights_hash({{"a", matrix.t().contiguous()}}));
  EXPECT_EQ(weights_hash({{"a", matrix.slice(1, 0, 4, 2)}}),
            weights_hash({{"a", matrix.slice(1, 0, 4, 2).clone()}}));
  EXPECT_EQ(weights_hash({{"a", torch::ones({1}).expand({5})}}),
            weights_hash({{"a", torch::ones({5})}}));
  EXPECT_EQ(weights_hash({{"a", matrix.clone().requires_grad_()}}), weights_hash({{"a", matrix}}));
}

StateDict state() {
  return {{"step", 7},
          {"rate", 0.5},
          {"model", StateDict{{"weight", torch::ones({2})}}},
          {"betas", StateList{0.9, 0.999}}};
}

TEST(ContentHash, IsStable) {
  EXPECT_EQ(content_hash(state()), "f51477258c3a5804");
  EXPECT_EQ(content_hash(state()), content_hash(state()));
}

TEST(ContentHash, SeesEveryDifference) {
  std::set<std::string> hashes = {content_hash(state()), content_hash({})};
  const auto expect_new = [&](const char* key, StateValue value) {
    StateDict changed = state();
    changed.set(key, std::move(value));
    EXPECT_TRUE(hashes.insert(content_hash(changed)).second) << key;
  };
  ASSERT_EQ(hashes.size(), 2u);
  expect_new("step", 8);
  expect_new("step", 7.0);
  expect_new("step", "7");
  expect_new("step", true);
  expect_new("step", StateValue());
  expect_new("rate", 0.25);
  expect_new("more", 1);
  expect_new("model", StateDict{{"weight", torch::zeros({2})}});
  expect_new("model", StateDict{{"bias", torch::ones({2})}});
  expect_new("model", StateDict{});
  expect_new("model", StateList{});
  expect_new("betas", StateList{0.999, 0.9});
  expect_new("betas", StateList{0.9});
}

}  // namespace
}  // namespace lockstep
