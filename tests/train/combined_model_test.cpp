#include "lockstep/train/combined_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/state/hash.h"
#include "lockstep/train/model.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Named<Model> two() {
  return {{"first", toy::model(1)}, {"second", toy::model(2)}};
}

TEST(CombinedModel, NamesBeginWithTheNetwork) {
  const Named<Model> networks = two();
  const Model all = Model::combine(networks);
  const auto parameters = all.parameters();
  ASSERT_EQ(parameters.size(), 2 * networks["first"].parameters().size());
  EXPECT_EQ(parameters.front().first, "first.0.weight");
  EXPECT_EQ(parameters.back().first, "second.4.bias");
  EXPECT_TRUE(parameters.front().second.is_same(networks["first"].parameters()[0].second));
  EXPECT_EQ(all.buffers().front().first, "first.1.running_mean");
}

TEST(CombinedModel, LoadsWhatItSaved) {
  const Model all = Model::combine(two());
  const Model other = Model::combine({{"first", toy::model(3)}, {"second", toy::model(4)}});
  other.load_state(all.state());
  EXPECT_EQ(weights_hash(other.weights()), weights_hash(all.weights()));
}

TEST(CombinedModel, TheModeIsThatOfAllNetworks) {
  const Named<Model> networks = two();
  const Model all = Model::combine(networks);
  all.train(false);
  EXPECT_FALSE(networks["first"].is_training());
  EXPECT_FALSE(all.is_training());
  networks["second"].train(true);
  EXPECT_TRUE(all.is_training());
}

TEST(CombinedModel, CallingItIsAnErrorThatListsTheNetworks) {
  EXPECT_THAT(toy::error_of([] {
                Model::combine(two())(torch::ones({1, 4}));
              }),
              AllOf(HasSubstr("first, second"), HasSubstr("state.models[\"first\"]")));
}

TEST(CombinedModel, SeveralInputsAndBatchesAreRefusedInTheSameWay) {
  const Model all = Model::combine(two());
  const torch::Tensor input = torch::ones({1, 4});
  EXPECT_THAT(toy::error_of([&] { all.outputs(input, input); }), HasSubstr("first, second"));
  EXPECT_THAT(toy::error_of([&] {
                all.outputs(Batch{{"features", input}});
              }),
              HasSubstr("first, second"));
  EXPECT_FALSE(all.takes_batch());
  EXPECT_EQ(all.signature(), "consists of the networks first, second");
}

TEST(CombinedModel, ItsNetworksAreFoundByName) {
  const Named<Model> networks = two();
  const Model all = Model::combine(networks);
  EXPECT_TRUE(all.network("second").parameters()[0].second.is_same(
      networks["second"].parameters()[0].second));
  EXPECT_THAT(toy::error_of([&] { all.network("secnd"); }), HasSubstr("did you mean 'second'?"));
  EXPECT_THAT(toy::error_of([&] { networks["first"].network("second"); }),
              HasSubstr("a single network"));
}

TEST(CombinedModel, ASingleNetworkHasItsOwnSignature) {
  const Model network = toy::model();
  const Model all = Model::combine({{"only", network}});
  EXPECT_EQ(all.signature(), network.signature());
  all.train(false);
  EXPECT_TRUE(all.outputs(torch::ones({2, 4})).tensor().equal(network(torch::ones({2, 4}))));
}

TEST(CombinedModel, ASingleNetworkCanBeCalled) {
  const Model network = toy::model();
  const Model all = Model::combine({{"only", network}});
  all.train(false);
  EXPECT_TRUE(all(torch::ones({2, 4})).equal(network(torch::ones({2, 4}))));
}

TEST(CombinedModel, RefusesNamesAndNetworksThatCannotBe) {
  EXPECT_THAT(toy::error_of([] {
                Model::combine({{"a.b", toy::model()}});
              }),
              HasSubstr("got 'a.b'"));
  EXPECT_THAT(toy::error_of([] {
                Model::combine({{"a", toy::model()}, {"b", Model()}});
              }),
              HasSubstr("'b', got an empty one"));
}

}  // namespace
}  // namespace lockstep
