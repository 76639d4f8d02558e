#include "lockstep/train/late_losses.h"

#include <algorithm>

namespace lockstep {

void LateLosses::begin(const torch::Tensor& loss) {
  // An inference tensor has no version, so a change of it after the copy would not be noticed.
  if (copies_ == nullptr || loss.is_inference()) return;
  begun_.push_back({.loss = loss.detach(),
                    .version = static_cast<std::uint32_t>(loss._version()),
                    .copy = copies_->read(loss)});
}

double LateLosses::value_of(const torch::Tensor& loss) const {
  if (loss.is_inference()) return loss.item<double>();
  // A detached tensor has the memory and the version of the other one.
  const auto found = std::ranges::find_if(begun_, [&](const Begun& begun) {
    return begun.loss.data_ptr() == loss.data_ptr() &&
           begun.version == static_cast<std::uint32_t>(loss._version());
  });
  return found == begun_.end() ? loss.item<double>() : found->copy->get().item<double>();
}

}  // namespace lockstep
