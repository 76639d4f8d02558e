#include "lockstep/optim/lookahead.h"

#include <gmock/gmock.h>

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;
using ::testing::HasSubstr;

TEST(Lookahead, FollowsThePaper) {
  expect_golden("Lookahead", [](const nlohmann::json& json) {
    const auto& inner = json["optimizer"][1];
    const OptimizerSpec optimizer =
        json["optimizer"][0] == "SGD"
            ? OptimizerSpec(SGD{.lr = inner["lr"], .momentum = inner["momentum"]})
            : OptimizerSpec(RAdam{.lr = inner["lr"]});
    return Lookahead{.optimizer = optimizer, .k = json["k"], .alpha = json["alpha"]};
  });
}

TEST(Lookahead, ResumesToTheBit) {
  // Nine steps are inside a cycle.
  expect_resumes(Lookahead{.optimizer = Adam{.lr = 0.02}, .k = 4},
                 Lookahead{.optimizer = Adam{}, .alpha = 0.1});
  const auto torchs = [](const std::vector<torch::Tensor>& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters,
                                               torch::optim::SGDOptions(0.02).momentum(0.9));
  };
  expect_resumes(Lookahead{.optimizer = torchs}, Lookahead{.optimizer = torchs});
}

TEST(Lookahead, ResumesFromASmallStateAndTensorsThatAreSent) {
  const Lookahead options{.optimizer = Adam{.lr = 0.02}};
  Training reader(options, torch::kFloat32);
  reader.run(1, 7);
  const StateDict small = reader.optimizer->without_tensors(reader.optimizer->state());
  Training other(options, torch::kFloat32);
  other.optimizer->load_state(small);
  const auto from = reader.optimizer->tensors();
  const auto to = other.optimizer->tensors();
  ASSERT_EQ(from.size(), 3u);  // two of Adam, and the slow weights
  ASSERT_EQ(to.size(), from.size());
  for (std::size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < 3; ++i) {
      other.problem.parameters()[i].second.copy_(reader.problem.parameters()[i].second);
    }
  }
  reader.run(8, 20);
  other.run(8, 20);
  expect_same_bits(other.problem.weights(), reader.problem.weights());
}

TEST(Lookahead, TakesRatesAndSettingsOfTheOptimizerInIt) {
  const OptimizerSpec spec = Lookahead{
      .optimizer = {SGD{.lr = 0.5, .momentum = 0.9}, {{.names = "bias", .lr = 0.0}}}, .k = 2};
  Training training(spec, torch::kFloat64);
  EXPECT_EQ(training.optimizer->lr(), 0.5);
  EXPECT_EQ(training.optimizer->momentum(), 0.9);
  training.optimizer->set_lr(0.25);
  training.optimizer->set_momentum(0.5);
  EXPECT_EQ(training.optimizer->lr(), 0.25);
  EXPECT_EQ(training.optimizer->momentum(), 0.5);
  EXPECT_TRUE(training.optimizer->steps_in_parts());
  const torch::Tensor before = training.problem.weights();
  training.run(1, 4);
  const torch::Tensor after = training.problem.weights();
  expect_same_bits(after.narrow(0, 15, 7), before.narrow(0, 15, 7));
  EXPECT_FALSE(torch::equal(after.narrow(0, 0, 15), before.narrow(0, 0, 15)));
}

// The slow weights of a parameter begin when it is trained for the first time.
TEST(Lookahead, BeginsWithTheValuesOfTheFirstStep) {
  const torch::Tensor early = torch::zeros({2}).requires_grad_();
  const torch::Tensor late = torch::zeros({2});
  FlatParameters flat({{"early", early}, {"late", late}});
  const auto optimizer =
      OptimizerSpec(Lookahead{.optimizer = SGD{.lr = 1.0}, .k = 2, .alpha = 0.5}).make(flat);
  const torch::NoGradGuard no_grad;
  early.fill_(4.0);  // loaded weights, for example
  early.mutable_grad().fill_(1.0);
  optimizer->step();
  late.fill_(8.0);
  late.requires_grad_();
  flat.make_unfrozen_trainable();
  early.mutable_grad().fill_(1.0);
  late.mutable_grad().fill_(2.0);
  optimizer->step();
  EXPECT_EQ(early[0].item<double>(), 3.0);  // half of the way from 4 to 2
  EXPECT_EQ(late[0].item<double>(), 7.0);   // half of the way from 8 to 6
}

