#include "lockstep/science/prepared_fields.h"

#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::science {

PreparedFields::PreparedFields(data::DatasetPtr fields, const Preparation& preparation)
    : WrapperDataset("PreparedFields", std::move(fields)),
      layer_(inner().random_layers()),
      scaling_(preparation.scaling),
      features_{.scaling = preparation.is_scaled ? data::ChannelScaling() : scaling_.features,
                .chain = data::SampleChain(preparation.transform)},
      targets_{.scaling = preparation.is_scaled ? data::ChannelScaling() : scaling_.targets,
               .chain = data::SampleChain(preparation.target_transform),
               .flat = preparation.flat} {
  scaling_.features.check();
  scaling_.targets.check();
}

torch::Tensor PreparedFields::apply(const Step& step, torch::Tensor batch,
                                    std::span<const std::int64_t> indices,
                                    const data::EpochKey& key) {
  batch = step.scaling.apply(batch);
  if (step.chain.has_sample_steps()) {
    std::vector<torch::Tensor> samples = batch.unbind(0);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      data::Draw draw{.random = data::SampleRandom(key, indices[i])};
      samples[i] = step.chain.apply_to_sample(samples[i], draw);
    }
    batch = torch::stack(samples);
  }
  batch = step.chain.batch_steps().apply(batch);
  return step.flat ? batch.flatten(1) : batch;
}

bool PreparedFields::Step::changes_nothing() const {
  return scaling.kind == data::Normalization::kNone && !chain.has_sample_steps() &&
         !chain.batch_steps() && !flat;
}

std::uint64_t PreparedFields::random_layers() const {
  return draws() ? layer_ + 1 : inner().random_layers();
}

std::vector<std::string> PreparedFields::class_names() const {
  if (!targets_.changes_nothing()) return {};
  return inner().class_names();
}

torch::Tensor PreparedFields::column(std::string_view key) const {
  if (key == "features" && !features_.changes_nothing()) return {};
  if (key == "targets" && !targets_.changes_nothing()) return {};
  return inner().column(key);
}

Batch PreparedFields::sample_in_epoch(std::int64_t index, const data::EpochKey& key) const {
  Batch sample;
  for (const auto& [name, tensor] : gather_in_epoch({&index, 1}, key, {})) {
    sample.set(name, tensor.squeeze(0));
  }
  return sample;
}

Batch PreparedFields::gather_in_epoch(std::span<const std::int64_t> indices,
                                      const data::EpochKey& key, Batch reuse) const {
  Batch batch = inner().gather_in_epoch(indices, key, std::move(reuse));
  if (indices.empty()) return batch;
  const data::EpochKey own_key = data::key_of_layer(key, layer_);
  for (const auto& [name, step] :
       {std::pair("features", &features_), std::pair("targets", &targets_)}) {
    try {
      batch.set(name, apply(*step, batch[name], indices, own_key));
    } catch (const DataError& error) {
      throw DataError("'{}': {}", name, error.what());
    }
  }
  return batch;
}

data::DatasetPtr prepared(data::DatasetPtr fields, const Preparation& preparation) {
  if (preparation.changes_nothing()) return fields;
  return std::make_shared<PreparedFields>(std::move(fields), preparation);
}

}  // namespace lockstep::science
