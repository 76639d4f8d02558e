// The state of the fused optimizers in PyTorch's layout.
#include <gmock/gmock.h>

#include "lockstep/optim/flat_optimizer.h"
#include "lockstep/optim/torch_layout.h"
#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

StateDict group_of(const StateDict& state, std::size_t index) {
  return *state.get<StateList>("param_groups").at(index).get_if<StateDict>();
}

std::vector<std::string> texts(const StateDict& dict, const std::string& key) {
  std::vector<std::string> found;
  for (const StateValue& item : dict.get<StateList>(key))
    found.push_back(*item.get_if<std::string>());
  return found;
}

// What Python's state_dict() has of it.
StateDict as_python(const StateDict& state) {
  StateList groups;
  for (const StateValue& item : state.get<StateList>("param_groups")) {
    StateDict group = *item.get_if<StateDict>();
    group.erase("param_names");
    group.set("foreach", StateValue());
    group.set("maximize", false);
    groups.push_back(group);
  }
  return {{"state", state.get<StateDict>("state")}, {"param_groups", groups}};
}

TEST(FlatOptimizerState, HasPyTorchsLayout) {
  Training training(Adam{.lr = 0.02}, torch::kFloat32);
  training.run(1, 3);
  const StateDict state = training.optimizer->state();
  const StateDict group = group_of(state, 0);
  EXPECT_THAT(group.keys(), ElementsAre("lr", "betas", "eps", "weight_decay", "amsgrad", "params",
                                        "param_names"));
  EXPECT_THAT(texts(group, "param_names"), ElementsAre("weight", "bias", "scale"));
  const auto first = state.get<StateDict>("state").get<StateDict>("0");
  EXPECT_THAT(first.keys(), ElementsAre("step", "exp_avg", "exp_avg_sq"));
  EXPECT_EQ(first.get<torch::Tensor>("step").item<float>(), 3.0f);
  EXPECT_EQ(first.get<torch::Tensor>("exp_avg").sizes(), (std::vector<std::int64_t>{3, 5}));
  // PyTorch adds 1 to each of them in place.
  EXPECT_NE(
      first.get<torch::Tensor>("step").data_ptr(),
      state.get<StateDict>("state").get<StateDict>("1").get<torch::Tensor>("step").data_ptr());
}

TEST(FlatOptimizerState, BeforeTheFirstStepIsEmptyAndComesBack) {
  for (const OptimizerSpec& spec :
       std::vector<OptimizerSpec>{Adam{.amsgrad = true}, SGD{.momentum = 0.9}, RMSprop{}, Lion{}}) {
    Training training(spec, torch::kFloat32), again(spec, torch::kFloat32);
    SCOPED_TRACE(training.optimizer->name());
    const StateDict state = training.optimizer->state();
    EXPECT_EQ(state.get<StateDict>("state").size(), 0u);
    again.run(1, 2);
    Training fresh(spec, torch::kFloat32);
    fresh.optimizer->load_state(state);
    training.run(1, 5);
    fresh.run(1, 5);
    expect_same_bits(fresh.problem.weights(), training.problem.weights());
    // Python's optimizer has no state either before its first step.
    again.optimizer->load_state(as_python(state));
    EXPECT_EQ(again.optimizer->state().get<std::int64_t>("step"), 0);
  }
}

TEST(FlatOptimizerState, ASettingIsAGroup) {
  const OptimizerSpec spec(
      AdamW{.lr = 0.1, .weight_decay = 0.5},
      {{.names = "weight", .lr = 0.02}, {.names = "scale", .weight_decay = 0}});
  Training training(spec, torch::kFloat64);
  training.run(1, 2);
  const StateDict state = training.optimizer->state();
  ASSERT_EQ(state.get<StateList>("param_groups").size(), 3u);
  EXPECT_THAT(texts(group_of(state, 0), "param_names"), ElementsAre("bias"));
  EXPECT_THAT(texts(group_of(state, 1), "param_names"), ElementsAre("weight"));
  EXPECT_NEAR(group_of(state, 1).get<double>("lr"), 0.02, 1e-15);
  EXPECT_EQ(group_of(state, 2).get<double>("weight_decay"), 0.0);
  EXPECT_EQ(group_of(state, 2).get<double>("lr"), 0.1);
  expect_resumes(spec, spec);
}

