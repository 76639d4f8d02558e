// The data, the model and the runner of @NAME@. All three are named in config.yml.
#pragma once

#include <cmath>

#include <lockstep/lockstep.h>
#include <lockstep/recipe/targets.h>

namespace @NAMESPACE@ {

namespace ls = lockstep;
namespace nn = torch::nn;

// Two spirals, one inside the other: class 0 and class 1. Put your own data here.
struct DataOptions {
  std::int64_t samples = 1024;
  std::uint64_t seed = 0;
  double noise = 0.05;
};

class Data : public ls::data::Dataset {
 public:
  explicit Data(const DataOptions& options) {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(options.seed);
    const auto angle = torch::sqrt(torch::rand({options.samples}, generator)) * 2.5 * M_PI;
    targets_ = torch::arange(options.samples) % 2;
    const auto turn = angle + targets_ * M_PI;
    points_ = torch::stack({angle * torch::cos(turn), angle * torch::sin(turn)}, 1) / 8;
    points_ += torch::randn(points_.sizes(), generator) * options.noise;
  }

  std::int64_t size() const override { return targets_.size(0); }

  ls::Batch sample(std::int64_t index) const override {
    return {{"features", points_[index]}, {"targets", targets_[index]}};
  }

 private:
  torch::Tensor points_;
  torch::Tensor targets_;
};

struct NetOptions {
  std::int64_t width = 64;
};

class NetImpl : public nn::Module {
 public:
  explicit NetImpl(const NetOptions& options)
      : first_(register_module("first", nn::Linear(2, options.width))),
        second_(register_module("second", nn::Linear(options.width, options.width))),
        last_(register_module("last", nn::Linear(options.width, 2))) {}

  torch::Tensor forward(const torch::Tensor& points) {
    return last_(torch::relu(second_(torch::relu(first_(points)))));
  }

 private:
  nn::Linear first_, second_, last_;
};
TORCH_MODULE(Net);

// What happens to a batch.
class Runner : public ls::Runner {
 protected:
  void handle_batch(ls::State& state) override {
    const auto logits = state.model(state.batch["features"]);
    state.batch.set("logits", logits);
    state.batch.set("loss", torch::nn::functional::cross_entropy(logits, state.batch["targets"]));
  }
};

// Their names in a config.
inline void add_targets() {
  auto& targets = ls::recipe::targets();
  targets.datasets.add<DataOptions>("@CLASS@Data", "Two spirals.",
                                    {{"samples", &DataOptions::samples, "how many"},
                                     {"seed", &DataOptions::seed, "of the noise"},
                                     {"noise", &DataOptions::noise, "its standard deviation"}},
                                    [](const DataOptions& o) { return std::make_shared<Data>(o); });
  targets.models.add<NetOptions>("@CLASS@Net", "Three linear layers.",
                                 {{"width", &NetOptions::width, "of the hidden layers"}},
                                 [](const NetOptions& o) { return ls::Model(Net(o)); });
  targets.runners.add("@CLASS@Runner", "What happens to a batch.",
                      [] { return std::make_shared<Runner>(); });
}

}  // namespace @NAMESPACE@
