// Data sets of arrays and text in files.
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"
#include "lockstep/source/array_dataset.h"
#include "lockstep/source/text_dataset.h"

namespace lockstep::recipe {

void add_arrays(Targets& targets) {
  using A = data::ArrayDatasetOptions;
  targets.datasets.add<A>(
      "ArrayDataset",
      "Rows of arrays in .npy, .npz or .safetensors files, mapped if they are not packed.",
      {{"file", &A::file, "an .npz or .safetensors file; the names are then arrays in it"},
       {"features", &A::features, "the model's input: x.npy, or data.npz#x"},
       {"targets", &A::targets, "the expected output, likewise; default: no targets"},
       {"keys", &A::keys, "instead of these two: keys of the batch to arrays"},
       {"transform", &A::transform, "of the features"},
       {"target_transform", &A::target_transform, "of the targets"},
       {"allow_non_finite", &A::allow_non_finite, "accept NaN and infinite values"}},
      [](const A& o) { return data::array_dataset(o); });
  using T = data::TextDatasetOptions;
  targets.datasets.add<T>(
      "TextDataset", "Windows of text as tokens, and the tokens that follow them.",
      {{"path", &T::path, "of the text"},
       {"paths", &T::paths, "of several texts, instead of path"},
       {"vocabulary", &T::vocabulary, "file with one word per line; default: tokens are bytes"},
       {"window", &T::window, "tokens of a sample"},
       {"stride", &T::stride, "tokens from one sample to the next; default: window"}},
      [](const T& o) { return data::text_dataset(o); });
}

}  // namespace lockstep::recipe
