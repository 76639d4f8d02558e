// A batch: named tensors. The loader fills in "features" and "targets", the runner adds "logits"
// and "loss", and callbacks read the tensors that their options name.
//
// A value may also be a list of tensors (boxes, of which every sample has another number) or
// another batch:
//
//   ls::Batch batch{{"features", images}};
//   batch.set("boxes", std::vector<torch::Tensor>{first, second});
//   batch.set("meta", ls::Batch{{"angle", angles}});
//   batch["features"], batch.list("boxes")[1], batch.nested("meta")["angle"]
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/types.h>

namespace lockstep {

class Batch {
 public:
  using Entry = std::pair<std::string, torch::Tensor>;
  using List = std::vector<torch::Tensor>;
  using ListEntry = std::pair<std::string, List>;
  using NestedEntry = std::pair<std::string, Batch>;

  Batch() = default;
  Batch(std::initializer_list<Entry> entries) : entries_(entries) {}
  Batch(const Batch& other);
  Batch& operator=(const Batch& other);
  Batch(Batch&&) noexcept = default;
  Batch& operator=(Batch&&) noexcept = default;
  ~Batch() = default;

  // The value of a key. Throws ConfigError, which suggests the nearest key, if `key` is not in the
  // batch, and ConfigError, which names the kind, if the value is of another kind.
  const torch::Tensor& operator[](std::string_view key) const;
  const List& list(std::string_view key) const;
  const Batch& nested(std::string_view key) const;

  // The same, but nullptr if there is no value of this key and kind.
  const torch::Tensor* find(std::string_view key) const;
  const List* find_list(std::string_view key) const;
  const Batch* find_nested(std::string_view key) const;

  // Replaces a value of the same key, of whatever kind it was.
  void set(std::string_view key, torch::Tensor tensor);
  void set(std::string_view key, List list);
  void set(std::string_view key, Batch nested);
  // Sets all values of another batch.
  void update(Batch other);
  // Removes the value, of whatever kind it is. Does nothing if it is not there.
  void erase(std::string_view key);

  bool contains(std::string_view key) const;
  std::vector<std::string> keys() const;  // of tensors, then of lists, then of nested batches
  bool empty() const { return entries_.empty() && lists().empty() && nested_batches().empty(); }

  // The number of samples in the batch: the first dimension of the first tensor. Without tensors,
  // the length of the first list; without lists, the size of the first nested batch.
  std::int64_t size() const;

  // The batch with all its tensors on the device. A copy to a GPU does not wait for it, and the
  // memory of the tensors may be used again at once. A copy to the CPU is complete.
  Batch to(torch::Device device) const;

  // A batch is a range of its tensors: for (const auto& [key, tensor] : batch).
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  // Its other values, in the same form.
  const std::vector<ListEntry>& lists() const { return others().lists; }
  const std::vector<NestedEntry>& nested_batches() const { return others().nested; }

 private:
  struct Others {
    std::vector<ListEntry> lists;
    std::vector<NestedEntry> nested;
  };

  [[noreturn]] void fail_to_find(std::string_view key, std::string_view expected) const;
  const Others& others() const { return others_ == nullptr ? kNone : *others_; }
  Others& make_others();
  void erase_other(std::string_view key);

  static const Others kNone;

  std::vector<Entry> entries_;
  // Null if there are none, as in most batches. A batch is moved and destroyed several times in
  // each step, so the usual one should be small.
  std::unique_ptr<Others> others_;
};

}  // namespace lockstep
