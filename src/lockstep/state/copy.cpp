#include "lockstep/state/copy.h"

#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

void collect_tensors(const StateDict& tree, std::vector<torch::Tensor>& found);

void collect_tensors(const StateValue& value, std::vector<torch::Tensor>& found) {
  if (const auto* const tensor = value.get_if<torch::Tensor>()) {
    found.push_back(*tensor);
  } else if (const auto* const dict = value.get_if<StateDict>()) {
    collect_tensors(*dict, found);
  } else if (const auto* const list = value.get_if<StateList>()) {
    for (const StateValue& item : *list) collect_tensors(item, found);
  }
}

void collect_tensors(const StateDict& tree, std::vector<torch::Tensor>& found) {
  for (const auto& [key, value] : tree) collect_tensors(value, found);
}

// Memory of tensors that is free to be used again.
class FreeTensors {
 public:
  // Takes the tensors of the tree that nothing else holds.
  void take(StateDict& tree) {
    std::vector<torch::Tensor> found;
    collect_tensors(tree, found);
    tree = {};
    // The tensors of a storage that several of them share (tied weights) count as one.
    std::set<const c10::StorageImpl*> known;
    std::erase_if(found, [&](const torch::Tensor& tensor) {
      if (!tensor.defined() || !tensor.has_storage()) return true;
      return !known.insert(tensor.storage().unsafeGetStorageImpl()).second;
    });
    for (torch::Tensor& tensor : found) {
      const bool is_whole = tensor.is_cpu() && tensor.is_contiguous() &&
                            tensor.storage_offset() == 0 &&
                            tensor.storage().nbytes() == tensor.nbytes();
      const bool is_held = tensor.use_count() > 1 || tensor.storage().use_count() > 1;
      if (!is_whole || is_held || tensor.requires_grad()) continue;
      tensors_[{tensor.scalar_type(), tensor.numel()}].push_back(std::move(tensor));
    }
  }

  torch::Tensor get(torch::ScalarType type, torch::IntArrayRef sizes) {
    const auto found = tensors_.find({type, c10::multiply_integers(sizes)});
    if (found == tensors_.end() || found->second.empty()) return torch::empty(sizes, type);
    torch::Tensor tensor = std::move(found->second.front());
    found->second.pop_front();
    return tensor.sizes() == sizes ? tensor : tensor.view(sizes);
  }

 private:
  std::map<std::pair<torch::ScalarType, std::int64_t>, std::deque<torch::Tensor>> tensors_;
};

class Copier {
 public:
  explicit Copier(StateDict* reuse) {
    if (reuse != nullptr) free_.take(*reuse);
  }

  StateDict copy(const StateDict& tree) {
    std::vector<StateDict::Entry> entries;
    entries.reserve(tree.size());
    for (const auto& [key, value] : tree) entries.emplace_back(key, copy(value));
    return StateDict(std::move(entries));
  }

 private:
  StateValue copy(const StateValue& value) {
    if (const auto* const tensor = value.get_if<torch::Tensor>()) return copy(*tensor);
    if (const auto* const dict = value.get_if<StateDict>()) return copy(*dict);
    const auto* const list = value.get_if<StateList>();
    if (list == nullptr) return value;
    StateList items;
    items.reserve(list->size());
    for (const StateValue& item : *list) items.push_back(copy(item));
    return items;
  }

  torch::Tensor copy(const torch::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    // A checkpoint refuses such a tensor. The copy is for other uses.
    if (tensor.layout() != torch::kStrided || tensor.is_quantized()) {
      return tensor.detach().to(torch::kCPU, tensor.scalar_type(), /*non_blocking=*/false,
                                /*copy=*/true);
    }
    torch::Tensor& known = copies_[place_of(tensor)];
    if (!known.defined()) known = copy_values(tensor);
    return known.sizes() == tensor.sizes() ? known : known.view(tensor.sizes());
  }

  torch::Tensor copy_values(const torch::Tensor& tensor) {
    torch::NoGradGuard no_grad;
    torch::Tensor target = free_.get(tensor.scalar_type(), tensor.sizes());
    const bool is_plain = tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() &&
                          !tensor.is_neg() && !tensor._is_zerotensor();
    if (!is_plain) return target.copy_(tensor.detach());
    if (tensor.numel() > 0) std::memcpy(target.data_ptr(), tensor.data_ptr(), tensor.nbytes());
    return target;
  }

  // Tensors with equal places have the same numbers in memory, in the same order. A checkpoint has
  // the same rule (checkpoint/pickler).
  using Place = std::tuple<const void*, torch::ScalarType, std::vector<std::int64_t>,
                           std::vector<std::int64_t>, bool, bool>;
  static Place place_of(const torch::Tensor& tensor) {
    const bool is_flat = tensor.is_contiguous();
    return {tensor.data_ptr(),
            tensor.scalar_type(),
            is_flat ? std::vector<std::int64_t>{tensor.numel()} : tensor.sizes().vec(),
            is_flat ? std::vector<std::int64_t>{1} : tensor.strides().vec(),
            tensor.is_conj(),
            tensor.is_neg()};
  }

  FreeTensors free_;
  std::map<Place, torch::Tensor> copies_;
};

}  // namespace

StateDict copied(const StateDict& source, StateDict* reuse) {
  return Copier(reuse).copy(source);
}

StateDict memory_for_copy(const StateDict& source) {
  std::vector<torch::Tensor> tensors;
  collect_tensors(source, tensors);
  StateList memory;
  for (const torch::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.layout() != torch::kStrided || tensor.numel() == 0) continue;
    torch::Tensor like = torch::empty({tensor.numel()}, tensor.scalar_type());
    std::memset(like.data_ptr(), 0, like.nbytes());  // the kernel maps a page when it is written
    memory.emplace_back(std::move(like));
  }
  return {{"memory", std::move(memory)}};
}

}  // namespace lockstep
