#include "lockstep/data/labels.h"

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"
#include "lockstep/data/sample_error.h"

namespace lockstep::data {
namespace {

bool are_classes(const torch::Tensor& labels, std::int64_t count) {
  return torch::isIntegralType(labels.scalar_type(), /*includeBool=*/true) &&
         labels.numel() == count;
}

[[noreturn]] void refuse_label(const Dataset& dataset, std::int64_t index, const std::string& key,
                               const torch::Tensor& label) {
  throw DataError("{}: '{}': expected one integer, the class, got {}", dataset.name_of(index), key,
                  describe(label));
}

torch::Tensor value_of(const Dataset& dataset, std::int64_t index, const std::string& key) {
  return naming_sample(dataset, index, [&] { return dataset.sample(index)[key]; });
}

}  // namespace

std::vector<std::int64_t> labels_of(const Dataset& dataset, const std::string& key) {
  const std::int64_t size = dataset.size();
  if (torch::Tensor column = dataset.column(key); column.defined()) {
    if (size > 0 && !are_classes(column, size)) refuse_label(dataset, 0, key, column[0]);
    column = column.to(torch::kCPU, torch::kInt64).contiguous();
    const auto* const first = column.data_ptr<std::int64_t>();
    return {first, first + size};
  }
  std::vector<std::int64_t> labels;
  labels.reserve(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) {
    const torch::Tensor label = value_of(dataset, i, key);
    if (!are_classes(label, 1)) refuse_label(dataset, i, key, label);
    labels.push_back(label.to(torch::kInt64).item<std::int64_t>());
  }
  return labels;
}

std::vector<std::int64_t> lengths_of(const Dataset& dataset, const std::string& key) {
  std::vector<std::int64_t> lengths;
  lengths.reserve(static_cast<std::size_t>(dataset.size()));
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    const torch::Tensor tensor = value_of(dataset, i, key);
    if (tensor.dim() == 0) {
      throw DataError("{}: '{}': expected a sequence, got {}", dataset.name_of(i), key,
                      describe(tensor));
    }
    lengths.push_back(tensor.size(0));
  }
  return lengths;
}

}  // namespace lockstep::data
