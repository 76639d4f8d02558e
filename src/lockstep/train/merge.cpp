#include "lockstep/train/merge.h"

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/pickle.h"

namespace lockstep {
namespace {

StateDict unpacked(std::string bytes, int rank) try {
  return checkpoint::from_pickle(std::move(bytes));
} catch (const std::exception& error) {
  throw CheckpointError("data received from rank {}: {}", rank, message_of(error));
}

}  // namespace

void gather_metric(metric::Metric& metric, comm::Communicator& communicator) {
  if (communicator.size() == 1) return;
  const auto states = gather(metric.state(), communicator);
  if (!communicator.is_primary()) {
    metric.reset();
    return;
  }
  for (std::size_t rank = 1; rank < states.size(); ++rank) metric.merge(states[rank]);
}

Metrics merged(metric::Metric& metric, comm::Communicator& communicator) {
  gather_metric(metric, communicator);
  return broadcast(communicator.is_primary() ? metric.compute() : Metrics(), communicator);
}

Metrics broadcast(const Metrics& metrics, comm::Communicator& communicator) {
  if (communicator.size() == 1) return metrics;
  StateDict state;
  for (const auto& [name, value] : metrics) state.set(name, value);
  const StateDict all = broadcast(state, communicator);
  Metrics received;
  for (const auto& name : all.keys()) received[name] = all.get<double>(name);
  return received;
}

StateDict broadcast(const StateDict& state, comm::Communicator& communicator) {
  if (communicator.size() == 1) return state;
  std::string bytes =
      communicator.broadcast_bytes(communicator.is_primary() ? checkpoint::to_pickle(state) : "");
  return communicator.is_primary() ? state : unpacked(std::move(bytes), 0);
}

std::vector<StateDict> gather(const StateDict& state, comm::Communicator& communicator) {
  auto all = communicator.gather_bytes(checkpoint::to_pickle(state));
  std::vector<StateDict> states;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    states.push_back(unpacked(std::move(all[rank]), static_cast<int>(rank)));
  }
  return states;
}

}  // namespace lockstep
