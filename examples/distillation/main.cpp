// Distillation: a large network learns to tell three spirals apart, and a small one learns from the
// large one instead of from the data. The teacher has no optimizer, so it is not trained in the
// second run; it is saved in the checkpoints, too.
#include <cmath>
#include <iostream>

#include <lockstep/lockstep.h>

#include "flags.h"

namespace ls = lockstep;
namespace nn = torch::nn;

namespace {

constexpr std::int64_t kClasses = 3;
constexpr double kTemperature = 2;  // makes the teacher's probabilities of wrong classes count more

// Points on spiral arms. A target is the arm.
ls::data::DatasetPtr spirals(std::int64_t count) {
  const auto arm = torch::randint(kClasses, {count}, torch::kLong);
  const auto along = torch::rand({count});
  const auto angle = along * 5 + arm * (2 * M_PI / kClasses);
  const auto points = torch::stack({angle.cos(), angle.sin()}, 1) * (0.2 + along).unsqueeze(1) +
                      0.06 * torch::randn({count, 2});
  return ls::data::tensor_dataset({{"features", points}, {"targets", arm}});
}

nn::Sequential make_network(std::int64_t width) {
  return nn::Sequential(nn::Linear(2, width), nn::ReLU(), nn::Linear(width, width), nn::ReLU(),
                        nn::Linear(width, kClasses));
}

double share(const torch::Tensor& is_so) {
  return is_so.to(torch::kFloat64).mean().item<double>();
}

class Distillation : public ls::Runner {
  void handle_batch(ls::State& state) override {
    const auto& points = state.batch["features"];
    const auto taught = state.models["teacher"](points);
    const auto learned = state.models["student"](points);
    const auto divergence = torch::kl_div(torch::log_softmax(learned / kTemperature, 1),
                                          torch::log_softmax(taught / kTemperature, 1),
                                          at::Reduction::Sum, /*log_target=*/true);
    state.set_loss(divergence *
                   (kTemperature * kTemperature / static_cast<double>(points.size(0))));
    const auto guess = learned.argmax(1);
    state.batch_metrics["agreement"] = share(guess == taught.argmax(1));
    state.batch_metrics["accuracy"] = share(guess == state.batch["targets"]);
  }
};

}  // namespace

int main(int argc, char** argv) try {
  const Flags flags = read_flags(
      argc, argv, "Trains a large network, and a small one with the large one as its teacher.", 30);

  ls::manual_seed(42);
  const ls::data::Loader train(spirals(3000), {.shuffle = true, .global_batch_size = 100});
  const ls::data::Loader valid(spirals(1000), {.global_batch_size = 250});
  const auto teacher = make_network(64);
  const auto student = make_network(16);

  // A checkpoint to resume has the weights of the trained teacher.
  if (!flags.resume) {
    ls::SupervisedRunner().train(ls::TrainOptions{
        .model = teacher,
        .criterion = nn::CrossEntropyLoss(),
        .optimizer = ls::optim::Adam{.lr = 1e-2},
        .loaders = {{"train", train}},
        .num_epochs = 20,
        .console = false,
        .ddp = true,
        .workers = flags.workers,
        .shards = flags.shards,
        .max_restarts = flags.max_restarts,
    });
  }
  const auto result = Distillation().train(ls::TrainOptions{
      .models = {{"teacher", teacher}, {"student", student}},
      .optimizers = {{"student", ls::optim::Adam{.lr = 1e-2}}},
      .loaders = {{"train", train}, {"valid", valid}},
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
    std::cout << fmt::format(
        "Result: the student is right in {:.2f} of the points, as the teacher in {:.2f}\n",
        metrics.at("accuracy"), metrics.at("agreement"));
  }
} catch (const std::exception& error) {
  std::cerr << "distillation: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}
