#include "lockstep/optim/flat_optimizer.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;
using ::testing::HasSubstr;

// The state of an Adam, in the form of version 0.1.0, whose exp_avg was changed.
StateDict changed_state(const std::function<void(StateDict&)>& change) {
  Training training(Adam{}, torch::kFloat32);
  training.run(1, 2);
  StateDict state = as_version_0_1(training.optimizer->state());
  auto tensors = state.get<StateDict>("exp_avg");
  change(tensors);
  state.set("exp_avg", tensors);
  return state;
}

std::string refusal(const OptimizerSpec& spec, const StateDict& state) {
  Training training(spec, torch::kFloat32);
  training.run(1, 3);
  const StateDict before = training.optimizer->state();
  const std::string message =
      message_of<CheckpointError>([&] { training.optimizer->load_state(state); });
  const StateDict after = training.optimizer->state();
  EXPECT_EQ(after.get<std::int64_t>("step"), 3) << "a refused state changed the optimizer";
  EXPECT_EQ(after.get<double>("lr"), before.get<double>("lr"));
  return message;
}

TEST(FlatOptimizer, RefusesAnotherOptimizersState) {
  Training training(SGD{}, torch::kFloat32);
  EXPECT_EQ(refusal(Adam{}, training.optimizer->state()),
            "optimizer Adam: expected its own state, found that of SGD");
}

TEST(FlatOptimizer, RefusesAStateOfOtherParameters) {
  StateDict missing = changed_state([](StateDict& tensors) {
    StateDict fewer;
    fewer.set("weight", tensors.at("weight"));
    fewer.set("bias", tensors.at("bias"));
    tensors = fewer;
  });
  EXPECT_EQ(refusal(Adam{}, missing),
            "optimizer Adam: exp_avg: nothing for the model's parameter scale");
  EXPECT_THAT(refusal(Adam{}, changed_state([](StateDict& tensors) {
                        tensors.set("biases", torch::zeros({7}));
                      })),
              HasSubstr("exp_avg: the model has no parameter biases; did you mean 'bias'"));
}

TEST(FlatOptimizer, RefusesAnotherShapeOrType) {
  EXPECT_EQ(refusal(Adam{}, changed_state([](StateDict& tensors) {
                      tensors.set("weight", torch::zeros({5, 3}));
                    })),
            "optimizer Adam: exp_avg: parameter weight: expected Float [3, 5], found Float [5, 3]");
  EXPECT_EQ(refusal(Adam{}, changed_state([](StateDict& tensors) {
                      tensors.set("bias", torch::zeros({7}, torch::kFloat64));
                    })),
            "optimizer Adam: exp_avg: parameter bias: expected Float [7], found Double [7]");
}

TEST(FlatOptimizer, RefusesAStateThatLacksABuffer) {
  Training training(Adam{}, torch::kFloat32);
  StateDict state = training.optimizer->state();
  state.set("amsgrad", true);
  EXPECT_EQ(refusal(Adam{}, state), "optimizer Adam: no 'max_exp_avg_sq' in its state");
}

TEST(FlatOptimizer, RefusesABadHyperParameter) {
  Training training(Adam{}, torch::kFloat32);
  StateDict state = training.optimizer->state();
  state.set("beta1", 1.5);
  EXPECT_EQ(refusal(Adam{}, state),
            "in the state of an optimizer: optimizer Adam: beta1: expected a number in [0, 1), "
            "got 1.5");
}

TEST(FlatOptimizer, LeavesScaledGradientsWhereAsked) {
  Training training(SGD{.lr = 0.5}, torch::kFloat64);
  const torch::Tensor before = training.problem.weights();
  training.problem.add_grads(1);
  const torch::Tensor grads = training.flat.buffers()[0].grads.clone();
  training.optimizer->step({.grad_scale = 0.25, .zero_grad = false});
  expect_same_bits(training.flat.buffers()[0].grads, grads * 0.25);
  const torch::Tensor bias_grad = training.problem.parameters()[1].second.grad();
  expect_same_bits(training.problem.weights().narrow(0, 15, 7),
                   before.narrow(0, 15, 7) - 0.5 * bias_grad);
  training.optimizer->step();
  EXPECT_EQ(training.flat.grad_norm(), 0.0);
}

