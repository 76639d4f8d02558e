// A generator learns to draw points from a ring of eight blobs, and a discriminator learns to tell
// its points from real ones. The program (main.cpp) and the plugin for configs (../plugin/gan.cpp)
// share this.
#pragma once

#include <cmath>

#include <ATen/CPUGeneratorImpl.h>
#include <lockstep/lockstep.h>

namespace ls = lockstep;

inline constexpr std::int64_t kBlobs = 8;
inline constexpr std::int64_t kNoise = 4;  // numbers from which the generator makes a point

// The centers of the blobs, on a circle.
inline torch::Tensor centers() {
  const auto angle = torch::arange(kBlobs) * (2 * M_PI / kBlobs);
  return 2 * torch::stack({angle.cos(), angle.sin()}, 1);
}

inline ls::data::DatasetPtr real_points(
    std::int64_t count, const at::Generator& generator = at::detail::getDefaultCPUGenerator()) {
  const auto blob = torch::randint(kBlobs, {count}, generator, torch::kLong);
  const auto distance = 0.1 * torch::randn({count, 2}, generator);
  return ls::data::tensor_dataset({{"points", centers().index_select(0, blob) + distance}});
}

class Gan : public ls::Runner {
  // Called in both phases of every batch. During a phase the other network is not trained.
  void handle_batch(ls::State& state) override {
    const auto real = state.batch["points"];
    const auto made = state.models["generator"](noise(real));
    const ls::Model& discriminator = state.models["discriminator"];
    if (state.phase == "discriminator") {
      state.set_loss(loss(discriminator(real), 1) + loss(discriminator(made), 0));
    } else {
      state.set_loss(loss(discriminator(made), 1));
    }
  }

  // As many new points as the batch has real ones.
  ls::Batch predict_batch(const ls::Model& model, const ls::Batch& batch) override {
    return {{"points", model.network("generator")(noise(batch["points"]))}};
  }

  // As many rows as the batch has points, on its device.
  static torch::Tensor noise(const torch::Tensor& points) {
    return torch::randn({points.size(0), kNoise}, points.options());
  }

  static torch::Tensor loss(const torch::Tensor& logits, double target) {
    return torch::binary_cross_entropy_with_logits(logits, torch::full_like(logits, target));
  }
};
