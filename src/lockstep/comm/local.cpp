#include "lockstep/comm/local.h"

namespace lockstep::comm {

std::optional<torch::Tensor> Local::shared_memory(std::size_t bytes) {
  return torch::zeros({static_cast<std::int64_t>(bytes)}, torch::kUInt8);
}

void Local::do_reduce(const Reduction& reduction, std::span<std::byte* const> outputs) {
  const std::vector<void*> sums(outputs.begin(), outputs.end());
  reduction.plan.tree.reduce(reduction.data, sums, reduction.elements.count,
                             reduction.elements.type, reduction.op);
}

}  // namespace lockstep::comm
