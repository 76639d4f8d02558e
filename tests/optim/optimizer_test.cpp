#include "lockstep/optim/optimizer.h"

#include <map>

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;

struct RunOptions {
  OptimizerSpec optimizer;
};

std::string made(const RunOptions& options) {
  return Training(options.optimizer, torch::kFloat32).optimizer->name();
}

// A class of a user: gradient descent with momentum.
class Heavy : public Optimizer {
 public:
  Heavy(FlatParameters& parameters, double lr) : parameters_(parameters), lr_(lr) {}

  std::string name() const override { return "Heavy"; }
  void step(const StepOptions& options) override {
    update_each(parameters_, options, [this](const auto& slice, const torch::Tensor& gradient) {
      torch::Tensor& velocity = velocities_[slice.name];
      velocity = velocity.defined() ? 0.5 * velocity + gradient : gradient.clone();
      slice.parameter.sub_(velocity, lr_);
    });
  }
  double lr() const override { return lr_; }
  void set_lr(double lr) override { lr_ = lr; }
  StateDict state() const override {
    StateDict velocities;
    for (const auto& [name, velocity] : velocities_) velocities.set(name, velocity.clone());
    return {{"name", name()}, {"lr", lr_}, {"velocities", velocities}};
  }
  void load_state(const StateDict& state) override {
    lr_ = state.get<double>("lr");
    velocities_.clear();
    const auto saved = state.get<StateDict>("velocities");
    for (const auto& name : saved.keys())
      velocities_[name] = saved.get<torch::Tensor>(name).clone();
  }

 private:
  FlatParameters& parameters_;
  double lr_;
  std::map<std::string, torch::Tensor> velocities_;
};

OptimizerSpec heavy(double lr) {
  return [lr](FlatParameters& parameters) { return std::make_unique<Heavy>(parameters, lr); };
}

TEST(OptimizerSpec, IsMadeOfAUsersClass) {
  EXPECT_EQ(made({.optimizer =
                      [](FlatParameters& parameters) {
                        return std::make_unique<Heavy>(parameters, 0.1);
                      }}),
            "Heavy");
  EXPECT_EQ(config_error([](FlatParameters&) { return std::unique_ptr<Optimizer>(); }),
            "optimizer: expected a function that makes one, it returned null");
}

TEST(Optimizer, GoesBackToAnEarlierPace) {
  for (const OptimizerSpec& spec :
       std::vector<OptimizerSpec>{heavy(0.1), SGD{.lr = 0.1, .momentum = 0.5}}) {
    Training training(spec, torch::kFloat32);
    Optimizer& optimizer = *training.optimizer;
    const OptimizerPace pace = optimizer.pace();
    EXPECT_EQ(pace.lrs, std::vector{0.1});
    EXPECT_EQ(pace.momenta.size(), optimizer.momentum() ? 1U : 0U);
    optimizer.set_lr(0);
    if (optimizer.momentum()) optimizer.set_momentum(0.25);
    optimizer.set_pace(pace);
    EXPECT_TRUE(optimizer.pace() == pace);
  }
}

TEST(UpdateEach, DoesWhatAStepDoes) {
  Training own(heavy(0.02), torch::kFloat64);
  Training ours(SGD{.lr = 0.02, .momentum = 0.5}, torch::kFloat64);
  for (int step = 1; step <= 10; ++step) {
    for (Training* training : {&own, &ours}) {
      training->problem.add_grads(step);
      training->optimizer->step({.grad_scale = 0.25});
    }
  }
  EXPECT_TRUE(torch::allclose(own.problem.weights(), ours.problem.weights(), 1e-12, 1e-14));
  EXPECT_EQ(own.flat.grad_norm(), 0.0) << "the gradients are zero after a step";
  own.problem.add_grads(11);
  const double norm = own.flat.grad_norm();
  own.optimizer->step({.grad_scale = 0.5, .zero_grad = false});
  EXPECT_EQ(own.flat.grad_norm(), 0.5 * norm);
}

