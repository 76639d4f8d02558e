#include "lockstep/optim/torch_optimizer.h"

#include <gmock/gmock.h>

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;
using torch::optim::OptimizerParamGroup;

template <typename T, typename Options>
OptimizerSpec spec_of(const Options& options) {
  return [options](std::vector<torch::Tensor> parameters) {
    return std::make_unique<T>(std::move(parameters), options);
  };
}

TEST(TorchOptimizer, DoesWhatOursDoes) {
  Training torchs(spec_of<torch::optim::Adam>(torch::optim::AdamOptions(0.02).weight_decay(0.1)),
                  torch::kFloat64);
  Training ours(Adam{.lr = 0.02, .weight_decay = 0.1}, torch::kFloat64);
  for (int step = 1; step <= 20; ++step) {
    for (Training* training : {&torchs, &ours}) {
      training->problem.add_grads(step);
      training->optimizer->step({.grad_scale = 0.25});
    }
  }
  EXPECT_TRUE(torch::allclose(torchs.problem.weights(), ours.problem.weights(), 1e-12, 1e-14));
  EXPECT_EQ(torchs.flat.grad_norm(), 0.0);
}

TEST(TorchOptimizer, KeepsScaledGradientsWhereAsked) {
  Training training(spec_of<torch::optim::SGD>(torch::optim::SGDOptions(0.1)), torch::kFloat64);
  training.problem.add_grads(1);
  const double norm = training.flat.grad_norm();
  training.optimizer->step({.grad_scale = 0.5, .zero_grad = false});
  EXPECT_EQ(training.flat.grad_norm(), 0.5 * norm);
}

TEST(TorchOptimizer, ResumesToTheBit) {
  using namespace torch::optim;
  expect_resumes(spec_of<torch::optim::Adam>(AdamOptions(0.02).amsgrad(true)),
                 spec_of<torch::optim::Adam>(AdamOptions().amsgrad(true)));
  expect_resumes(spec_of<torch::optim::SGD>(SGDOptions(0.02).momentum(0.9)),
                 spec_of<torch::optim::SGD>(SGDOptions(0.1)));
}

TEST(TorchOptimizer, SetsTheLearningRateOfEveryGroupInProportion) {
  Problem problem(torch::kFloat32);
  const auto& parameters = problem.parameters();
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector{parameters[0].second});
  groups.emplace_back(std::vector{parameters[1].second},
                      std::make_unique<torch::optim::SGDOptions>(0.01));
  const auto torchs =
      std::make_shared<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.1).momentum(0.9));
  FlatParameters flat(parameters);
  const auto optimizer = OptimizerSpec(torchs).make(flat);
  EXPECT_EQ(optimizer->lr(), 0.1);
  optimizer->set_lr(0.5);
  EXPECT_EQ(optimizer->lr(), 0.5);
  EXPECT_DOUBLE_EQ(torchs->param_groups()[1].options().get_lr(), 0.05);
  EXPECT_EQ(optimizer->momentum(), 0.9);
  optimizer->set_momentum(0.5);
  for (auto& group : torchs->param_groups()) {
    EXPECT_EQ(static_cast<torch::optim::SGDOptions&>(group.options()).momentum(), 0.5);
  }
}

// A scheduler may have ended at 0. The rates of the object then say nothing of their ratios.
TEST(TorchOptimizer, ARunThatGoesOnWithTheSameObjectKeepsTheRatiosOfGroups) {
  Problem problem(torch::kFloat32);
  const auto& parameters = problem.parameters();
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector{parameters[0].second});
  groups.emplace_back(std::vector{parameters[1].second},
                      std::make_unique<torch::optim::SGDOptions>(0.01));
  const auto torchs = std::make_shared<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.1));
  FlatParameters flat(parameters);
  const auto first = OptimizerSpec(torchs).make(flat);
  first->set_lr(0);
  const StateDict state = first->state();
  const auto second = OptimizerSpec(torchs).make(flat);
  second->load_state(state);
  second->set_lr(0.5);
  EXPECT_DOUBLE_EQ(torchs->param_groups()[1].options().get_lr(), 0.05);

  StateDict damaged = state;
  damaged.set("lr_ratios", StateList{1.0});
  EXPECT_THAT(message_of<CheckpointError>([&] { second->load_state(damaged); }),
              ::testing::HasSubstr("lr_ratios of 2 parameter groups, found 1"));
  StateDict older = state;
  older.erase("lr_ratios");
  second->load_state(older);
  second->set_lr(0.5);
  EXPECT_DOUBLE_EQ(torchs->param_groups()[1].options().get_lr(), 0.05) << "as before";
}

