#include "lockstep/recipe/tensor_file.h"

#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/pickle.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep::recipe {

data::DatasetPtr tensor_file(const TensorFileOptions& options) {
  try {
    const std::string bytes = read_file(options.path);
    const StateDict tensors = checkpoint::from_pickle(bytes, options.path.string());
    std::vector<data::Column> columns = {
        {"features", tensors.get<torch::Tensor>(options.features), options.transform}};
    if (options.targets) {
      columns.push_back({"targets", tensors.get<torch::Tensor>(*options.targets)});
    }
    return data::tensor_dataset(std::move(columns));
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {
    throw DataError("path: {}: {}", options.path.string(), error.what());
  }
}

}  // namespace lockstep::recipe
