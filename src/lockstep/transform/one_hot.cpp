#include "lockstep/transform/one_hot.h"

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"

namespace lockstep::data {

torch::Tensor one_hot_rows(const torch::Tensor& classes_of_samples, std::int64_t classes) {
  if (!torch::isIntegralType(classes_of_samples.scalar_type(), /*includeBool=*/true)) {
    throw DataError("one-hot: expected integers, got {}", describe(classes_of_samples));
  }
  const torch::Tensor indices = classes_of_samples.to(torch::kInt64).unsqueeze(-1);
  if (indices.numel() > 0) {
    const auto smallest = indices.min().item<std::int64_t>();
    const auto largest = indices.max().item<std::int64_t>();
    if (smallest < 0 || largest >= classes) {
      throw DataError("one-hot: expected classes 0 to {}, got {}", classes - 1,
                      smallest < 0 ? smallest : largest);
    }
  }
  std::vector<std::int64_t> shape = indices.sizes().vec();
  shape.back() = classes;
  return torch::zeros(shape, indices.options().dtype(torch::kFloat32)).scatter_(-1, indices, 1.0);
}

OneHot::OneHot(const OneHotOptions& options) : options_(options) {
  Check("OneHot").count("classes", options.classes);
}

torch::Tensor OneHot::apply(const torch::Tensor& batch) const {
  return one_hot_rows(batch, options_.classes);
}

}  // namespace lockstep::data