// The second attempt of a run makes another optimizer of the same object.
TEST(TorchOptimizer, GoesBackToThePaceOfEveryGroup) {
  Problem problem(torch::kFloat32);
  const auto& parameters = problem.parameters();
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector{parameters[0].second});
  groups.emplace_back(
      std::vector{parameters[1].second},
      std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(0.01).momentum(0.5)));
  const auto torchs =
      std::make_shared<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.1).momentum(0.9));
  FlatParameters flat(parameters);
  for (const OptimizerSpec& spec :
       std::vector<OptimizerSpec>{torchs, Lookahead{.optimizer = torchs}}) {
    const auto first = spec.make(flat);
    const OptimizerPace pace = first->pace();
    EXPECT_EQ(pace.lrs, (std::vector{0.1, 0.01}));
    EXPECT_EQ(pace.momenta, (std::vector{0.9, 0.5}));
    first->set_lr(0);
    first->set_momentum(0.25);
    const auto second = spec.make(flat);
    EXPECT_FALSE(second->pace() == pace);
    second->set_pace(pace);
    EXPECT_TRUE(second->pace() == pace);
    second->set_lr(0.5);
    EXPECT_DOUBLE_EQ(torchs->param_groups()[1].options().get_lr(), 0.05);
    second->set_pace(pace);  // for the next optimizer of the object

    OptimizerPace longer = pace;
    longer.lrs.push_back(1);
    EXPECT_THAT(
        message_of<Error>([&] { second->set_pace(longer); }),
        ::testing::HasSubstr("expected 3 parameter groups, as when the run began, found 2"));
  }
}

TEST(TorchOptimizer, AStateHasTheMomentumOfEveryGroup) {
  Problem problem(torch::kFloat32);
  const auto& parameters = problem.parameters();
  FlatParameters flat(parameters);
  const auto made = [&](double first, double second) {
    const auto options = [](double momentum) {
      return torch::optim::SGDOptions(torch::optim::SGDOptions(0.1).momentum(momentum));
    };
    std::vector<OptimizerParamGroup> groups;
    groups.emplace_back(std::vector{parameters[0].second});
    groups.emplace_back(std::vector{parameters[1].second},
                        std::make_unique<torch::optim::SGDOptions>(options(second)));
    return OptimizerSpec(std::make_shared<torch::optim::SGD>(groups, options(first))).make(flat);
  };
  const StateDict state = made(0.9, 0.5)->state();
  const auto resumed = made(0.1, 0.2);
  resumed->load_state(state);
  EXPECT_EQ(resumed->pace().momenta, (std::vector{0.9, 0.5}));

  StateDict damaged = state;
  damaged.set("momenta", StateList{0.9});
  EXPECT_THAT(message_of<CheckpointError>([&] { resumed->load_state(damaged); }),
              ::testing::HasSubstr("momenta of 2 parameter groups, found 1"));
  StateDict older = state;
  older.erase("momenta");
  resumed->load_state(older);
  EXPECT_EQ(resumed->pace().momenta, (std::vector{0.9, 0.9}));
}

TEST(TorchOptimizer, KnowsWhereMomentumIs) {
  using namespace torch::optim;
  for (const auto& [spec, expected] : std::vector<std::pair<OptimizerSpec, std::optional<double>>>{
           {spec_of<torch::optim::Adam>(AdamOptions().betas({0.7, 0.9})), 0.7},
           {spec_of<torch::optim::AdamW>(AdamWOptions().betas({0.6, 0.9})), 0.6},
           {spec_of<torch::optim::RMSprop>(RMSpropOptions().momentum(0.3)), 0.3},
           {spec_of<torch::optim::Adagrad>(AdagradOptions()), std::nullopt}}) {
    Training training(spec, torch::kFloat32);
    EXPECT_EQ(training.optimizer->momentum(), expected);
    if (expected) {
      training.optimizer->set_momentum(0.25);
      EXPECT_EQ(training.optimizer->momentum(), 0.25);
    } else {
      EXPECT_THROW(training.optimizer->set_momentum(0.25), Error);
    }
  }
}

