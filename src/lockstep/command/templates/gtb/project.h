// The estimator of @NAME@: its data, its network, and how both are named in config.yml.
#pragma once

#include <lockstep/recipe/targets.h>
#include <lockstep/science/cnn3d.h>
#include <lockstep/science/field_dataset.h>
#include <lockstep/science/filters.h>
#include <lockstep/science/hdf5.h>
#include <lockstep/science/spectrum.h>

#include "backend.h"

namespace @NAMESPACE@ {

namespace ls = lockstep;
namespace nn = torch::nn;

// A made-up field, so that there is something to train on at once. Put your simulation's into data/
// instead: one file or many, see lockstep/science/field_dataset.h.
inline void make_field(const std::filesystem::path& path) {
  const auto velocity =
      science::synthetic_turbulence({.shape = {64, 64, 64}, .seed = 1, .components = 3});
  std::vector<torch::Tensor> large;
  for (const auto& component : velocity.unbind(0)) {
    large.push_back(science::spectral_filter(component, 4).to(torch::kFloat32));
  }
  science::write_hdf5(path, {{"velocity", velocity}, {"large_scales", torch::stack(large)}});
}

inline science::FieldData load_field(const std::filesystem::path& path) {
  return science::hdf5_dataset({.path = path.string(),
                                .features = {"velocity"},
                                .target = {"large_scales"},
                                .batch_size = {16},
                                .flat = true,
                                .train_fraction = 0.8,
                                .shuffle = true});
}

// The network. Its sizes are those of the data.
inline nn::Sequential make_network(const science::FieldShape& shape) {
  return science::make_cnn3d(shape);
}

class Estimator : public Backend {
 public:
  using Backend::Backend;
  std::string name() const override { return "@CLASS@"; }

 protected:
  ls::Model make_model(const science::FieldShape& shape) const override {
    return make_network(shape);
  }
  ls::Criterion criterion() const override { return nn::SmoothL1Loss(); }
};

// The network's name in a config.
inline void add_targets() {
  ls::recipe::targets().models.add("@CLASS@Net", "The network of @NAME@.", [](const ls::recipe::Example& example) {
    return ls::Model(make_network({.channels = example.input.size(1),
                                   .size = example.input.sizes().slice(2).vec(),
                                   .outputs = example.batch["targets"].numel()}));
  });
}

}  // namespace @NAMESPACE@
