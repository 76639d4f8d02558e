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
using testing::Not;

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
  checkpoint::save(options.weights.path(), StateDict{{"model_state_dict", classifier(7).state()}});
  return options;
}

torch::Tensor weight_in(const StateDict& state, const char* name) {
  return state.get<torch::Tensor>(name);
}

// The weights of `file` for `model`, or the error.
std::string error_with(const Model& model, const StateDict& file,
                       const WeightsOptions& options = {}) {
  return toy::error_of([&] { first_weights(model, {"a.pth", options}, file); });
}

TEST(FirstWeights, LeavesOutWhatItIsTold) {
  const TemporaryDirectory folder;
  TrainOptions options = options_in(folder);
  const Weights weights = options.weights.without({"2.*"});
  const FirstWeights first = first_weights(options.model, weights);
  EXPECT_THAT(first.kept, ElementsAre("2.weight", "2.bias"));
  EXPECT_THAT(first.unused, ElementsAre("2.weight", "2.bias"));
  EXPECT_TRUE(
      weight_in(first.state, "0.weight").equal(weight_in(classifier(7).state(), "0.weight")));
  EXPECT_TRUE(
      weight_in(first.state, "2.weight").equal(weight_in(classifier(3).state(), "2.weight")));
  const FirstWeights body = first_weights(nn::Sequential(nn::Linear(4, 5)), weights);
  EXPECT_THAT(body.unused, ElementsAre("2.weight", "2.bias")) << "weights that only the file has";
  EXPECT_THAT(body.kept, ElementsAre());
}

TEST(FirstWeights, NamesWhatDoesNotFitAndWhatToDo) {
  const TemporaryDirectory folder;
  const TrainOptions options = options_in(folder);
  const auto error = [&](const std::vector<std::string>& skip) {
    return toy::error_of([&] { first_weights(options.model, options.weights.without(skip)); });
  };
  EXPECT_THAT(error({}), AllOf(HasSubstr("seven.pth: does not fit the model: '2.weight' is Float "
                                         "[7, 5], the model has Float [3, 5], '2.bias' is"),
                               HasSubstr("add their names or patterns to skip")));
  EXPECT_THAT(error({"2.weight"}), AllOf(HasSubstr("'2.bias'"), Not(HasSubstr("'2.weight'"))));
  EXPECT_THAT(error({"2.*", "2.wieght"}), AllOf(HasSubstr("skip: '2.wieght' matches no weight"),
                                                HasSubstr("did you mean '2.weight'")));
  const StateDict other = {{"0.weight", weight_in(classifier(3).state(), "0.weight")},
                           {"1.weight", torch::zeros(1)}};
  EXPECT_THAT(error_with(classifier(3), other),
              AllOf(HasSubstr("a.pth: does not fit the model: not in the file: 0.bias, 2.weight, "
                              "2.bias; not in the model: 1.weight"),
                    HasSubstr("strict = false")));
}

TEST(FirstWeights, WithoutStrictTheModelKeepsWhatTheFileLacks) {
  StateDict file = classifier(7).state();
  file.erase("0.bias");
  file.set("head.weight", torch::zeros({2, 2}));
  const FirstWeights first = first_weights(classifier(3), {"a.pth", {.strict = false}}, file);
  EXPECT_EQ(first.taken, 1);
  EXPECT_THAT(first.kept, ElementsAre("0.bias", "2.weight", "2.bias"));
  EXPECT_THAT(first.unused, ElementsAre("2.weight", "2.bias", "head.weight"));
  EXPECT_EQ(first.summary(), "1 of 4 weights");
  EXPECT_EQ(first.rest(),
            "The model keeps its own 0.bias, 2.weight, 2.bias. Not taken from the file: 2.weight, "
            "2.bias, head.weight.");
}

TEST(FirstWeights, NothingTakenIsAnErrorThatSaysWhatWouldFit) {
  StateDict wrapped;
  for (const auto& [name, value] : classifier(3).state()) wrapped.set("net." + name, value);
  for (const bool strict : {true, false}) {
    EXPECT_THAT(error_with(classifier(3), wrapped, {.strict = strict}),
                AllOf(HasSubstr("a.pth: none of its 4 weights fits the model"),
                      HasSubstr("the name 'net.0.weight' would fit with remove_prefix = 'net.'")));
  }
  EXPECT_EQ(error_with(classifier(3), wrapped, {.remove_prefix = "net."}), "");
  const Model in_network = Model::combine({{"net", classifier(3)}});
  EXPECT_THAT(error_with(in_network, classifier(3).state()), HasSubstr("add_prefix = 'net.'"));
  EXPECT_EQ(error_with(in_network, classifier(3).state(), {.add_prefix = "net."}), "");
  EXPECT_THAT(error_with(classifier(3), classifier(3).state(), {.skip = {"*"}}),
              HasSubstr("none of its 4 weights"));
}

