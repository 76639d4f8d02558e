// The inputs for which a model is exported: named tensors, in the order in which the model's
// forward takes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/batch.h"
#include "lockstep/train/model.h"

namespace lockstep::exporting {

// The same inputs for another number of samples: the first ones, or some of them again. Tensors
// whose first dimension is not that of the batch are not changed.
Batch with_batch_size(const Batch& inputs, std::int64_t samples);

struct OtherValuesOptions {
  // Integers are moved inside of their rows, too. A model may refuse that, for example if each
  // column has a range of its own.
  bool positions = true;
};

// Inputs of the same shapes with other values, the same ones in every call. The rows of a batch
// change places, and floating-point numbers change their signs and magnitudes. Integers and
// booleans may be tokens, lengths or masks, so a tensor keeps to the values that it has.
Batch with_other_values(const Batch& inputs, const OtherValuesOptions& options = {});

// The outputs of a model, each with its name.
struct NamedOutputs {
  std::vector<std::string> names;
  std::vector<torch::Tensor> tensors;
};

// Calls the model. Outputs without a name are "output", or "output_0", "output_1" and so on, unless
// `names` says other ones. Throws ConfigError if the model does not take such inputs, or returns
// lists or nested batches, or if there are not as many names as outputs.
NamedOutputs call(const Model& model, const Batch& inputs,
                  const std::vector<std::string>& names = {});

// Throws ConfigError if there is no input, if an input is not a tensor, or if it has no samples.
void check_example(const Batch& inputs);

// Throws ConfigError if the model or an input is not on the CPU. What is written should not depend
// on a device.
void check_on_cpu(const Model& model, const Batch& inputs);

// Switches the model to evaluation mode without gradients while the object lives. Afterwards every
// module has its own mode again.
class EvaluationMode {
 public:
  explicit EvaluationMode(Model model);
  ~EvaluationMode();
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  Model model_;
  Model::Modes modes_;  // before
  torch::NoGradGuard no_grad_;
};

}  // namespace lockstep::exporting
