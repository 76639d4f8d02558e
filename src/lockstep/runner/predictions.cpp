#include "lockstep/runner/predictions.h"

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"

namespace lockstep {

Predictions::Predictions(Model model, data::BatchStream stream, Predict predict)
    : model_(std::move(model)), stream_(std::move(stream)), predict_(std::move(predict)) {}

std::optional<Batch> Predictions::next() {
  const auto batch = stream_.next();
  if (!batch) return std::nullopt;
  const torch::NoGradGuard no_grad;
  // Set for each batch, because the model may have been trained between two batches.
  model_.train(false);
  return predict_(*batch);
}

torch::Tensor Predictions::concat(std::string_view key) {
  std::vector<torch::Tensor> parts;
  while (const auto outputs = next()) {
    parts.push_back((*outputs)[key]);
    if (parts.back().sizes().slice(1) == parts.front().sizes().slice(1)) continue;
    throw DataError(
        "predictions: '{}' is {} in one batch and {} in another, so it cannot be concatenated: "
        "each batch was padded to its own longest sequence; go through the batches one by one",
        key, data::describe(parts.front()), data::describe(parts.back()));
  }
  if (parts.empty()) throw DataError("predictions: there is no batch to concatenate");
  return torch::cat(parts);
}

}  // namespace lockstep