// Parameters that take part only in some steps: in all; in odd steps; in none; frozen in steps 4
// and 5; frozen until step 3.
class Changing {
 public:
  Changing() {
    for (const char* name : {"always", "odd", "never", "paused", "late"}) {
      const auto size = static_cast<std::int64_t>(5 + 7 * parameters_.size());
      parameters_.emplace_back(name, torch::cos(torch::arange(size) * 0.7).requires_grad_());
    }
    of("late").requires_grad_(false);
  }

  const NamedTensors& parameters() const { return parameters_; }
  torch::Tensor of(const std::string& name) const {
    return std::ranges::find(parameters_, name, &NamedTensors::value_type::first)->second;
  }
  std::vector<torch::Tensor> tensors() const {
    std::vector<torch::Tensor> all;
    for (const auto& [name, tensor] : parameters_) all.push_back(tensor);
    return all;
  }

  // Call it before the step's backward(), because gradients get their memory there.
  void freeze(int step) const {
    of("paused").requires_grad_(step != 4 && step != 5);
    if (step == 3) of("late").requires_grad_(true);
  }

  void backward(int step) const {
    torch::Tensor loss = torch::zeros({});
    for (const auto& [name, tensor] : parameters_) {
      if (name == "never" || (name == "odd" && step % 2 == 0)) continue;
      const torch::Tensor factors = torch::sin(torch::arange(tensor.numel()) * 0.3 + step);
      loss = loss + (tensor * factors).sum();
    }
    loss.backward();
  }

  void run(FlatParameters& flat, Optimizer& optimizer, int first, int last) const {
    for (int step = first; step <= last; ++step) {
      freeze(step);
      flat.make_unfrozen_trainable();
      backward(step);
      optimizer.step({.grad_scale = 0.5});
    }
  }

  // The same with a torch optimizer, whose gradients are none before each step.
  void run(torch::optim::Optimizer& optimizer, int first, int last) const {
    for (int step = first; step <= last; ++step) {
      freeze(step);
      for (const auto& [name, tensor] : parameters_) tensor.mutable_grad().reset();
      backward(step);
      for (const auto& [name, tensor] : parameters_) {
        if (tensor.grad().defined()) tensor.mutable_grad().mul_(0.5);
      }
      optimizer.step();
    }
  }

  void expect_close(const Changing& other) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      EXPECT_TRUE(torch::allclose(parameters_[i].second, other.parameters_[i].second, 1e-5, 1e-6))
          << parameters_[i].first;
    }
  }

 private:
  NamedTensors parameters_;
};

using TorchFactory =
    std::function<std::shared_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

std::vector<std::pair<OptimizerSpec, TorchFactory>> pairs() {
  using namespace torch::optim;
  const auto torchs = [](auto options, auto* type) {
    return [options](std::vector<torch::Tensor> tensors) {
      return std::make_shared<std::remove_pointer_t<decltype(type)>>(std::move(tensors), options);
    };
  };
  return {
      {lockstep::optim::Adam{.lr = 0.1, .weight_decay = 0.2, .amsgrad = true},
       torchs(AdamOptions(0.1).weight_decay(0.2).amsgrad(true), (torch::optim::Adam*)nullptr)},
      {lockstep::optim::AdamW{.lr = 0.1, .weight_decay = 0.2},
       torchs(AdamWOptions(0.1).weight_decay(0.2), (torch::optim::AdamW*)nullptr)},
      {lockstep::optim::SGD{.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.2},
       torchs(SGDOptions(0.1).momentum(0.9).dampening(0.5).weight_decay(0.2),
              (torch::optim::SGD*)nullptr)},
      {lockstep::optim::RMSprop{.lr = 0.1, .weight_decay = 0.2, .momentum = 0.5, .centered = true},
       torchs(RMSpropOptions(0.1).weight_decay(0.2).momentum(0.5).centered(true),
              (torch::optim::RMSprop*)nullptr)},
      {lockstep::optim::Adagrad{.lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.2},
       torchs(AdagradOptions(0.1).lr_decay(0.1).weight_decay(0.2),
              (torch::optim::Adagrad*)nullptr)},
  };
}