TEST(FirstWeights, NumbersOfOtherTypesAreConverted) {
  for (const auto type : {torch::kHalf, torch::kBFloat16, torch::kFloat64}) {
    StateDict file;
    for (const auto& [name, value] : classifier(3).state()) {
      file.set(name, value.get_if<torch::Tensor>()->to(type));
    }
    const FirstWeights first = first_weights(classifier(3), "a.pth", file);
    EXPECT_EQ(first.summary(),
              fmt::format("all 4 weights, converted from {} to Float", c10::toString(type)));
    EXPECT_EQ(weight_in(first.state, "0.weight").scalar_type(), torch::kFloat32);
    EXPECT_TRUE(
        weight_in(first.state, "0.weight").equal(weight_in(file, "0.weight").to(torch::kFloat32)));
  }
  StateDict large = classifier(3).state();
  large.set("2.bias", torch::full({3}, 1e300, torch::kFloat64));
  EXPECT_THAT(error_with(classifier(3), large),
              HasSubstr("a.pth: '2.bias' is Double in the file and has a number that is too large "
                        "for Float"));
  large.set("2.bias", torch::zeros({3}, torch::kComplexFloat));
  EXPECT_THAT(error_with(classifier(3), large), HasSubstr("'2.bias' is ComplexFloat [3]"));
}

// As torchvision's older files: PyTorch takes them, too.
TEST(FirstWeights, CountsOfBatchesMayBeMissing) {
  StateDict file = Model(toy::model(1)).state();
  file.erase("1.num_batches_tracked");
  const FirstWeights first = first_weights(toy::model(), "a.pth", file);
  EXPECT_EQ(first.summary(), "all 8 weights");
  EXPECT_EQ(first.rest(), "");
  EXPECT_EQ(first.state.size(), 9U);
}

TEST(FirstWeights, ARunBeginsWithThemAndSaysSo) {
  const TemporaryDirectory folder;
  TrainOptions options = options_in(folder);
  options.weights_skip = {"2.*"};
  options.optimizer = optim::SGD{.lr = 1e-30};
  options.console = true;
  testing::internal::CaptureStdout();
  const StateDict ended = toy::train(options).model.state();
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("seven.pth: 2 of 4 weights\n   The model keeps its own 2.weight, "
                              "2.bias. Not taken from the file: 2.weight, 2.bias.\n")));
  EXPECT_TRUE(weight_in(ended, "0.weight").equal(weight_in(classifier(7).state(), "0.weight")));
  options.weights = {};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              HasSubstr("weights_skip: set weights, too"));
}

TEST(FirstWeights, EachNetworkMayHaveItsFile) {
  const TemporaryDirectory folder;
  TrainOptions options = options_in(folder);
  const Named<Model> networks = {{"a", classifier(3)}, {"b", classifier(3)}};
  const Model model = Model::combine(networks);
  options.weights = {};
  options.network_weights = {{"b", {folder / "seven.pth", {.strict = false}}}};
  const auto planned = planned_weights(model, options);
  ASSERT_EQ(planned.size(), 1U);
  EXPECT_EQ(planned[0].option, "network_weights/b");
  const auto before = classifier(3).state();
  EXPECT_EQ(load_weights(planned[0].model, planned[0].weights).taken, 2);
  EXPECT_TRUE(weight_in(model.state(), "a.0.weight").equal(weight_in(before, "0.weight")));
  EXPECT_TRUE(
      weight_in(model.state(), "b.0.weight").equal(weight_in(classifier(7).state(), "0.weight")));
  options.network_weights = {{"c", "c.pth"}};
  EXPECT_THAT(toy::error_of([&] { planned_weights(model, options); }), HasSubstr("no 'c'"));
  options.weights = "a.pth";
  EXPECT_THAT(toy::error_of([&] { check_options(options); }),
              HasSubstr("expected weights or network_weights, got both"));
}

TEST(FirstWeights, SeveralWorkersGetThem) {
  const TemporaryDirectory folder;
  TrainOptions options = options_in(folder);
  options.weights = options.weights.without({"2.*"});
  options.ddp = true;
  options.shards = 2;
  std::vector<std::string> hashes;
  for (const int workers : {1, 2}) {
    options.model = classifier(3);
    options.workers = workers;
    hashes.push_back(toy::train(options).weights_hash);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

// As Python saves a GPT whose last layer is its embedding.
TEST(FirstWeights, ASecondNameOfAWeightIsIgnored) {
  const TemporaryDirectory folder;
  TrainOptions options = options_in(folder);
  StateDict tied = classifier(3).state();
  tied.set("head.weight", tied.get<torch::Tensor>("2.weight").clone());
  checkpoint::save(options.weights.path(), StateDict{{"model_state_dict", tied}});
  EXPECT_EQ(toy::error_of([&] { first_weights(options.model, options.weights); }), "");
  tied.set("head.weight", tied.get<torch::Tensor>("2.weight") + 1);
  checkpoint::save(options.weights.path(), StateDict{{"model_state_dict", tied}});
  EXPECT_THAT(toy::error_of([&] { first_weights(options.model, options.weights); }),
              HasSubstr("not in the model: head.weight;"));
  tied.erase("head.weight");
  tied.set("head.bias", tied.get<torch::Tensor>("2.bias").clone());
  checkpoint::save(options.weights.path(), StateDict{{"model_state_dict", tied}});
  EXPECT_THAT(toy::error_of([&] { first_weights(options.model, options.weights); }),
              HasSubstr("not in the model: head.bias;"))
      << "vectors are often equal by chance";
  tied.erase("head.bias");
  tied.set("2.weight", torch::zeros_like(tied.get<torch::Tensor>("2.weight")));
  tied.set("head.weight", tied.get<torch::Tensor>("2.weight").clone());
  EXPECT_THAT(error_with(options.model, tied), HasSubstr("not in the model: head.weight;"))
      << "and so are matrices that begin as zero";
}

}  // namespace
}  // namespace lockstep
