#include "lockstep/recipe/tensor_file.h"

#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/pickle.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep::recipe {

data::DatasetPtr tensor_file(const TensorFileOptions& options) {
  // With "path:" in front, an error in a config shows the line of that option.
  return reading<DataError>({.path = options.path, .kind = "path:"}, [&] {
    const StateDict tensors = checkpoint::from_pickle(read_file(options.path));
    std::vector<data::Column> columns = {
        {"features", tensors.get<torch::Tensor>(options.features), options.transform}};
    if (options.targets) {
      columns.push_back({"targets", tensors.get<torch::Tensor>(*options.targets)});
    }
    return data::tensor_dataset(std::move(columns));
  });
}

}  // namespace lockstep::recipe
