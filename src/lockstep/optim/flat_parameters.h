// All trainable parameters of a model, side by side in a few flat buffers: one pass updates them,
// one message reduces their gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/state/named_tensors.h"

namespace lockstep::optim {

struct FlatOptions {
  // How many sets of gradients there are; backward() fills the one that is bound.
  std::int64_t grad_sets = 1;
  // Where the buffers, and an optimizer's state beside them, live: zeroed elements. Default: memory
  // of this process.
  std::function<torch::Tensor(std::int64_t, const torch::TensorOptions&)> memory = {};
  // Whether the parameters' values go into the buffers, or are taken from there.
  bool owns_values = true;
};

// A share of the elements of every buffer.
struct Part {
  int index = 0;
  int count = 1;
};

struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
};

// Ends at multiples of the blocks that norms are summed in, so that these need not be cut.
ElementRange range_of(const Part& part, std::int64_t size);

// The constructor moves every parameter that requires a gradient into the buffers. A parameter
// keeps its identity, shape, strides and value, so modules, optimizers and hooks that hold it never
// notice; its .grad becomes a zeroed part of the flat gradient, where backward() then accumulates.
// The memory lives as long as any parameter in it does, and each parameter has a storage of its own
// size, so a module is saved and copied as ever.
//
// Left alone: tensors that are undefined, empty or do not require a gradient. A tensor under two
// names (tied weights) is taken once, under the first.
class FlatParameters {
 public:
  // Throws ConfigError for a parameter that is not a leaf, dense and real, for two parameters of
  // one name, and for two different tensors that share memory.
  explicit FlatParameters(const NamedTensors& parameters, FlatOptions options = {});
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  struct Slice {
    std::string name;
    torch::Tensor parameter;
    torch::Tensor grad;                    // the part of the bound set that parameter.grad() is
    std::vector<torch::Tensor> set_grads;  // that part of each set
    std::int64_t offset = 0;               // in elements, a multiple of 64 bytes
    std::int64_t size = 0;                 // in elements
  };

  // One for each (dtype, device), in the order of their first parameter. Between the slices is
  // padding: zero in `grads`, of no meaning in `values`.
  struct Buffer {
    torch::Tensor values;
    torch::Tensor grads;  // what an optimizer steps by: the first set
    std::vector<torch::Tensor> grad_sets;
    std::vector<Slice> slices;
  };

  const std::vector<Buffer>& buffers() const { return buffers_; }

  // The elements of all parameters, padding not counted.
  std::int64_t size() const { return size_; }

  // To be called after backward(): a gradient that autograd or the user replaced (by none, another
  // tensor, a sparse one) is brought into the flat gradient, none as zero. Throws Error where a
  // parameter was moved out of the buffers (module->to(...), set_data, torch::load). Costs two
  // pointer comparisons a parameter when nothing was replaced.
  void collect_grads();

  // The set that backward() adds to from now on.
  void bind_grads(std::int64_t set);

  // All sets.
  void zero_grad();

  // Zeroed elements beside those of a buffer, in the same kind of memory.
  torch::Tensor zeros_like_values(std::size_t buffer) const;

  // Moves the parameters back into memory of this process alone. Their gradients are gone after it.
  void move_to_own_memory();

  // The L2 norm of all gradients, summed in double and in a fixed order: its bits do not depend on
  // the number of threads.
  double grad_norm() const;

  // The same in shares: how many blocks there are, the squared norms of a part's blocks written to
  // their places among all, and the norm of all. For float and double on the CPU.
  std::int64_t num_blocks() const;
  void block_norms(const Part& part, std::span<double> blocks) const;
  double norm_of_blocks(std::span<const double> blocks) const;

  // Limits every element of the gradients to [-limit, limit].
  void clip_grad_value(double limit, const Part& part = {});

  // Tells autograd that the values changed, so that a backward() through a graph recorded before
  // an update is refused as torch's own optimizers have it.
  void mark_updated();

 private:
  FlatOptions options_;
  std::vector<Buffer> buffers_;
  std::int64_t size_ = 0;
};

// A slice's part of `flat` (the buffer's values, its grads or a tensor like them), shaped as the
// parameter.
torch::Tensor slice_view(const FlatParameters::Slice& slice, const torch::Tensor& flat);

struct ClipNorm {
  double norm = 0.0;      // of the gradients
  double max_norm = 1.0;  // that they may have
};

// What gradients are multiplied by so that their norm is max_norm at most, as
// torch.nn.utils.clip_grad_norm_ has it; it goes into StepOptions::grad_scale.
double clip_scale(const ClipNorm& options);

}  // namespace lockstep::optim
