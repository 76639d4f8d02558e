// A data set whose samples are those of another one, changed by transforms:
//
//   auto train = transformed(cached(scans), {.transform = Compose({RandomCrop({.size = {128}}),
//   …}),
//                                            .masks = {"mask"}});
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/transform.h"

namespace lockstep::data {

struct TransformedOptions {
  TransformPtr transform = {};                   // of the tensors under `keys`
  std::vector<std::string> keys = {"features"};  // all of them are changed by the same draw
  // Tensors whose values are classes. The steps for single samples move them as they move the
  // tensors under `keys`, and do not change their values. Steps for batches are left out.
  std::vector<std::string> masks = {};
  TransformPtr target_transform = {};  // of "targets"
};

// Random numbers are a function of seed, epoch and the index in `dataset`. Throws ConfigError if
// `dataset` is null or a stream, there is no transform, or a key comes twice. Samples throw
// DataError if they lack a key, or if a mask has another height or width than the tensor under the
// first of `keys`.
DatasetPtr transformed(DatasetPtr dataset, const TransformedOptions& options);

// The same for "targets" alone. Without a transform it is `dataset` itself.
DatasetPtr with_target_transform(DatasetPtr dataset, const TransformPtr& transform);

}  // namespace lockstep::data
