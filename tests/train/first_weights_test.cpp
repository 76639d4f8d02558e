#include "lockstep/train/first_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace nn = torch::nn;

// A body and a head with that many classes.
Model classifier(std::int64_t classes) {
  torch::manual_seed(static_cast<std::uint64_t>(classes));
  return nn::Sequential(nn::Linear(4, 5), nn::Tanh(), nn::Linear(5, classes));
}

// Saves the weights of a network with seven classes. The options are to begin with them.
TrainOptions options_in(const TemporaryDirectory& folder) {
  TrainOptions options = toy::options();
  options.model = classifier(3);
  options.weights = folder / "seven.pth";
  checkpoint::save(*options.weights, StateDict{{"model_state_dict", classifier(7).state()}});
  return options;
}

TEST(FirstWeights, LeavesOutWhatItIsTold) {
  const TemporaryDirectory folder;
  TrainOptions options = options_in(folder);
  options.weights_skip = {"2.*"};
  const FirstWeights first = first_weights(options.model, options);
  EXPECT_THAT(first.left_out, ElementsAre("2.weight", "2.bias"));
  const auto weight = [](const StateDict& state, const char* name) {
    return state.get<torch::Tensor>(name);
  };
  EXPECT_TRUE(weight(first.state, "0.weight").equal(weight(classifier(7).state(), "0.weight")));
  EXPECT_TRUE(weight(first.state, "2.weight").equal(weight(classifier(3).state(), "2.weight")));
  options.model = nn::Sequential(nn::Linear(4, 5));
  EXPECT_THAT(first_weights(options.model, options).left_out, ElementsAre("2.weight", "2.bias"))
      << "weights that only the file has";
}

TEST(FirstWeights, NamesWhatDoesNotFitAndWhatToDo) {
  const TemporaryDirectory folder;
  TrainOptions options = options_in(folder);
  const auto error = [&] { return toy::error_of([&] { first_weights(options.model, options); }); };
  EXPECT_THAT(error(), AllOf(HasSubstr("seven.pth: model weight '2.weight'"),
                             HasSubstr("add its name or a pattern to weights_skip")));
  options.weights_skip = {"2.weight"};
  EXPECT_THAT(error(), HasSubstr("'2.bias'"));
  options.weights_skip = {"2.*", "2.wieght"};
  EXPECT_THAT(error(), AllOf(HasSubstr("weights_skip: '2.wieght' matches no weight"),
                             HasSubstr("did you mean '2.weight'")));
}

TEST(FirstWeights, ARunBeginsWithThem) {
  const TemporaryDirectory folder;
  TrainOptions options = options_in(folder);
  options.weights_skip = {"2.*"};
  options.optimizer = optim::SGD{.lr = 1e-30};
  const StateDict ended = toy::train(options).model.state();
  EXPECT_TRUE(ended.get<torch::Tensor>("0.weight")
                  .equal(classifier(7).state().get<torch::Tensor>("0.weight")));
  options.weights.reset();
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              HasSubstr("weights_skip: set weights, too"));
}

// As Python saves a GPT whose last layer is its embedding.
TEST(FirstWeights, ASecondNameOfAWeightIsIgnored) {
  const TemporaryDirectory folder;
  TrainOptions options = options_in(folder);
  StateDict tied = classifier(3).state();
  tied.set("head.weight", tied.get<torch::Tensor>("2.weight").clone());
  checkpoint::save(*options.weights, StateDict{{"model_state_dict", tied}});
  EXPECT_EQ(toy::error_of([&] { first_weights(options.model, options); }), "");
  tied.set("head.weight", tied.get<torch::Tensor>("2.weight") + 1);
  checkpoint::save(*options.weights, StateDict{{"model_state_dict", tied}});
  EXPECT_THAT(toy::error_of([&] { first_weights(options.model, options); }),
              HasSubstr("'head.weight'"));
  tied.erase("head.weight");
  tied.set("head.bias", tied.get<torch::Tensor>("2.bias").clone());
  checkpoint::save(*options.weights, StateDict{{"model_state_dict", tied}});
  EXPECT_THAT(toy::error_of([&] { first_weights(options.model, options); }),
              HasSubstr("'head.bias'"))
      << "vectors are often equal by chance";
}

}  // namespace
}  // namespace lockstep
