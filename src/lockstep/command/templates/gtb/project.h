// The estimator of @NAME@: its data, its network, and how both are named in config.yml.
#pragma once

#include <iostream>

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

// The file for synthetic data. Your own file needs another name.
inline constexpr const char* kSyntheticField = "data/synthetic.h5";

// Returns the file with synthetic turbulence, to train on before you have data. It is made if it
// does not exist. Put your simulation's file into data/ and pass it with --field.
inline std::filesystem::path synthetic_field() {
  const std::filesystem::path path = kSyntheticField;
  const bool is_there = std::filesystem::exists(path);
  if (ls::process::is_primary_process()) {
    std::cout << "No --field was given: training on synthetic turbulence, " << path.string()
              << (is_there ? "" : ", which is made now") << std::endl;
  }
  if (is_there) return path;
  const auto velocity =
      science::synthetic_turbulence({.shape = {64, 64, 64}, .seed = 1, .components = 3});
  std::vector<torch::Tensor> large;
  for (const auto& component : velocity.unbind(0)) {
    large.push_back(science::spectral_filter(component, 4).to(torch::kFloat32));
  }
  std::filesystem::create_directories(path.parent_path());
  science::write_hdf5(path, {{"velocity", velocity}, {"large_scales", torch::stack(large)}});
  return path;
}

struct FieldOptions {
  std::string path = kSyntheticField;  // of an HDF5 file
  std::string part = "train";          // which cubes a loader of config.yml has: train or valid
};

// The data set: what is read from a file, and how it is cut. `train` and config.yml both use this.
// For one file or many, see lockstep/science/field_dataset.h.
inline science::FieldData load_field(const FieldOptions& options) {
  return science::hdf5_dataset({.path = options.path,
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

// The names of the data set and of the network in a config.
inline void add_targets() {
  ls::recipe::targets().datasets.add<FieldOptions>(
      "@CLASS@Field", "The cubes of @NAME@.",
      {{"path", &FieldOptions::path, "of an HDF5 file"},
       {"part", &FieldOptions::part, "which cubes: train or valid"}},
      [](const FieldOptions& options) {
        if (options.part != "train" && options.part != "valid") {
          throw ls::ConfigError("part: expected train or valid, got '{}'", options.part);
        }
        const auto data = load_field(options);
        return options.part == "train" ? data.train : data.valid;
      });
  ls::recipe::targets().models.add("@CLASS@Net", "The network of @NAME@.", [](const ls::recipe::Example& example) {
    return ls::Model(make_network({.channels = example.input.size(1),
                                   .size = example.input.sizes().slice(2).vec(),
                                   .outputs = example.batch["targets"].numel()}));
  });
}

}  // namespace @NAMESPACE@