// For torch's optimizers, a parameter without a gradient takes no part in a step.
TEST(TorchOptimizer, LeavesUnusedParametersAloneAndTrainsUnfrozenOnes) {
  const auto make = [] {
    return NamedTensors{{"used", torch::ones({4}).requires_grad_()},
                        {"unused", torch::ones({4}).requires_grad_()},
                        {"frozen", torch::ones({4})}};
  };
  const auto spec =
      spec_of<torch::optim::SGD>(torch::optim::SGDOptions(0.5).weight_decay(0.5).momentum(0.5));
  const auto step = [](const NamedTensors& parameters, FlatParameters& flat, Optimizer& optimizer) {
    flat.make_unfrozen_trainable();
    (parameters[0].second.sum() + parameters[2].second.sum()).backward();
    optimizer.step();
  };
  const NamedTensors parameters = make();
  FlatParameters flat(parameters);
  const auto optimizer = spec.make(flat);
  step(parameters, flat, *optimizer);
  EXPECT_TRUE(torch::equal(parameters[0].second, torch::full({4}, 0.25)));
  EXPECT_TRUE(torch::equal(parameters[1].second, torch::ones({4})));
  EXPECT_TRUE(torch::equal(parameters[2].second, torch::ones({4})));
  EXPECT_TRUE(parameters[1].second.grad().defined()) << "for the next backward()";
  parameters[2].second.requires_grad_(true);
  step(parameters, flat, *optimizer);
  EXPECT_TRUE(torch::equal(parameters[2].second, torch::full({4}, 0.25)));

  // Resumed by an optimizer that was made without this parameter.
  const NamedTensors again = make();
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < 3; ++i) again[i].second.copy_(parameters[i].second);
  }
  FlatParameters flat_again(again);
  const auto resumed = spec.make(flat_again);
  resumed->load_state(optimizer->state());
  again[2].second.requires_grad_(true);
  step(parameters, flat, *optimizer);
  step(again, flat_again, *resumed);
  for (std::size_t i = 0; i < 3; ++i) expect_same_bits(again[i].second, parameters[i].second);
}

// The archive of torch's optimizers identifies parameters only by their position.
TEST(TorchOptimizer, AStateFindsItsParametersByName) {
  const auto make = [](bool early_is_frozen) {
    return NamedTensors{{"early", torch::ones({4}).requires_grad_(!early_is_frozen)},
                        {"other", torch::ones({4}).requires_grad_()}};
  };
  const auto spec = spec_of<torch::optim::SGD>(torch::optim::SGDOptions(0.5).momentum(0.5));
  const auto step = [](const NamedTensors& parameters, FlatParameters& flat, Optimizer& optimizer) {
    flat.make_unfrozen_trainable();
    (parameters[0].second.sum() + 3 * parameters[1].second.sum()).backward();
    optimizer.step();
  };
  const NamedTensors parameters = make(true);
  FlatParameters flat(parameters);
  const auto optimizer = spec.make(flat);
  step(parameters, flat, *optimizer);
  // In the first case "early" was not trained yet; in the second it was added after "other".
  for (const bool joined : {false, true}) {
    if (joined) {
      parameters[0].second.requires_grad_(true);
      step(parameters, flat, *optimizer);
    }
    const NamedTensors again = make(false);
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < 2; ++i) again[i].second.copy_(parameters[i].second);
    }
    FlatParameters flat_again(again);
    const auto resumed = spec.make(flat_again);
    resumed->load_state(optimizer->state());
    step(again, flat_again, *resumed);
    parameters[0].second.requires_grad_(true);
    step(parameters, flat, *optimizer);
    for (std::size_t i = 0; i < 2; ++i) expect_same_bits(again[i].second, parameters[i].second);
  }
  StateDict twice = optimizer->state();
  twice.set("parameters", StateList{StateList{std::string("other"), std::string("other")}});
  EXPECT_THROW(spec.make(flat)->load_state(twice), CheckpointError);
  twice.set("parameters", StateList{StateList{std::string("nowhere")}});
  EXPECT_THROW(spec.make(flat)->load_state(twice), CheckpointError);
}

