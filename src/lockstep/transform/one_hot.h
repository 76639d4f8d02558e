// Classes as rows of zeros with a one.
#pragma once

#include <cstdint>

#include "lockstep/data/transform.h"

namespace lockstep::data {

// [...] integers below `classes` to [..., classes] float32. Throws DataError for other values.
torch::Tensor one_hot_rows(const torch::Tensor& classes_of_samples, std::int64_t classes);

struct OneHotOptions {
  std::int64_t classes = 0;  // how many there are
};

// For the targets of a data set, for example as its target_transform.
class OneHot : public Transform {
 public:
  // Throws ConfigError if the options are wrong.
  explicit OneHot(const OneHotOptions& options);

  torch::Tensor apply(const torch::Tensor& batch) const override;

 private:
  OneHotOptions options_;
};

}  // namespace lockstep::data