TEST(FlatOptimizer, WhatTheLossDidNotUseIsLeftAloneAsByTorch) {
  for (const auto& [spec, torchs] : pairs()) {
    const Changing ours;
    FlatParameters flat(ours.parameters());
    const auto optimizer = spec.make(flat);
    SCOPED_TRACE(optimizer->name());
    const Changing theirs;
    const auto reference = torchs(theirs.tensors());
    const torch::Tensor never = ours.of("never").detach().clone();
    const torch::Tensor late = ours.of("late").detach().clone();
    ours.run(flat, *optimizer, 1, 2);
    EXPECT_TRUE(ours.of("late").detach().equal(late));
    ours.run(flat, *optimizer, 3, 3);
    EXPECT_FALSE(ours.of("late").detach().equal(late));
    const torch::Tensor paused = ours.of("paused").detach().clone();
    ours.run(flat, *optimizer, 4, 5);
    EXPECT_TRUE(ours.of("paused").detach().equal(paused));
    ours.run(flat, *optimizer, 6, 8);
    theirs.run(*reference, 1, 8);
    ours.expect_close(theirs);
    EXPECT_TRUE(ours.of("never").detach().equal(never)) << "no weight decay either";
  }
}

TEST(FlatOptimizer, ResumesWithStepsOfEachParameter) {
  for (const auto& [spec, torchs] : pairs()) {
    for (const int stop : {2, 4, 5}) {
      const Changing straight;
      FlatParameters flat(straight.parameters());
      const auto optimizer = spec.make(flat);
      SCOPED_TRACE(fmt::format("{} stopped after {}", optimizer->name(), stop));
      straight.run(flat, *optimizer, 1, stop);
      const StateDict state = optimizer->state();
      const Changing resumed;  // begins with "late" frozen again
      FlatParameters flat_again(resumed.parameters());
      const auto optimizer_again = spec.make(flat_again);
      {
        const torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < 5; ++i) {
          resumed.parameters()[i].second.copy_(straight.parameters()[i].second);
        }
      }
      optimizer_again->load_state(state);
      if (stop > 3) resumed.freeze(3);
      straight.run(flat, *optimizer, stop + 1, 8);
      resumed.run(flat_again, *optimizer_again, stop + 1, 8);
      for (std::size_t i = 0; i < 5; ++i) {
        expect_same_bits(resumed.parameters()[i].second, straight.parameters()[i].second);
      }
    }
  }
}

// As on ranks of which only one has read the file.
TEST(FlatOptimizer, ResumesFromASmallStateAndTensorsThatAreSent) {
  std::vector<OptimizerSpec> specs = {Adagrad{.initial_accumulator_value = 0.5}};
  for (const auto& [spec, torchs] : pairs()) specs.push_back(spec);
  for (const OptimizerSpec& spec : specs) {
    const Changing first;
    FlatParameters flat(first.parameters());
    const auto reader = spec.make(flat);
    SCOPED_TRACE(reader->name());
    first.run(flat, *reader, 1, 4);
    const StateDict small = reader->without_tensors(reader->state());
    for (const auto& [key, value] : small) {
      const StateDict* const slot = value.get_if<StateDict>();
      if (slot == nullptr) continue;
      for (const auto& [name, held] : *slot) EXPECT_EQ(held.get_if<torch::Tensor>(), nullptr);
    }
    const Changing second;
    FlatParameters flat_again(second.parameters());
    const auto other = spec.make(flat_again);
    for (const torch::Tensor& tensor : other->tensors()) torch::Tensor(tensor).fill_(3);
    const auto before = other->tensors();
    other->load_state(small);
    for (const torch::Tensor& tensor : before) {
      EXPECT_TRUE(tensor.eq(3).all().item<bool>()) << "memory that another rank may have filled";
      EXPECT_TRUE(std::ranges::any_of(other->tensors(), [&](const torch::Tensor& kept) {
        return kept.data_ptr() == tensor.data_ptr();
      })) << "the memory is used again";
    }
    const auto sent = reader->tensors(), received = other->tensors();
    ASSERT_EQ(sent.size(), received.size());
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < sent.size(); ++i) received[i].copy_(sent[i]);
      for (std::size_t i = 0; i < 5; ++i) {
        second.parameters()[i].second.copy_(first.parameters()[i].second);
      }
    }
    second.freeze(3);
    first.run(flat, *reader, 5, 8);
    second.run(flat_again, *other, 5, 8);
    for (std::size_t i = 0; i < 5; ++i) {
      expect_same_bits(second.parameters()[i].second, first.parameters()[i].second);
    }
  }
}

