// The pickle of a state: the program from which Python's torch.load builds the state again.
//
// torch.load runs only what it knows to be harmless (weights_only, the default since PyTorch 2.6):
// dictionaries, lists, text, numbers, booleans, None, and the functions that torch.save itself
// writes for a tensor. So nothing else is written here.
#pragma once

#include <string>
#include <vector>

#include "lockstep/state/state_dict.h"

namespace lockstep::checkpoint {

struct Pickled {
  std::string program;
  // The tensors whose values are stored next to the pickle, as the entries data/0, data/1, ... They
  // are the caller's tensors, on any device and in any layout; `stored` returns what is to be
  // written.
  std::vector<torch::Tensor> storages;
};

// Two tensors with the same values in memory (tied weights) have one storage. Throws
// CheckpointError for a tensor type that torch.load of PyTorch 1.13 does not know.
Pickled pickle(const StateDict& state);

// The tensor's values in order, on the CPU, without gradients: the tensor itself if it is so
// already.
torch::Tensor stored(const torch::Tensor& tensor);

}  // namespace lockstep::checkpoint