TEST(FlatOptimizerState, OfPythonGoesOn) {
  for (const OptimizerSpec& spec : std::vector<OptimizerSpec>{
           Adam{.lr = 0.02, .beta1 = 0.8, .amsgrad = true}, AdamW{.lr = 0.02},
           SGD{.lr = 0.1, .momentum = 0.9, .dampening = 0.5}, SGD{.lr = 0.1},
           RMSprop{.momentum = 0.5, .centered = true}, Adagrad{.lr_decay = 0.1}, RAdam{}, NAdam{},
           Adamax{}, Adadelta{}}) {
    Training training(spec, torch::kFloat64), again(spec, torch::kFloat64);
    SCOPED_TRACE(training.optimizer->name());
    training.run(1, 9);
    again.run(1, 9);  // its weights; its state is replaced
    again.optimizer->load_state(as_python(training.optimizer->state()));
    training.run(10, 20);
    again.run(10, 20);
    expect_same_bits(again.problem.weights(), training.problem.weights());
  }
}

TEST(FlatOptimizerState, HyperParametersOfPythonCount) {
  Training saved(Adam{.lr = 0.5, .beta2 = 0.9, .weight_decay = 0.1}, torch::kFloat32);
  saved.run(1, 2);
  Training training(Adam{.lr = 0.1}, torch::kFloat32);
  training.optimizer->load_state(as_python(saved.optimizer->state()));
  EXPECT_EQ(training.optimizer->lr(), 0.5);
  EXPECT_EQ(training.optimizer->state().get<double>("beta2"), 0.9);
  EXPECT_EQ(training.optimizer->state().get<double>("weight_decay"), 0.1);
}

std::string refusal_of_python(const OptimizerSpec& spec, const StateDict& state) {
  Training training(spec, torch::kFloat32);
  return message_of<CheckpointError>([&] { training.optimizer->load_state(state); });
}

StateDict changed_group(const std::string& key, const StateValue& value, std::size_t of = 1) {
  Training training(OptimizerSpec(Adam{}, {{.names = "bias", .lr = 1e-4}}), torch::kFloat32);
  training.run(1, 1);
  StateDict state = as_python(training.optimizer->state());
  auto groups = state.get<StateList>("param_groups");
  StateDict group = *groups[of].get_if<StateDict>();
  group.set(key, value);
  groups[of] = group;
  state.set("param_groups", groups);
  return state;
}

TEST(FlatOptimizerState, WhatLockstepsOptimizerLacksIsNamed) {
  const OptimizerSpec spec(Adam{}, {{.names = "bias", .lr = 1e-4}});
  EXPECT_EQ(refusal_of_python(spec, changed_group("foreach", true)), "nothing was thrown");
  EXPECT_THAT(refusal_of_python(spec, changed_group("maximize", true)),
              HasSubstr("optimizer Adam: param_groups: maximize is set"));
  EXPECT_THAT(refusal_of_python(spec, changed_group("decoupled_weight_decay", true)),
              HasSubstr("AdamW"));
  EXPECT_THAT(refusal_of_python(spec, changed_group("eps", 1e-3)),
              HasSubstr("eps differs between param_groups"));
  EXPECT_THAT(refusal_of_python(spec, changed_group("lr", 1e-3)),
              HasSubstr("lr of parameter bias: the settings of this run make it"));
  EXPECT_THAT(refusal_of_python(Adam{}, changed_group("foreach", true)),
              HasSubstr("groups of 2, 1 parameters without names, this run has groups of 3"));
}

