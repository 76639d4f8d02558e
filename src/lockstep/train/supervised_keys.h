// The keys of a batch in supervised training.
#pragma once

#include <string>

namespace lockstep {

struct SupervisedKeys {
  std::string input_key = "features";  // goes into the model
  std::string output_key = "logits";   // the model's output
  std::string target_key = "targets";  // the expected output
  std::string loss_key = "loss";       // the criterion's result
};

}  // namespace lockstep