// Its state is missing then, and not every optimizer of torch makes one in step().
TEST(TorchOptimizer, EveryKindTrainsAParameterThatItGetsLater) {
  const std::vector<OptimizerSpec> specs = {
      spec_of<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.5)),
      spec_of<torch::optim::Adam>(torch::optim::AdamOptions(0.1).amsgrad(true)),
      spec_of<torch::optim::AdamW>(torch::optim::AdamWOptions(0.1)),
      spec_of<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.1).momentum(0.5)),
      spec_of<torch::optim::Adagrad>(
          torch::optim::AdagradOptions(0.1).initial_accumulator_value(0.5))};
  struct Run {
    Run(const OptimizerSpec& spec, bool is_frozen)
        : first(torch::ones({4}).requires_grad_()),
          later(torch::ones({4}).requires_grad_(!is_frozen)),
          flat(NamedTensors{{"first", first}, {"later", later}}),
          optimizer(spec.make(flat)) {}
    void step() {
      flat.make_unfrozen_trainable();
      (first.sum() + 3 * later.sum()).backward();
      optimizer->step();
    }
    torch::Tensor first, later;
    FlatParameters flat;
    std::unique_ptr<Optimizer> optimizer;
  };
  for (std::size_t i = 0; i < specs.size(); ++i) {
    SCOPED_TRACE(i);
    Run expected(specs[i], /*is_frozen=*/false);
    expected.step();

    Run unfrozen(specs[i], /*is_frozen=*/true);
    unfrozen.step();
    const StateDict before = unfrozen.optimizer->state();
    unfrozen.later.requires_grad_(true);
    unfrozen.step();
    expect_same_bits(unfrozen.later, expected.later);

    Run resumed(specs[i], /*is_frozen=*/false);
    resumed.optimizer->load_state(before);
    resumed.step();
    expect_same_bits(resumed.later, expected.later);
  }
}

// Ranks compare it, because different options would make their weights differ.
TEST(TorchOptimizer, TheTextOfOneThatAFunctionMadeHasAllOptions) {
  const auto text = [](const torch::optim::AdamWOptions& options) {
    return Training(spec_of<torch::optim::AdamW>(options), torch::kFloat32).optimizer->describe();
  };
  using Options = torch::optim::AdamWOptions;
  const std::string plain = text(Options(0.1));
  EXPECT_EQ(text(Options(0.1)), plain);
  EXPECT_THAT(plain, ::testing::AllOf(::testing::StartsWith("torch::optim::AdamW("),
                                      ::testing::HasSubstr("lr=0.1"),
                                      ::testing::HasSubstr("betas=(0.9, 0.999)")));
  for (const Options& other :
       {Options(0.2), Options(0.1).weight_decay(0.2), Options(0.1).betas({0.9, 0.99}),
        Options(0.1).eps(1e-7), Options(0.1).amsgrad(true)}) {
    EXPECT_NE(text(other), plain);
  }
}

TEST(TorchOptimizer, RefusesOtherParameters) {
  Problem problem(torch::kFloat32);
  std::vector<torch::Tensor> tensors{problem.parameters()[0].second,
                                     torch::ones({4, 2}).requires_grad_()};
  FlatParameters flat(problem.parameters());
  const OptimizerSpec spec(std::make_shared<torch::optim::SGD>(tensors, 0.1));
  EXPECT_EQ(message_of<ConfigError>([&] { spec.make(flat); }),
            "optimizer torch::optim::SGD: 1 of its 2 parameters are not trainable parameters of "
            "the model; the first of them has shape [4, 2]");
}

TEST(TorchOptimizer, RefusesLBFGS) {
  EXPECT_THAT(config_error(spec_of<torch::optim::LBFGS>(torch::optim::LBFGSOptions())),
              ::testing::HasSubstr("optimizer torch::optim::LBFGS: expected one that steps"));
}

TEST(TorchOptimizer, RefusesAStateThatDoesNotFit) {
  const auto sgd = spec_of<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
  Training training(sgd, torch::kFloat32);
  training.run(1, 2);
  EXPECT_EQ(message_of<CheckpointError>([&] {
              Training(Adam{}, torch::kFloat32).optimizer->load_state(training.optimizer->state());
            }),
            "optimizer Adam: expected its own state, found that of torch::optim::SGD");
  StateDict damaged = training.optimizer->state();
  damaged.set("archive", torch::zeros({16}, torch::kUInt8));
  EXPECT_THAT(message_of<CheckpointError>([&] { training.optimizer->load_state(damaged); }),
              ::testing::HasSubstr("its state does not fit"));
}

// A user's first version: options without serialize(), an optimizer without save().
struct OwnOptions : torch::optim::OptimizerCloneableOptions<OwnOptions> {
  double lr = 0.1;
  double get_lr() const override { return lr; }
  void set_lr(const double value) override { lr = value; }
};