// A weight that is frozen between two updates of the slow weights stays where it is. Both kinds of
// optimizers, and the first, the middle and the last parameter.
TEST(Lookahead, AFrozenWeightDoesNotMove) {
  const auto torchs = [](const std::vector<torch::Tensor>& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(1.0));
  };
  for (const OptimizerSpec& inner : {OptimizerSpec(SGD{.lr = 1.0}), OptimizerSpec(torchs)}) {
    for (std::size_t frozen = 0; frozen < 3; ++frozen) {
      std::vector<torch::Tensor> weights;
      for (int i = 0; i < 3; ++i) weights.push_back(torch::full({2}, 4.0).requires_grad_());
      FlatParameters flat({{"a", weights[0]}, {"b", weights[1]}, {"c", weights[2]}});
      const auto optimizer =
          OptimizerSpec(Lookahead{.optimizer = inner, .k = 2, .alpha = 0.5}).make(flat);
      const auto step = [&] {
        torch::Tensor loss = torch::zeros({1});
        for (const torch::Tensor& weight : weights) {
          if (weight.requires_grad()) loss = loss + weight.sum();
        }
        loss.backward();
        optimizer->step();
      };
      step();
      weights[frozen].requires_grad_(false);
      step();
      for (std::size_t i = 0; i < 3; ++i) {
        // Half of the way from 4 to 2, or the value after the first step. Both are 3.
        EXPECT_EQ(weights[i][0].item<double>(), 3.0);
      }
      step();
      weights[frozen].requires_grad_();
      step();
      for (std::size_t i = 0; i < 3; ++i) {
        // Thawed, it goes half of the way from the slow weight, 4, to 2.
        EXPECT_EQ(weights[i][1].item<double>(), i == frozen ? 3.0 : 2.0);
      }
    }
  }
}

TEST(Lookahead, IsDescribedWithAllNumbers) {
  const OptimizerSpec spec = Lookahead{.optimizer = Lion{.lr = 0.5}, .k = 3};
  const Training training(spec, torch::kFloat32);
  EXPECT_EQ(training.optimizer->describe(),
            "Lookahead(k=3, alpha=0.5, optimizer=Lion(lr=0.5, beta1=0.9, beta2=0.99, "
            "weight_decay=0))");
}

TEST(Lookahead, RefusesAnotherState) {
  const Lookahead options{.optimizer = SGD{}};
  Training training(options, torch::kFloat32);
  training.run(1, 2);
  const auto error = [&](const StateDict& state) {
    return message_of<CheckpointError>([&] { training.optimizer->load_state(state); });
  };
  EXPECT_EQ(error(Training(SGD{}, torch::kFloat32).optimizer->state()),
            "optimizer Lookahead: expected its own state, found that of SGD");
  StateDict state = training.optimizer->state();
  StateDict slow = state.get<StateDict>("slow");
  slow.set("bias", torch::zeros({2}));
  state.set("slow", slow);
  EXPECT_THAT(error(state), HasSubstr("parameter bias: expected Float [7], found Float [2]"));
  slow.erase("bias");
  state.set("slow", slow);
  EXPECT_THAT(error(state), HasSubstr("nothing for the model's parameter bias"));
  slow = training.optimizer->state().get<StateDict>("slow");
  slow.set("biases", torch::zeros({7}));
  state.set("slow", slow);
  EXPECT_THAT(error(state), HasSubstr("no parameter biases; did you mean 'bias'"));
}

TEST(Lookahead, NamesABadValue) {
  EXPECT_EQ(config_error(Lookahead{}), "optimizer Lookahead: optimizer: expected one, got none");
  EXPECT_EQ(config_error(Lookahead{.optimizer = SGD{}, .k = 0}),
            "optimizer Lookahead: k: expected a positive integer, got 0");
  EXPECT_EQ(config_error(Lookahead{.optimizer = SGD{}, .alpha = 1.5}),
            "optimizer Lookahead: alpha: expected a number in [0, 1], got 1.5");
}

}  // namespace
}  // namespace lockstep::optim
