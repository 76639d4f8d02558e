// A model that all ranks train together.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/wire.h"
#include "lockstep/train/model.h"

namespace lockstep::dist {

struct DistributedModelOptions {
  // In training mode, the first forward pass after each averaged backward() starts with rank 0's
  // buffers (for example running means of batch norm) on all ranks.
  bool broadcast_buffers = true;
  // Gradients are sent in messages of about this size while backward() computes the others.
  std::int64_t bucket_bytes = 8 << 20;
  // With kBf16, gradients of float32 and less, times the weight, and their sums are rounded to
  // bfloat16, and hosts send half the bytes. With one rank nothing is sent or rounded.
  Wire wire = Wire::kFp32;
};

// backward() of a loss that was computed with the model is collective: when it returns, the
// gradients of the parameters are their mean over all ranks, with the same bits on each rank. The
// mean is taken of the sum that is in .grad, as PyTorch's DistributedDataParallel does: gradients
// that were there before count, too. Equal optimizer steps then keep the parameters the same on all
// ranks.
//
// A parameter that no rank used keeps its gradient, or has none. A parameter that some ranks used
// gets the mean on all ranks; it counts as zero on the others.
//
// All ranks must make the same calls in the same order: forward passes in training mode, and for
// each averaged pass either backward() or no_batch(). One backward() may reach several models, if
// it reaches the same ones on all ranks; the order in which it reaches them does not matter. Models
// must be made in the same order on all ranks. Parameters may be frozen and unfrozen
// (requires_grad_()) at any time, on all ranks alike. backward() throws ConfigError for
// create_graph, for sparse gradients, if two threads call it at the same time, and after cleanup().
//
// Copies of this object share one model. The last one that is destroyed removes the hooks. With one
// rank, no call here does anything but to call the model.
class DistributedModel {
 public:
  // Collective: all ranks get rank 0's parameters and buffers. Throws ConfigError if a parameter
  // belongs to another DistributedModel.
  explicit DistributedModel(Model model, const DistributedModelOptions& options = {});

  const Model& model() const;

  // As those of Model: one tensor, several, or a batch; the only output, or all of them.
  template <typename... Inputs>
  requires std::invocable<const Model&, Inputs...> torch::Tensor operator()(
      Inputs&&... inputs) const {
    before_forward();
    return model()(std::forward<Inputs>(inputs)...);
  }
  torch::Tensor forward(const torch::Tensor& input) const { return (*this)(input); }

  template <typename... Inputs>
  requires requires(const Model& model, Inputs&&... inputs) {
    model.outputs(std::forward<Inputs>(inputs)...);
  }
  Outputs outputs(Inputs&&... inputs) const {
    before_forward();
    return model().outputs(std::forward<Inputs>(inputs)...);
  }

  // This rank's weight in the next averaged pass; after that it is 1 again. Call it before
  // backward(). If batches differ in size, pass the number of samples of which the gradient is a
  // mean: then the result is the gradient of the mean loss over the samples of all ranks.
  void weight(double weight) const;

  // Collective with backward() of the other ranks, and used instead of forward and backward on a
  // rank that has no batch. This rank's weight is 0, unless weight() was called for gradients that
  // it has accumulated. Its gradients are then the same as those of the other ranks.
  void no_batch() const;

  // While the returned object lives, backward() only adds to this rank's gradients and sends
  // nothing. The next backward() after it averages everything that was added:
  //
  //   {
  //     const auto scope = model.no_sync();
  //     loss_of(model, first).backward();
  //   }
  //   loss_of(model, second).backward();  // the mean of the sum of both
  //
  // Unlike in PyTorch, it is backward() that must be inside of the scope; forward() may be, too.
  class NoSync;
  [[nodiscard]] NoSync no_sync() const;

 private:
  friend void no_batch(std::vector<DistributedModel> models);
  struct SharedState;
  void before_forward() const;

  std::shared_ptr<SharedState> shared_;
};

class DistributedModel::NoSync {
 public:
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  friend class DistributedModel;
  explicit NoSync(std::shared_ptr<SharedState> shared);

  std::shared_ptr<SharedState> shared_;
};

// As DistributedModel::no_batch(), on a rank that has no batch while the others call one backward()
// that reaches several models. Pass the models in the order of their forward passes:
//
//   critic(generator(x)).mean().backward();  // with a batch
//   dist::no_batch({generator, critic});     // without one
void no_batch(std::vector<DistributedModel> models);

// Collective.
inline DistributedModel prepare_ddp_model(Model model,
                                          const DistributedModelOptions& options = {}) {
  return DistributedModel(std::move(model), options);
}

// For models that are not a DistributedModel. Collective, after backward() and before the
// optimizer's step. Each gradient is replaced by its mean over all ranks, with the same bits on
// each rank. It costs one message per data type. `weight` is this rank's weight in the mean: the
// number of samples in its batch (0 if it had none) if batches differ in size.
//
// If a parameter has no gradient on this rank, it counts as zero. It gets a gradient if another
// rank has one.
//
// Throws ConfigError for parameters of a DistributedModel: its backward() has averaged already,
// with the weight that weight() has set.
void average_gradients(const std::vector<torch::Tensor>& parameters, double weight = 1);

}  // namespace lockstep::dist
