#include "lockstep/recipe/targets.h"

namespace lockstep::recipe {

std::vector<config::TargetInfo> Targets::all() const {
  std::vector<config::TargetInfo> infos;
  const auto append = [&](const auto& registry) {
    for (const auto& name : registry.names()) infos.push_back(registry.info(name));
  };
  append(models);
  append(layers);
  append(criterions);
  append(optimizers);
  append(schedulers);
  append(datasets);
  append(transforms);
  append(batch_transforms);
  append(samplers);
  append(collates);
  append(callbacks);
  append(loggers);
  append(engines);
  append(runners);
  return infos;
}

// Global because plugins add to it when they are loaded, which is once per process.
Targets& targets() {
  static Targets* const all = [] {
    auto* const made = new Targets;  // never deleted: plugins may be unloaded before
    add_layers(*made);
    add_models(*made);
    add_criterions(*made);
    add_optimizers(*made);
    add_schedulers(*made);
    add_datasets(*made);
    add_arrays(*made);
    add_tables(*made);
    add_loading(*made);
    add_images(*made);
    add_image_transforms(*made);
    add_sampler_targets(*made);
    add_metric_callbacks(*made);
    add_callbacks(*made);
    add_engines(*made);
    add_science(*made);
    return made;
  }();
  return *all;
}

}  // namespace lockstep::recipe
