// Any model whose forward maps a tensor to a tensor: a module of LibTorch or your own (its holder
// or a shared_ptr to it), a Sequential, or a TorchScript file that Python wrote.
//
//   ls::Model a = torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(784, 10));
//   ls::Model b = MyNet(32);                           // TORCH_MODULE(MyNet)
//   ls::Model c = ls::Model::script("traced.pt");
#pragma once

#include <concepts>
#include <filesystem>
#include <istream>
#include <memory>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include "lockstep/base/named.h"
#include "lockstep/state/named_tensors.h"
#include "lockstep/state/state_dict.h"

namespace lockstep {

template <typename M>
concept TensorModule = std::derived_from<M, torch::nn::Module> &&
    requires(M module, torch::Tensor input) {
  { module.forward(input) } -> std::convertible_to<torch::Tensor>;
};

// A handle: copies share one model.
class Model {
 public:
  Model() = default;

  template <TensorModule M>
  Model(std::shared_ptr<M> module) : impl_(std::make_shared<Native<M>>(std::move(module))) {}
  Model(std::shared_ptr<torch::nn::SequentialImpl> module);

  template <TensorModule M>
  Model(const torch::nn::ModuleHolder<M>& holder) : Model(holder.ptr()) {}

  // Throws ConfigError if the file is not a TorchScript module.
  static Model script(const std::filesystem::path& path);
  static Model script(std::istream&& file, const std::string& name);  // `name` is for messages

  // Several networks as one, for everything that handles weights (train/combined_model.h). It can
  // be called only if there is a single network.
  static Model combine(const Named<Model>& networks);

  explicit operator bool() const { return impl_ != nullptr; }

  torch::Tensor forward(const torch::Tensor& input) const { return impl_->forward(input); }
  torch::Tensor operator()(const torch::Tensor& input) const { return impl_->forward(input); }

  // The tensors in a fixed order, with the names that Python uses for the same model.
  NamedTensors parameters() const { return impl_->parameters(); }
  NamedTensors buffers() const { return impl_->buffers(); }
  NamedTensors weights() const;  // parameters, then buffers

  void train(bool on) const { impl_->train(on); }
  bool is_training() const { return impl_->is_training(); }
  void to(torch::Device device) const { impl_->to(device); }

  // Copies of the weights by name; load_state() copies them back into the same tensors. A name,
  // shape or type that does not fit is a CheckpointError that names it, and nothing has changed
  // then.
  StateDict state() const;
  void load_state(const StateDict& state) const;
  void check_state(const StateDict& state) const;  // throws as load_state() does, changes nothing

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual torch::Tensor forward(const torch::Tensor& input) = 0;
    virtual NamedTensors parameters() const = 0;
    virtual NamedTensors buffers() const = 0;
    virtual void train(bool on) = 0;
    virtual bool is_training() const = 0;
    virtual void to(torch::Device device) = 0;
  };

  // A C++ module; implements everything except its forward.
  struct NativeBase : Interface {
    explicit NativeBase(std::shared_ptr<torch::nn::Module> held);
    NamedTensors parameters() const override;
    NamedTensors buffers() const override;
    void train(bool on) override;
    bool is_training() const override;
    void to(torch::Device device) override;

    std::shared_ptr<torch::nn::Module> module;
  };

  template <typename M>
  struct Native final : NativeBase {
    explicit Native(std::shared_ptr<M> held) : NativeBase(held), typed(held.get()) {}
    torch::Tensor forward(const torch::Tensor& input) override { return typed->forward(input); }
    M* typed;
  };

  struct Sequential;  // may have layers that compute/ can plan

  struct Script;  // a TorchScript module

  struct Combined;  // several networks

  std::shared_ptr<Interface> impl_;
};

}  // namespace lockstep