TEST(UpdateEach, LeavesUnusedParametersAlone) {
  const NamedTensors parameters{{"used", torch::ones({4}).requires_grad_()},
                                {"unused", torch::ones({4}).requires_grad_()},
                                {"frozen", torch::ones({4})}};
  FlatParameters flat(parameters);
  const auto optimizer = heavy(0.5).make(flat);
  parameters[0].second.sum().backward();
  optimizer->step();
  EXPECT_TRUE(torch::equal(parameters[0].second, torch::full({4}, 0.5)));
  EXPECT_EQ(optimizer->state().get<StateDict>("velocities").keys(),
            std::vector<std::string>{"used"});
  parameters[0].second.sum().backward();
  optimizer->step();
  EXPECT_EQ(optimizer->state().get<StateDict>("velocities").size(), 1u);
}

TEST(OptimizerSpec, AUsersClassResumesToTheBit) {
  expect_resumes(heavy(0.02), heavy(0.1));
}

TEST(Optimizer, HasNoMomentumUnlessItSaysSo) {
  const Training training(heavy(0.1), torch::kFloat32);
  EXPECT_EQ(training.optimizer->momentum(), std::nullopt);
  EXPECT_EQ(message_of<Error>([&] { training.optimizer->set_momentum(0.5); }),
            "optimizer Heavy: it has no momentum that could be set to 0.5");
}

TEST(OptimizerSpec, IsMadeOfEachAggregate) {
  EXPECT_EQ(made({.optimizer = Adam{.lr = 0.02}}), "Adam");
  EXPECT_EQ(made({.optimizer = AdamW{}}), "AdamW");
  EXPECT_EQ(made({.optimizer = SGD{.lr = 0.1}}), "SGD");
  EXPECT_EQ(made({.optimizer = RMSprop{}}), "RMSprop");
  EXPECT_EQ(made({.optimizer = Adagrad{}}), "Adagrad");
  EXPECT_EQ(made({.optimizer = RAdam{}}), "RAdam");
  EXPECT_EQ(made({.optimizer = NAdam{}}), "NAdam");
  EXPECT_EQ(made({.optimizer = Adamax{}}), "Adamax");
  EXPECT_EQ(made({.optimizer = Adadelta{}}), "Adadelta");
  EXPECT_EQ(made({.optimizer = Lion{}}), "Lion");
  EXPECT_EQ(made({.optimizer = Lamb{}}), "Lamb");
  EXPECT_EQ(made({.optimizer = Lookahead{.optimizer = Adam{}}}), "Lookahead");
}

TEST(OptimizerSpec, IsMadeOfAFunction) {
  EXPECT_EQ(made({.optimizer =
                      [](const std::vector<torch::Tensor>& parameters) {
                        EXPECT_EQ(parameters.size(), 3u);
                        return std::make_unique<torch::optim::SGD>(parameters, 0.1);
                      }}),
            "torch::optim::SGD");
}

TEST(OptimizerSpec, IsMadeOfAFunctionOfAnyParameter) {
  EXPECT_EQ(made({.optimizer =
                      [](auto parameters) {
                        return std::make_unique<torch::optim::SGD>(parameters, 0.1);
                      }}),
            "torch::optim::SGD");
}

TEST(OptimizerSpec, IsMadeOfATorchOptimizer) {
  Problem problem(torch::kFloat32);
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, parameter] : problem.parameters()) tensors.push_back(parameter);
  const RunOptions options{.optimizer = std::make_shared<torch::optim::Adam>(tensors)};
  FlatParameters flat(problem.parameters());
  EXPECT_EQ(options.optimizer.make(flat)->name(), "torch::optim::Adam");
}

TEST(OptimizerSpec, IsEmptyByDefault) {
  const RunOptions options;
  EXPECT_FALSE(options.optimizer);
  EXPECT_FALSE(options.optimizer.has_value());
  EXPECT_TRUE(OptimizerSpec(SGD{}).has_value());
  EXPECT_EQ(config_error(options.optimizer), "optimizer: expected one, got none");
}

TEST(OptimizerSpec, RefusesAModelWithNothingToTrain) {
  FlatParameters flat({{"frozen", torch::ones({3})}});
  EXPECT_EQ(message_of<ConfigError>([&] { OptimizerSpec(SGD{}).make(flat); }),
            "optimizer: the model has no parameter that requires a gradient");
}

TEST(OptimizerSpec, RefusesAFunctionThatMakesNothing) {
  EXPECT_EQ(config_error([](std::vector<torch::Tensor>) {
              return std::unique_ptr<torch::optim::Optimizer>();
            }),
            "optimizer: expected a torch optimizer, got null");
}

}  // namespace
}  // namespace lockstep::optim