class OwnOptimizer : public torch::optim::Optimizer {
 public:
  explicit OwnOptimizer(std::vector<torch::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<OwnOptions>()) {}
  torch::Tensor step(LossClosure) override { return {}; }
};

TEST(TorchOptimizer, OneThatCannotBeSavedSaysSoBeforeItIsNeeded) {
  const OptimizerSpec own = [](std::vector<torch::Tensor> parameters) {
    return std::make_unique<OwnOptimizer>(std::move(parameters));
  };
  const Training training(own, torch::kFloat32);
  EXPECT_THAT([&] { training.optimizer->check_state(); },
              ::testing::ThrowsMessage<ConfigError>(
                  ::testing::AllOf(::testing::HasSubstr("OwnOptimizer: its state cannot be saved"),
                                   ::testing::HasSubstr("save()"), ::testing::HasSubstr("kModel"),
                                   ::testing::Not(::testing::HasSubstr("frame #")))));
  const Training adam(spec_of<torch::optim::Adam>(torch::optim::AdamOptions(0.02)),
                      torch::kFloat32);
  adam.optimizer->check_state();
  EXPECT_THAT(training.optimizer->describe(), ::testing::HasSubstr("OwnOptimizer(lr=0.1)"));
  Training(Adam{}, torch::kFloat32).optimizer->check_state();
}

// The key of a parameter's state is text or a pointer, depending on the version of LibTorch.
template <typename States>
auto& state_of(States& states, const torch::Tensor& parameter) {
  if constexpr (std::is_same_v<typename States::key_type, std::string>) {
    return states[c10::str(parameter.unsafeGetTensorImpl())];
  } else {
    return states[parameter.unsafeGetTensorImpl()];
  }
}

// With all that is needed to save it.
struct SavedOptions : torch::optim::OptimizerCloneableOptions<SavedOptions> {
  explicit SavedOptions(double lr) : lr(lr) {}
  double lr;
  double get_lr() const override { return lr; }
  void set_lr(const double value) override { lr = value; }
  void serialize(torch::serialize::InputArchive& archive) override {
    c10::IValue value;
    archive.read("lr", value);
    lr = value.toDouble();
  }
  void serialize(torch::serialize::OutputArchive& archive) const override {
    archive.write("lr", c10::IValue(lr));
  }
};

struct SavedState : torch::optim::OptimizerCloneableParamState<SavedState> {
  torch::Tensor velocity;
  void serialize(torch::serialize::InputArchive& archive) override {
    archive.read("velocity", velocity, /*is_buffer=*/true);
  }
  void serialize(torch::serialize::OutputArchive& archive) const override {
    archive.write("velocity", velocity, /*is_buffer=*/true);
  }
};

class SavedOptimizer : public torch::optim::Optimizer {
 public:
  SavedOptimizer(std::vector<torch::Tensor> parameters, double lr)
      : Optimizer(std::move(parameters), std::make_unique<SavedOptions>(lr)) {}

  torch::Tensor step(LossClosure) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups_) {
      for (torch::Tensor& parameter : group.params()) {
        if (!parameter.grad().defined()) continue;
        auto& state = state_of(state_, parameter);
        if (state == nullptr) {
          state = std::make_unique<SavedState>();
          static_cast<SavedState&>(*state).velocity = torch::zeros_like(parameter);
        }
        torch::Tensor& velocity = static_cast<SavedState&>(*state).velocity;
        velocity.mul_(0.9).add_(parameter.grad());
        parameter.sub_(velocity, group.options().get_lr());
      }
    }
    return {};
  }
  void save(torch::serialize::OutputArchive& archive) const override {
    torch::optim::serialize<SavedState, SavedOptions>(archive, *this);
  }
  void load(torch::serialize::InputArchive& archive) override {
    torch::optim::serialize<SavedState, SavedOptions>(archive, *this);
  }
};

TEST(TorchOptimizer, AUsersClassThatCanBeSavedResumesToTheBit) {
  const auto spec = [](double lr) -> OptimizerSpec {
    return [lr](std::vector<torch::Tensor> parameters) {
      return std::make_unique<SavedOptimizer>(std::move(parameters), lr);
    };
  };
  expect_resumes(spec(0.02), spec(0.1));
  const Training training(spec(0.02), torch::kFloat32);
  training.optimizer->check_state();
}

}  // namespace
}  // namespace lockstep::optim
