#include "lockstep/runner/predictions.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"
#include "lockstep/state/state_dict.h"
#include "lockstep/train/merge.h"
#include "lockstep/train/random.h"

namespace lockstep {
namespace {

StateDict to_state(const Batch& outputs) {
  StateDict state;
  for (const auto& [key, tensor] : outputs) state.set(key, tensor);
  for (const auto& [key, list] : outputs.lists()) {
    state.set(key, StateList(list.begin(), list.end()));
  }
  for (const auto& [key, nested] : outputs.nested_batches()) state.set(key, to_state(nested));
  return state;
}

Batch from_state(const StateDict& state) {
  Batch outputs;
  for (const auto& [key, value] : state) {
    if (const auto* const list = value.get_if<StateList>()) {
      Batch::List tensors;
      for (const StateValue& item : *list) tensors.push_back(*item.get_if<torch::Tensor>());
      outputs.set(key, std::move(tensors));
    } else if (const auto* const nested = value.get_if<StateDict>()) {
      outputs.set(key, from_state(*nested));
    } else {
      outputs.set(key, state.get<torch::Tensor>(key));
    }
  }
  return outputs;
}

// Processes of a launcher may have read different data. They would wait for each other in vain.
void check_equal(std::int64_t batches, comm::Communicator& communicator) {
  const auto all = communicator.vote(static_cast<std::uint64_t>(batches));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all.front()) continue;
    throw DataError(
        "predict_loader: rank 0 has {} batches, rank {} has {}; every rank needs the same data",
        all.front(), rank, all[rank]);
  }
}

}  // namespace

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

void predict_together(const JointPrediction& job, comm::Communicator& communicator) {
  const std::int64_t batches = job.loader.batches();
  const std::int64_t workers = communicator.size();
  const std::int64_t rank = communicator.rank();
  check_equal(batches, communicator);
  const RandomStateScope random;
  auto stream = job.loader.stream(
      {.seed = job.seed, .first_batch = std::min(rank, batches), .step = workers});
  const auto predict = [&](std::int64_t index) {
    const torch::NoGradGuard no_grad;
    seed_draws({.seed = job.seed, .batch = index, .draws = Draws::kData});
    const auto batch = stream.next();
    seed_draws({.seed = job.seed, .batch = index, .draws = Draws::kModel});
    return job.predict(*batch).to(torch::kCPU);
  };
  bool stopped = false;
  for (std::int64_t first = 0; first < batches; first += workers) {
    communicator.set_progress(1, first + rank + 1);
    Batch own;
    if (!stopped && first + rank < batches) own = predict(first + rank);
    // Asked only now: the other ranks compute this round while rank 0 is in `take` of the last one.
    if (communicator.vote(stopped ? 1 : 0).front() != 0) return;
    const auto gathered =
        gather(communicator.is_primary() ? StateDict() : to_state(own), communicator);
    if (!communicator.is_primary()) continue;
    const comm::AloneScope alone(communicator);
    const std::int64_t count = std::min(workers, batches - first);
    for (std::int64_t i = 0; i < count && !stopped; ++i) {
      Batch outputs = i == 0 ? std::move(own) : from_state(gathered[static_cast<std::size_t>(i)]);
      stopped = !job.take(outputs);
    }
  }
}

}  // namespace lockstep
