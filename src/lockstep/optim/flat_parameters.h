// All parameters of a model in a few flat buffers: one pass updates them, one message reduces their
// gradients.
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
  // The number of sets of gradients; backward() fills the set that is bound.
  std::int64_t grad_sets = 1;
  // Allocates the memory of the buffers and of an optimizer's state for them; the elements must be
  // zero. Default: memory of this process.
  std::function<torch::Tensor(std::int64_t, const torch::TensorOptions&)> memory = {};
  // Whether the values of the parameters are copied into the buffers. If false, the parameters take
  // the values that are there.
  bool owns_values = true;
};

// One of `count` parts of the elements of every buffer.
struct Part {
  int index = 0;
  int count = 1;
};

struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
};

// The range of a part. It ends at a multiple of the blocks in which norms are summed, so no block
// is cut.
ElementRange range_of(const Part& part, std::int64_t size);

// The constructor moves every parameter into the buffers. A parameter keeps its identity, shape,
// strides and value, so modules, optimizers and hooks that hold it are not affected. Its .grad
// becomes a zeroed part of the flat gradient, to which backward() then adds. The memory lives as
// long as any parameter in it does, and each parameter has a storage of exactly its size, so a
// module is saved and copied as usual.
//
// Parameters that do not require a gradient have separate, frozen buffers. A frozen buffer has no
// memory for gradients, and its values are in memory of this process only, until
// make_unfrozen_trainable() finds that one of its parameters requires a gradient.
//
// A parameter takes part in an update if a backward() since the last update reached it, as in
// PyTorch, where the other parameters have no gradient. So requires_grad_() has an effect at any
// time. Autograd increases the version of a gradient with every change; the version shows which
// parameters were reached.
//
// Some tensors are not moved: those that are undefined or empty, and those that do not require a
// gradient and could not be trained (left_alone()). A tensor with two names (tied weights) is moved
// once, under its first name.
class FlatParameters {
 public:
  // Throws ConfigError for a parameter that is not a leaf, dense and real, for two parameters with
  // the same name, and for two different tensors that share memory.
  explicit FlatParameters(const NamedTensors& parameters, FlatOptions options = {});
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  struct Slice {
    std::string name;
    torch::Tensor parameter;
    torch::Tensor grad;                    // the part of the bound set that is parameter.grad()
    std::vector<torch::Tensor> set_grads;  // the same part of each set
    std::int64_t offset = 0;               // in elements, a multiple of 64 bytes
    std::int64_t size = 0;                 // in elements
    bool used = false;                     // takes part in the next update
    std::size_t bound = 0;                 // the index of `grad` in set_grads
    std::vector<std::uint32_t> versions;   // of set_grads, when they were last checked
  };

  // One for each (dtype, device), in the order of their first parameter; frozen buffers come last.
  // Between the slices is padding: it is zero in `grads` and has no meaning in `values`.
  struct Buffer {
    torch::Tensor values;
    torch::Tensor grads;  // the gradients that an optimizer uses: the first set
    std::vector<torch::Tensor> grad_sets;
    // Each set with marks in front of it, one element for each slice and one more: see
    // write_marks().
    std::vector<torch::Tensor> messages;
    std::vector<Slice> slices;

    bool is_trainable() const { return grads.defined(); }  // else frozen
  };

  const std::vector<Buffer>& buffers() const { return buffers_; }

  // The names of all parameters in the order of the model, also of those that are in no buffer. A
  // tensor with two names is listed once, as in Python's model.parameters().
  const std::vector<std::string>& names() const { return names_; }

  // The number of elements of all parameters in the buffers, without padding.
  std::int64_t size() const { return size_; }

  // Parameters that are in no buffer: they do not require a gradient, and are not dense, not real,
  // not leaves, or share memory with others.
  const NamedTensors& left_alone() const { return left_alone_; }

  // Makes frozen buffers trainable if one of their parameters requires a gradient now: allocates
  // memory for gradients and moves their values into FlatOptions::memory. Returns whether it did
  // so. Gradients that such parameters have already are dropped. If the memory of the buffers is
  // shared, all ranks must make the same call. Throws ConfigError if a parameter in left_alone()
  // requires a gradient.
  bool make_unfrozen_trainable();