TEST(FlatOptimizerState, OfAnotherOptimizerOfPythonIsRefused) {
  Training adam(Adam{}, torch::kFloat32);
  adam.run(1, 1);
  EXPECT_THAT(refusal_of_python(SGD{.momentum = 0.9}, as_python(adam.optimizer->state())),
              HasSubstr("optimizer SGD: param_groups: found no 'momentum', which SGD has"));
  Training adamax(Adamax{}, torch::kFloat32);
  adamax.run(1, 1);
  EXPECT_THAT(
      refusal_of_python(RAdam{}, as_python(adamax.optimizer->state())),
      HasSubstr("optimizer RAdam: the state of parameter weight has 'exp_inf', which RAdam does "
                "not have"));
  Training rmsprop(RMSprop{}, torch::kFloat32);
  rmsprop.run(1, 1);
  EXPECT_THAT(refusal_of_python(Adadelta{}, as_python(rmsprop.optimizer->state())),
              HasSubstr("no 'rho', which Adadelta has"));
}

// Their states have the same tensors.
TEST(FlatOptimizerState, AdamAndItsRelativesAreToldApartByTheirOptions) {
  const auto python = [](const OptimizerSpec& spec) {
    Training training(spec, torch::kFloat32);
    training.run(1, 1);
    return as_python(training.optimizer->state());
  };
  const StateDict adam = python(Adam{}), radam = python(RAdam{});
  EXPECT_THAT(
      refusal_of_python(RAdam{}, adam),
      HasSubstr("optimizer RAdam: param_groups: found 'amsgrad', which RAdam does not have"));
  EXPECT_THAT(refusal_of_python(NAdam{}, adam), HasSubstr("no 'momentum_decay', which NAdam has"));
  EXPECT_THAT(refusal_of_python(Lamb{}, adam), HasSubstr("no 'bias_correction', which Lamb has"));
  EXPECT_THAT(refusal_of_python(AdamW{}, radam), HasSubstr("no 'amsgrad', which AdamW has"));
  EXPECT_THAT(refusal_of_python(RAdam{}, python(NAdam{})), HasSubstr("'momentum_decay', which"));
  EXPECT_THAT(refusal_of_python(Adam{}, python(SGD{})), HasSubstr("no 'betas', which Adam has"));

  const OptimizerSpec spec(AdamW{.weight_decay = 0}, {{.names = "bias", .lr = 1e-4}});
  EXPECT_THAT(refusal_of_python(spec, changed_group("decoupled_weight_decay", false)),
              HasSubstr("optimizer AdamW: param_groups: decoupled_weight_decay is not set"));
  EXPECT_EQ(refusal_of_python(spec, changed_group("foreach", true)), "nothing was thrown")
      << "an older PyTorch does not say whether it is Adam or AdamW";
}

TEST(FlatOptimizerState, LookaheadTakesTheStateOfItsOptimizer) {
  Training adam(Adam{.lr = 0.02}, torch::kFloat32);
  adam.run(1, 3);
  Training lookahead(Lookahead{.optimizer = Adam{}, .k = 100}, torch::kFloat32);
  lookahead.run(1, 1);
  const StateDict python = as_python(adam.optimizer->state());
  lookahead.optimizer->load_state(python);
  EXPECT_EQ(lookahead.optimizer->lr(), 0.02);
  const StateDict state = lookahead.optimizer->state();
  EXPECT_EQ(state.get<StateDict>("slow").size(), 0u) << "the slow weights begin with the next step";
  EXPECT_EQ(state.get<StateDict>("optimizer").get<std::int64_t>("step"), 3);
  // The same on a rank that did not read the file.
  Training other(Lookahead{.optimizer = Adam{}, .k = 100}, torch::kFloat32);
  other.optimizer->load_state(other.optimizer->without_tensors(python));
  EXPECT_EQ(other.optimizer->lr(), 0.02);
}

}  // namespace
}  // namespace lockstep::optim
