// Sequences of different lengths: a recurrent network marks every number that is larger than the
// one before it. The loader pads the sequences of a batch, and the loss is a mean over the real
// numbers, so padding changes neither the loss nor the weights.
#include <iostream>

#include <lockstep/lockstep.h>

#include "flags.h"

namespace ls = lockstep;
namespace nn = torch::nn;

namespace {

constexpr std::int64_t kLargest = 9;

class Numbers : public ls::data::Dataset {
 public:
  Numbers(std::int64_t count, std::uint64_t seed) {
    ls::manual_seed(seed);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto length = torch::randint(3, 25, {1}, torch::kInt64).item<std::int64_t>();
      sequences_.push_back(torch::randint(0, kLargest + 1, {length}, torch::kInt64));
    }
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(sequences_.size()); }

  ls::Batch sample(std::int64_t index) const override {
    const auto& numbers = sequences_[static_cast<std::size_t>(index)];
    auto is_larger = torch::zeros_like(numbers);
    is_larger.slice(0, 1).copy_(numbers.slice(0, 1) > numbers.slice(0, 0, -1));
    return {{"numbers", numbers}, {"is_larger", is_larger}};
  }

 private:
  std::vector<torch::Tensor> sequences_;
};

// Scores [B, 2, T] for numbers [B, T]. It needs no lengths: a number only depends on those before
// it, so the padding at the end of a sequence does not change the scores of the real numbers.
ls::network::Recurrent make_tagger() {
  return ls::network::Recurrent(ls::network::RecurrentOptions{.cell = ls::network::Cell::kGRU,
                                                              .vocabulary = kLargest + 1,
                                                              .classes = 2,
                                                              .per_token = true,
                                                              .embedding = 16,
                                                              .hidden = 48});
}

class TaggerRunner : public ls::Runner {
 public:
  std::optional<std::vector<std::string>> metric_names() const override {
    return std::vector<std::string>{"accuracy"};
  }

 protected:
  void handle_batch(ls::State& state) override {
    const auto scores = state.model(state.batch["numbers"]);
    const auto& targets = state.batch["is_larger"];
    const auto& mask = state.batch["numbers_mask"];
    const double real = state.batch["numbers_length"].sum().item<double>();
    const auto losses = nn::functional::cross_entropy(
        scores, targets, nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    state.set_loss((losses * mask).sum() / real, ls::mean_over(real));
    const auto right = (scores.detach().argmax(1) == targets).logical_and(mask);
    state.set_metric("accuracy", right.sum().item<double>() / real, ls::mean_over(real));
  }
};

}  // namespace

int main(int argc, char** argv) try {
  const Flags flags =
      read_flags(argc, argv, "Trains a recurrent network on sequences of different lengths.", 6);

  const auto train = std::make_shared<Numbers>(2000, 1), valid = std::make_shared<Numbers>(400, 2);
  const auto padded = ls::data::pad({.keys = {"numbers", "is_larger"}, .mask_suffix = "_mask"});
  ls::manual_seed(42);
  TaggerRunner runner;
  const auto result = runner.train(ls::TrainOptions{
      .model = make_tagger(),
      .optimizer = ls::optim::Adam{.lr = 5e-3},
      .loaders = {{"train", {train, {.shuffle = true, .global_batch_size = 64, .collate = padded}}},
                  {"valid", {valid, {.global_batch_size = 200, .collate = padded}}}},
      .num_epochs = flags.epochs,
      .logdir = flags.logdir,
      .resume = flags.resume,
      .valid_loader = "valid",
      .verbose = !flags.quiet,
      .wire = flags.wire,
      .precision = flags.precision,
      .callbacks = flags.callbacks(),
      .ddp = true,
      .workers = flags.workers,
      .shards = flags.shards,
      .max_restarts = flags.max_restarts,
  });
  // If a launcher started several processes, each of them reaches this line.
  if (result.rank == 0) {
    const auto& metrics = result.last_metrics.at("valid");
    std::cout << fmt::format("Result: accuracy {:.4f}, loss {:.4f}\n", metrics.at("accuracy"),
                             metrics.at("loss"));
  }
} catch (const std::exception& error) {
  std::cerr << "sequence: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}