  // Call it after backward(): it records which parameters were reached. If autograd or the user
  // replaced a gradient (by none, by another tensor, by a sparse one), its values are copied into
  // the flat gradient; none becomes zero. Throws Error if a parameter was moved out of the buffers
  // (module->to(...), set_data, torch::load). Costs two pointer comparisons per parameter if
  // nothing was replaced.
  void collect_grads();

  // The same for one buffer, without looking for replaced gradients. A hook in backward() may call
  // it when all gradients of the buffer are complete.
  void note_use(std::size_t buffer);

  // Ranks agree on which parameters were used by marks in front of the gradients, so that no
  // separate message is needed. A mark is 1 if this rank used the parameter, else 0.
  void write_marks(std::size_t buffer, std::int64_t set);
  // A parameter is used if one of these sets has a mark for it that is not 0.
  void read_marks(std::span<const std::int64_t> sets);
  // One more mark, for the caller: set it before write_marks(). After read_marks(), it says whether
  // it was set in one of the sets.
  void set_mark(bool mark) { mark_ = mark; }
  bool mark() const { return mark_; }

  // After this, no parameter takes part in the next update until a backward() reaches it.
  void forget_use();

  // Selects the set to which backward() adds from now on.
  void bind_grads(std::int64_t set);

  // Clears all sets. Afterwards no parameter counts as used.
  void zero_grad();

  // As many zeroed elements as a buffer has, in the same kind of memory.
  torch::Tensor zeros_like_values(std::size_t buffer) const;

  // Zeroed numbers in the same kind of memory. If it is shared, all ranks must make the same call.
  torch::Tensor zeros(std::int64_t count, const torch::TensorOptions& options) const {
    return options_.memory(count, options);
  }

  // Moves the parameters back into memory of this process. Their gradients do not exist afterwards.
  void move_to_own_memory();

  // The L2 norm of all gradients, summed in double and in a fixed order: its bits do not depend on
  // the number of threads.
  double grad_norm() const;

  // The same as one number of type double on the device of the gradients, which the host does not
  // wait for. It is summed in the order that torch chooses.
  torch::Tensor grad_norm_tensor() const;

  // The same in parts: the number of blocks; the squared norms of a part's blocks, written to their
  // places among all blocks, which must be zero before; and the norm of all blocks. For float and
  // double on the CPU.
  std::int64_t num_blocks() const;
  void block_norms(const Part& part, std::span<double> blocks) const;
  double norm_of_blocks(std::span<const double> blocks) const;

  // Whether all elements of a part of the gradients are finite.
  bool all_finite(const Part& part = {}) const;

  // Sets a part of the gradients to zero. Afterwards no parameter counts as used.
  void drop_grads(const Part& part = {});

  // Limits every element of the gradients to [-limit, limit].
  void clip_grad_value(double limit, const Part& part = {});

  // Tells autograd that the values changed. A backward() through a graph that was recorded before
  // an update is then refused, as with torch's own optimizers.
  void mark_updated();

 private:
  FlatOptions options_;
  NamedTensors left_alone_;
  std::vector<std::string> names_;
  std::vector<Buffer> buffers_;
  std::int64_t size_ = 0;
  bool mark_ = false;
};

// A slice's part of `flat` (the buffer's values, its grads or a tensor like them), in the shape of
// the parameter.
torch::Tensor slice_view(const FlatParameters::Slice& slice, const torch::Tensor& flat);

struct ClipNorm {
  double norm = 0.0;      // of the gradients
  double max_norm = 1.0;  // the largest norm that they may have
};

// The factor for gradients that makes their norm at most max_norm, as in
// torch.nn.utils.clip_grad_norm_: 0 for an infinite norm, and NaN for one that is NaN, so that all
// gradients become NaN. Pass it as StepOptions::grad_scale.
double clip_scale(const ClipNorm& options);

// The same for a norm that stays on its device.
torch::Tensor clip_factor(const torch::Tensor& norm, double max_norm);

}  // namespace lockstep::optim
