// All parameters of a model, side by side in a few flat buffers: one pass updates them, one message
// reduces their gradients.
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

// The constructor moves every parameter into the buffers. A parameter keeps its identity, shape,
// strides and value, so modules, optimizers and hooks that hold it never notice; its .grad becomes
// a zeroed part of the flat gradient, where backward() then accumulates. The memory lives as long
// as any parameter in it does, and each parameter has a storage of its own size, so a module is
// saved and copied as ever.
//
// Parameters that do not require a gradient have buffers of their own, which are asleep: without
// memory for gradients, and in memory of this process alone, until wake_unfrozen() finds that one
// of their parameters requires a gradient.
//
// A parameter takes part in an update where a backward() since the last one reached it, as in
// PyTorch, where others have no gradient. So requires_grad_() is obeyed at any time. Which ones
// were reached is known by the version that autograd counts with every change of a gradient.
//
// Left alone: tensors that are undefined or empty, and, of those that do not require a gradient,
// the ones that could not be trained (left_alone()). A tensor under two names (tied weights) is
// taken once, under the first.
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
    bool used = false;                     // takes part in the next update
    std::size_t bound = 0;                 // which of set_grads `grad` is
    std::vector<std::uint32_t> versions;   // of set_grads, when they were last looked at
  };

  // One for each (dtype, device), in the order of their first parameter; those asleep come last.
  // Between the slices is padding: zero in `grads`, of no meaning in `values`.
  struct Buffer {
    torch::Tensor values;
    torch::Tensor grads;  // what an optimizer steps by: the first set
    std::vector<torch::Tensor> grad_sets;
    // Each set with marks in front of it, one element for each slice and one more: see
    // write_marks().
    std::vector<torch::Tensor> messages;
    std::vector<Slice> slices;

    bool is_awake() const { return grads.defined(); }
  };

  const std::vector<Buffer>& buffers() const { return buffers_; }

  // The elements of all parameters in the buffers, padding not counted.
  std::int64_t size() const { return size_; }

  // Parameters that are in no buffer: they do not require a gradient, and are not dense, not real,
  // not leaves, or share memory with others.
  const NamedTensors& left_alone() const { return left_alone_; }

  // Gives memory for gradients to buffers that are asleep where one of their parameters requires a
  // gradient now, moves their values into FlatOptions::memory, and returns whether it did.
  // Gradients that such parameters have already are dropped. Where the buffers' memory is shared,
  // all ranks must call it alike. Throws ConfigError where a parameter that was left alone requires
  // a gradient.
  bool wake_unfrozen();

  // To be called after backward(): notes which parameters it reached. A gradient that autograd or
  // the user replaced (by none, another tensor, a sparse one) is brought into the flat gradient,
  // none as zero. Throws Error where a parameter was moved out of the buffers (module->to(...),
  // set_data, torch::load). Costs two pointer comparisons a parameter when nothing was replaced.
  void collect_grads();

  // The same for one buffer, without looking for gradients that were replaced: it may be called by
  // a hook in backward(), when all gradients of the buffer are complete.
  void note_use(std::size_t buffer);

  // Ranks agree on what was used by marks that travel in front of the gradients, so that no message
  // of their own is needed: a mark is 1 where this rank used the parameter, else 0.
  void write_marks(std::size_t buffer, std::int64_t set);
  // A parameter is used where one of these sets has a mark for it that is not 0.
  void read_marks(std::span<const std::int64_t> sets);
  // One more mark, of the caller's own: set before write_marks(); after read_marks(), whether it
  // was set in one of the sets.
  void set_mark(bool mark) { mark_ = mark; }
  bool mark() const { return mark_; }

  // No parameter takes part in the next update until a backward() reaches it.
  void forget_use();

  // The set that backward() adds to from now on.
  void bind_grads(std::int64_t set);

  // All sets. No parameter counts as used after it.
  void zero_grad();

  // Zeroed elements beside those of a buffer, in the same kind of memory.
  torch::Tensor zeros_like_values(std::size_t buffer) const;

  // Moves the parameters back into memory of this process alone. Their gradients are gone after it.
  void move_to_own_memory();

  // The L2 norm of all gradients, summed in double and in a fixed order: its bits do not depend on
  // the number of threads.
  double grad_norm() const;

  // The same in shares: how many blocks there are, the squared norms of a part's blocks written to
  // their places among all, which are zero at first, and the norm of all. For float and double on
  // the CPU.
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
  NamedTensors left_alone_;
  std::vector<Buffer> buffers_;
  std::int64_t size_ = 0;
  bool mark_ = false;
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
