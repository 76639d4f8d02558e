#include "lockstep/state/copy.h"

#include <set>

#include <gtest/gtest.h>

#include "lockstep/state/hash.h"

namespace lockstep {
namespace {

StateDict tree() {
  return {{"count", 3},
          {"rate", 0.5},
          {"name", "toy"},
          {"nothing", StateValue()},
          {"flag", true},
          {"weights", StateDict{{"a", torch::randn({3, 4})}, {"b", torch::arange(5)}}},
          {"list", StateList{torch::randn({2}), 7}}};
}

const torch::Tensor& tensor_of(const StateDict& state, const char* key) {
  return *state.at(key).get_if<torch::Tensor>();
}

TEST(Copied, HasTheSameContentInMemoryOfItsOwn) {
  const StateDict source = tree();
  const StateDict copy = copied(source);
  const std::string hash = content_hash(source);
  EXPECT_EQ(content_hash(copy), hash);
  source.get<StateDict>("weights").get<torch::Tensor>("a").zero_();
  source.get<StateList>("list")[0].get_if<torch::Tensor>()->zero_();
  EXPECT_NE(content_hash(source), hash);
  EXPECT_EQ(content_hash(copy), hash);
}

// As the file stores it: in row-major order, without gradients.
TEST(Copied, IsInRowMajorOrderAndWithoutGradients) {
  torch::Tensor turned = torch::arange(6, torch::kFloat32).view({2, 3}).t();
  const torch::Tensor conjugated = torch::randn({3}, torch::kComplexFloat).conj();
  torch::Tensor parameter = torch::randn({4}).requires_grad_();
  const torch::Tensor part = torch::arange(10).narrow(0, 4, 3);
  const torch::Tensor none, empty = torch::empty({0, 3});
  const StateDict copy = copied({{"turned", turned},
                                 {"conjugated", conjugated},
                                 {"parameter", parameter},
                                 {"part", part},
                                 {"none", none},
                                 {"empty", empty}});
  EXPECT_TRUE(tensor_of(copy, "turned").is_contiguous());
  EXPECT_TRUE(tensor_of(copy, "turned").equal(turned));
  EXPECT_FALSE(tensor_of(copy, "conjugated").is_conj());
  EXPECT_TRUE(tensor_of(copy, "conjugated").equal(conjugated.resolve_conj()));
  EXPECT_FALSE(tensor_of(copy, "parameter").requires_grad());
  EXPECT_TRUE(tensor_of(copy, "part").equal(part));
  EXPECT_FALSE(tensor_of(copy, "none").defined());
  EXPECT_EQ(tensor_of(copy, "empty").sizes(), torch::IntArrayRef({0, 3}));
}

TEST(Copied, TiedWeightsAreTiedInTheCopy) {
  const torch::Tensor weight = torch::randn({2, 3});
  const StateDict copy = copied({{"in", weight},
                                 {"out", weight.detach()},
                                 {"flat", weight.view({6})},
                                 {"half", weight.view({6}).narrow(0, 0, 3)},
                                 {"other", weight.clone()}});
  const auto place = [&](const char* key) { return tensor_of(copy, key).data_ptr(); };
  EXPECT_EQ(place("in"), place("out"));
  EXPECT_EQ(place("in"), place("flat"));
  EXPECT_EQ(tensor_of(copy, "flat").sizes(), torch::IntArrayRef({6}));
  EXPECT_NE(place("in"), place("half")) << "another number of elements is another storage";
  EXPECT_NE(place("in"), place("other"));
}

std::set<const void*> places(const StateDict& state) {
  std::set<const void*> found;
  for (const auto& [key, value] : state) {
    if (const auto* const tensor = value.get_if<torch::Tensor>()) found.insert(tensor->data_ptr());
  }
  return found;
}

TEST(Copied, UsesTheMemoryOfAnOlderCopyAgain) {
  const torch::Tensor tied = torch::randn({100});
  const StateDict source{{"a", torch::randn({10, 10})},
                         {"b", torch::randn({10, 10})},
                         {"c", torch::arange(100)},
                         {"tied", tied},
                         {"twice", tied.view({20, 5})}};
  StateDict copy = copied(source);
  const std::set<const void*> first = places(copy);
  for (int round = 0; round < 3; ++round) {
    source.get<torch::Tensor>("a").add_(1);
    source.get<torch::Tensor>("tied").add_(1);
    StateDict older = std::move(copy);
    copy = copied(source, &older);
    EXPECT_EQ(older.size(), 0u);
    EXPECT_EQ(places(copy), first);
    EXPECT_EQ(content_hash(copy), content_hash(source));
    EXPECT_EQ(tensor_of(copy, "tied").data_ptr(), tensor_of(copy, "twice").data_ptr());
  }
}

TEST(Copied, LeavesMemoryThatIsStillHeld) {
  const StateDict source{{"a", torch::randn({10})}, {"b", torch::randn({20})}};
  StateDict older = copied(source);
  const torch::Tensor held = older.get<torch::Tensor>("a");
  const torch::Tensor view = older.get<torch::Tensor>("b").narrow(0, 3, 2);
  const torch::Tensor before = held.clone(), part = view.clone();
  source.get<torch::Tensor>("a").zero_();
  source.get<torch::Tensor>("b").zero_();
  const StateDict copy = copied(source, &older);
  EXPECT_TRUE(held.equal(before));
  EXPECT_TRUE(view.equal(part));
  EXPECT_EQ(content_hash(copy), content_hash(source));
}

TEST(Copied, ReusesOnlyWhatFits) {
  StateDict older = copied({{"a", torch::randn({10})}, {"b", torch::arange(10)}});
  const StateDict source{{"a", torch::arange(10)}, {"b", torch::randn({11})}};
  const StateDict copy = copied(source, &older);
  EXPECT_EQ(content_hash(copy), content_hash(source));
}

TEST(MemoryForCopy, IsUsedByTheFirstCopy) {
  const StateDict source{{"a", torch::randn({10, 10})},
                         {"list", StateList{torch::arange(7), torch::empty({0}), torch::Tensor()}}};
  StateDict memory = memory_for_copy(source);
  std::set<const void*> prepared;
  for (const StateValue& value : memory.get<StateList>("memory")) {
    prepared.insert(value.get_if<torch::Tensor>()->data_ptr());
  }
  EXPECT_EQ(prepared.size(), 2u);
  const StateDict copy = copied(source, &memory);
  EXPECT_EQ(content_hash(copy), content_hash(source));
  EXPECT_TRUE(prepared.contains(tensor_of(copy, "a").data_ptr()));
}

}  // namespace
}  // namespace lockstep
