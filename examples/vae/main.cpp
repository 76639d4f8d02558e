// A variational autoencoder: an encoder describes each image by a normal distribution of three
// numbers, and a decoder draws images from such numbers. The images are discs that differ in place
// and size. The example shows two networks with one loss, a network with two outputs, and a loss
// with two terms.
#include <iostream>
#include <tuple>

#include <lockstep/lockstep.h>

#include "flags.h"

namespace ls = lockstep;
namespace nn = torch::nn;

namespace {

constexpr std::int64_t kSide = 12;  // of an image, in pixels
constexpr std::int64_t kPixels = kSide * kSide;
constexpr std::int64_t kCode = 3;  // numbers that describe an image

// Discs with soft edges: [count, kPixels], with values from 0 to 1.
torch::Tensor discs(std::int64_t count) {
  const auto axis = torch::linspace(-1, 1, kSide);
  const auto x = axis.view({1, 1, kSide}), y = axis.view({1, kSide, 1});
  const auto center_x = torch::rand({count, 1, 1}) - 0.5,
             center_y = torch::rand({count, 1, 1}) - 0.5;
  const auto radius = 0.3 + 0.3 * torch::rand({count, 1, 1});
  const auto distance = ((x - center_x).square() + (y - center_y).square()).sqrt();
  return torch::sigmoid((radius - distance) * 12).flatten(1);
}

// Returns the mean and the logarithm of the variance of each number of the code.
struct EncoderImpl : nn::Module {
  EncoderImpl() {
    register_module("hidden", hidden);
    register_module("mean", mean);
    register_module("log_variance", log_variance);
  }
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& images) {
    const auto features = torch::relu(hidden(images));
    return {mean(features), log_variance(features)};
  }

  nn::Linear hidden{kPixels, 64}, mean{64, kCode}, log_variance{64, kCode};
};
TORCH_MODULE(Encoder);

class Vae : public ls::Runner {
  void handle_batch(ls::State& state) override {
    const auto images = state.batch["images"];
    const ls::Outputs outputs = state.models["encoder"].outputs(images);
    const torch::Tensor &mean = outputs[0], &log_variance = outputs[1];
    // While it is evaluated, an image has its most likely code.
    const auto code =
        state.is_train ? mean + torch::randn_like(mean) * (log_variance / 2).exp() : mean;
    const auto drawn = state.models["decoder"](code);
    // Sums over an image, means over the batch.
    const double count = static_cast<double>(images.size(0));
    const auto reconstruction = state.criterions["reconstruction"](drawn, images) / count;
    const auto divergence =
        0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum() / count;
    state.set_loss(reconstruction + divergence);
    state.batch_metrics["reconstruction"] = reconstruction.item<double>();
    state.batch_metrics["divergence"] = divergence.item<double>();
  }
};

}  // namespace

int main(int argc, char** argv) try {
  const Flags flags = read_flags(argc, argv, "Trains a variational autoencoder.", 30);

  ls::manual_seed(42);
  const auto train = ls::data::tensor_dataset({{"images", discs(2048)}});
  const auto valid = ls::data::tensor_dataset({{"images", discs(256)}});
  Encoder encoder;
  const nn::Sequential decoder(nn::Linear(kCode, 64), nn::ReLU(), nn::Linear(64, kPixels));

  const auto result = Vae().train(ls::TrainOptions{
      .models = {{"encoder", encoder}, {"decoder", decoder}},
      .criterions = {{"reconstruction",
                      nn::BCEWithLogitsLoss(
                          nn::BCEWithLogitsLossOptions().reduction(torch::kSum))}},
      .optimizer = ls::optim::Adam{.lr = 3e-3},
      .loaders = {{"train", {train, {.shuffle = true, .global_batch_size = 64}}},
                  {"valid", {valid, {.global_batch_size = 256}}}},
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
    const auto& first = result.history.at(1).at("valid");
    const auto& last = result.last_metrics.at("valid");
    std::cout << fmt::format(
        "Result: loss {:.1f}, {:.1f} after the first epoch; divergence {:.2f}\n", last.at("loss"),
        first.at("loss"), last.at("divergence"));
  }
} catch (const std::exception& error) {
  std::cerr << "vae: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}