// A state of version 0.1.0 had neither "steps" nor anything for frozen parameters.
TEST(FlatOptimizer, ReadsAStateWithoutFrozenParameters) {
  const Changing first;
  FlatParameters flat(first.parameters());
  const auto optimizer = OptimizerSpec(Adam{}).make(flat);
  first.run(flat, *optimizer, 1, 1);
  const StateDict state = as_version_0_1(optimizer->state());
  EXPECT_FALSE(state.get<StateDict>("exp_avg").contains("late"));
  StateDict old;
  for (const auto& [key, value] : state) {
    if (key != "steps") old.set(key, value);
  }
  auto exp_avg = old.get<StateDict>("exp_avg"), exp_avg_sq = old.get<StateDict>("exp_avg_sq");
  for (StateDict* const slot : {&exp_avg, &exp_avg_sq}) {
    slot->set("never", torch::zeros_like(first.of("never").detach()));  // had tensors of zeros
  }
  old.set("exp_avg", exp_avg);
  old.set("exp_avg_sq", exp_avg_sq);
  const Changing second;
  FlatParameters flat_again(second.parameters());
  const auto optimizer_again = OptimizerSpec(Adam{}).make(flat_again);
  optimizer_again->load_state(old);
  EXPECT_EQ(optimizer_again->state().get<StateDict>("steps").get<std::int64_t>("late"), 0);
}

TEST(FlatOptimizer, TrainsOtherTypesWithTorchOperations) {
  // bfloat16 has 8 bits: with lr 0.25 in 6 steps, rounding may change a weight by 2 %.
  const Adam options{.lr = 0.25};
  Training half(options, torch::kBFloat16);
  Training full(options, torch::kFloat32);
  half.run(1, 6);
  full.run(1, 6);
  const torch::Tensor moved = (full.problem.weights() - Problem(torch::kFloat32).weights()).abs();
  EXPECT_GT(moved.max().item<double>(), 0.5);
  EXPECT_TRUE(torch::allclose(half.problem.weights().to(torch::kFloat32), full.problem.weights(),
                              0.02, 0.02));
}

TEST(FlatOptimizer, UpdatesTypesSideBySide) {
  const torch::Tensor single = torch::ones({3}).requires_grad_();
  const torch::Tensor twofold = torch::ones({3}, torch::kFloat64).requires_grad_();
  FlatParameters flat({{"single", single}, {"double", twofold}});
  const auto optimizer = OptimizerSpec(SGD{.lr = 0.5, .momentum = 0.5}).make(flat);
  (single.sum() + 2.0 * twofold.sum()).backward();
  optimizer->step();
  EXPECT_TRUE(torch::equal(single, torch::full({3}, 0.5)));
  EXPECT_TRUE(torch::equal(twofold, torch::zeros({3}, torch::kFloat64)));
  const StateDict buffers = tensors_in(optimizer->state(), "momentum_buffer");
  EXPECT_EQ(buffers.get<torch::Tensor>("double").scalar_type(), torch::kFloat64);
  EXPECT_EQ(buffers.get<torch::Tensor>("single").scalar_type(), torch::kFloat32);
}

