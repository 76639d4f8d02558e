#include "lockstep/optim/optimizer.h"

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

TEST(OptimizerSpec, IsMadeOfEachAggregate) {
  EXPECT_EQ(made({.optimizer = Adam{.lr = 0.02}}), "Adam");
  EXPECT_EQ(made({.optimizer = AdamW{}}), "AdamW");
  EXPECT_EQ(made({.optimizer = SGD{.lr = 0.1}}), "SGD");
  EXPECT_EQ(made({.optimizer = RMSprop{}}), "RMSprop");
  EXPECT_EQ(made({.optimizer = Adagrad{}}), "Adagrad");
}

TEST(OptimizerSpec, IsMadeOfAFunction) {
  EXPECT_EQ(made({.optimizer =
                      [](const std::vector<torch::Tensor>& parameters) {
                        EXPECT_EQ(parameters.size(), 3u);
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
