#include "lockstep/science/prepared_fields.h"

#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::science {

PreparedFields::PreparedFields(data::DatasetPtr fields, const Preparation& preparation)
    : fields_(std::move(fields)),
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

Batch PreparedFields::gather(std::span<const std::int64_t> indices, Batch reuse) const {
  return gather_in_epoch(indices, {}, std::move(reuse));
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
  Batch batch = fields_->gather_in_epoch(indices, key, std::move(reuse));
  if (indices.empty()) return batch;
  for (const auto& [name, step] :
       {std::pair("features", &features_), std::pair("targets", &targets_)}) {
    try {
      batch.set(name, apply(*step, batch[name], indices, key));
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