TEST(FlatOptimizer, AGraphFromBeforeAnUpdateIsRefused) {
  const torch::Tensor parameter = torch::ones({3}).requires_grad_();
  FlatParameters flat({{"p", parameter}});
  const auto optimizer = OptimizerSpec(SGD{}).make(flat);
  const torch::Tensor loss = (parameter * parameter).sum();
  optimizer->step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

// Parameters of odd sizes, so that there is padding between them.
NamedTensors layers(const torch::Tensor& values) {
  NamedTensors parameters;
  std::int64_t offset = 0;
  for (const auto& [name, size] :
       {std::pair("0.weight", 37), {"0.bias", 5}, {"2.weight", 300}, {"2.bias", 3}}) {
    parameters.push_back({name, values.narrow(0, offset, size).clone().requires_grad_()});
    offset += size;
  }
  return parameters;
}

// The values after three steps.
torch::Tensor trained(const NamedTensors& parameters, Optimizer& optimizer) {
  for (int step = 0; step < 3; ++step) {
    for (const auto& [name, parameter] : parameters) {
      parameter.mutable_grad().copy_(torch::sin(torch::arange(parameter.numel()) * 0.3 + step));
    }
    optimizer.step();
  }
  std::vector<torch::Tensor> values;
  for (const auto& [name, parameter] : parameters) values.push_back(parameter.detach().clone());
  return torch::cat(values);
}

TEST(FlatOptimizer, SettingsByNameAreThoseOfTorchsGroups) {
  const torch::Tensor values = torch::cos(torch::arange(345) * 0.1);
  const auto ours = layers(values);
  FlatParameters flat(ours);
  const auto optimizer =
      OptimizerSpec(AdamW{.lr = 0.1, .weight_decay = 0.5},
                    {{.names = "*.bias", .weight_decay = 0}, {.names = "2.*", .lr = 0.01}})
          .make(flat);
  const auto theirs = layers(values);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  const auto group = [&](std::size_t index, double lr, double weight_decay) {
    auto options = std::make_unique<torch::optim::AdamWOptions>(lr);
    options->weight_decay(weight_decay);
    groups.emplace_back(std::vector<torch::Tensor>{theirs[index].second}, std::move(options));
  };
  group(0, 0.1, 0.5);
  group(1, 0.1, 0);
  group(2, 0.01, 0.5);
  group(3, 0.01, 0);
  torch::optim::AdamW reference(groups, torch::optim::AdamWOptions(0.1));
  for (int step = 0; step < 3; ++step) {
    for (const auto& [name, parameter] : theirs) {
      parameter.mutable_grad() = torch::sin(torch::arange(parameter.numel()) * 0.3 + step);
    }
    reference.step();
  }
  std::vector<torch::Tensor> expected;
  for (const auto& [name, parameter] : theirs) expected.push_back(parameter.detach());
  EXPECT_TRUE(torch::allclose(trained(ours, *optimizer), torch::cat(expected), 1e-6, 1e-7));
}

TEST(FlatOptimizer, SettingsKeepTheirRatioAndTheLaterCounts) {
  const auto parameters = layers(torch::ones({345}));
  FlatParameters flat(parameters);
  const auto optimizer =
      OptimizerSpec(SGD{.lr = 1}, {{.names = "*", .lr = 0.5}, {.names = "2.bias", .lr = 0.25}})
          .make(flat);
  optimizer->set_lr(0.1);  // as a scheduler does
  for (const auto& [name, parameter] : parameters) parameter.mutable_grad().fill_(1);
  optimizer->step();
  EXPECT_NEAR(parameters[0].second[0].item<double>(), 1 - 0.05, 1e-6);
  EXPECT_NEAR(parameters[3].second[0].item<double>(), 1 - 0.025, 1e-6);
}

TEST(FlatOptimizer, SettingsHoldForASharesUpdate) {
  const auto whole = layers(torch::ones({345}));
  const auto shared = layers(torch::ones({345}));
  FlatParameters flat_whole(whole), flat_shared(shared);
  const OptimizerSpec spec(SGD{.lr = 1}, {{.names = "*.bias", .lr = 0.5}});
  const auto one = spec.make(flat_whole);
  const auto many = spec.make(flat_shared);
  for (const auto* parameters : {&whole, &shared}) {
    for (const auto& [name, parameter] : *parameters) parameter.mutable_grad().fill_(1);
  }
  one->step();
  // Each part is a step of another rank, which does not know that the gradients were used before.
  flat_shared.collect_grads();
  for (int part = 0; part < 3; ++part) {
    many->step({.zero_grad = false, .part = {.index = part, .count = 3}});
  }
  for (std::size_t i = 0; i < whole.size(); ++i)
    EXPECT_TRUE(whole[i].second.equal(shared[i].second)) << whole[i].first;
}

// Ranks may share the memory of the state. A rank that makes a buffer trainable later than the
// others must not write initial values over elements that another rank has updated already.
TEST(FlatOptimizer, ABufferThatWakesUpIsFilledByParts) {
  const NamedTensors parameters{{"early", torch::ones({4}).requires_grad_()},
                                {"late", torch::ones({100'000})}};
  std::vector<torch::Tensor> made;
  FlatParameters flat(parameters,
                      {.memory = [&](std::int64_t count, const torch::TensorOptions& like) {
                        return made.emplace_back(torch::zeros({count}, like));
                      }});
  const auto optimizer =
      OptimizerSpec(Adagrad{.lr = 0.1, .initial_accumulator_value = 0.5}).make(flat);
  parameters[1].second.requires_grad_(true);
  flat.make_unfrozen_trainable();
  (parameters[0].second.sum() + parameters[1].second.sum()).backward();
  flat.collect_grads();
  const Part half{.index = 0, .count = 2};
  optimizer->step({.zero_grad = false, .part = half});
  const torch::Tensor sums = made.back();
  const ElementRange own = range_of(half, sums.numel());
  ASSERT_GT(own.size(), 0);
  ASSERT_LT(own.end, sums.numel());
  EXPECT_TRUE(sums.narrow(0, 0, own.end).ge(0.5).all().item<bool>());
  EXPECT_TRUE(sums.narrow(0, own.end, sums.numel() - own.end).eq(0).all().item<bool>());
}

// A parameter that is unfrozen after a resume begins with the checkpoint's initial value.
TEST(FlatOptimizer, FirstValuesAreTheCheckpoints) {
  const Changing first;
  FlatParameters flat(first.parameters());
  const auto optimizer =
      OptimizerSpec(Adagrad{.lr = 0.1, .initial_accumulator_value = 0.5}).make(flat);
  first.run(flat, *optimizer, 1, 2);
  const Changing second;
  FlatParameters flat_again(second.parameters());
  const auto resumed = OptimizerSpec(Adagrad{.lr = 0.1}).make(flat_again);
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < 5; ++i) {
      second.parameters()[i].second.copy_(first.parameters()[i].second);
    }
  }
  resumed->load_state(optimizer->state());
  first.run(flat, *optimizer, 3, 4);
  second.run(flat_again, *resumed, 3, 4);
  expect_same_bits(second.of("late"), first.of("late"));
}

TEST(FlatOptimizer, AFactorOfTheLearningRateFollowsIt) {
  const auto moved = [](const ParameterSettings& settings) {
    const auto parameters = layers(torch::ones({345}));
    FlatParameters flat(parameters);
    return trained(parameters, *OptimizerSpec(SGD{.lr = 0.5}, {settings}).make(flat));
  };
  expect_same_bits(moved({.names = "2.*", .lr_factor = 0.25}),
                   moved({.names = "2.*", .lr = 0.125}));
}

// The engine freezes them; see tests/callback/freeze_test.cpp.
TEST(FlatOptimizer, TheLastSettingSaysWhatIsFrozen) {
  const OptimizerSpec spec(
      SGD{}, {{.names = "*", .frozen = true}, {.names = "2.*", .lr = 0.1, .frozen = false}});
  EXPECT_TRUE(spec.freezes("0.weight"));
  EXPECT_FALSE(spec.freezes("2.weight"));
  EXPECT_TRUE(OptimizerSpec(Lookahead{.optimizer = spec}).freezes("0.weight"));
  EXPECT_FALSE(OptimizerSpec(SGD{}).freezes("0.weight"));
}

TEST(FlatOptimizer, SettingsThatCannotBeAreRefused) {
  const auto refused = [](const std::vector<ParameterSettings>& settings, double lr = 0.1) {
    const auto parameters = layers(torch::ones({345}));
    FlatParameters flat(parameters);
    return message_of<ConfigError>([&] { OptimizerSpec(SGD{.lr = lr}, settings).make(flat); });
  };
  EXPECT_THAT(refused({{.names = "encoder.*", .lr = 1}}),
              HasSubstr("'encoder.*' matches no parameter; there are 0.weight"));
  EXPECT_THAT(refused({{.names = "*", .lr = -1}}), HasSubstr("lr of *: expected a number >= 0"));
  EXPECT_THAT(refused({{.names = "*", .weight_decay = -1}}), HasSubstr("weight_decay of *"));
  EXPECT_THAT(refused({{.names = "*", .lr = 1}}, 0), HasSubstr("lr: expected a number > 0"));
  EXPECT_THAT(refused({{.names = "*", .lr_factor = -1}}), HasSubstr("lr_factor of *"));
  EXPECT_THAT(refused({{.names = "*", .lr = 1, .lr_factor = 2}}),
              HasSubstr("'*': expected lr or lr_factor, got both"));
}

}  // namespace
}  // namespace lockstep::optim
