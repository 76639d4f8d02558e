// Any model whose forward takes one or several tensors, or a Batch, and returns one or several
// (std::tuple, std::pair, std::vector), or a Batch: a module of LibTorch or your own (its holder or
// a shared_ptr to it), a Sequential, or a TorchScript file that Python wrote.
//
//   ls::Model a = torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(784, 10));
//   ls::Model b = MyNet(32);                           // TORCH_MODULE(MyNet)
//   ls::Model c = ls::Model::script("traced.pt");
//   a(images);                                         // one tensor in, one tensor out
//   b.outputs(images, weather)[1];                     // several
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <istream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include "lockstep/base/named.h"
#include "lockstep/data/batch.h"
#include "lockstep/state/named_tensors.h"
#include "lockstep/state/state_dict.h"
#include "lockstep/train/outputs.h"

namespace torch::jit {
struct Module;
}

namespace lockstep {

// The largest number of tensors that a forward may take.
inline constexpr std::size_t kMostInputs = 8;

namespace model_detail {

template <std::size_t>
struct TensorAt {
  using type = const torch::Tensor&;
};

template <typename M, std::size_t... I>
constexpr bool takes_tensors(std::index_sequence<I...>) {
  if constexpr (requires(M & module) {
                  module.forward(std::declval<typename TensorAt<I>::type>()...);
                }) {
    return ModelOutput<decltype(std::declval<M&>().forward(
        std::declval<typename TensorAt<I>::type>()...))>;
  } else {
    return false;
  }
}

// Whether forward takes N tensors and returns a type that a model may return.
template <typename M, std::size_t N>
inline constexpr bool kTakesTensors = takes_tensors<M>(std::make_index_sequence<N>());

template <typename M>
inline constexpr bool kTakesBatch = requires(M& module, const Batch& batch) {
  { module.forward(batch) } -> ModelOutput;
};

// The numbers of tensors that forward takes.
template <typename M, std::size_t... I>
std::vector<std::size_t> input_counts(std::index_sequence<I...>) {
  std::vector<std::size_t> counts;
  ((kTakesTensors<M, I + 1> ? counts.push_back(I + 1) : void()), ...);
  return counts;
}

template <typename M, std::size_t... I>
constexpr bool takes_some_tensors(std::index_sequence<I...>) {
  return (kTakesTensors<M, I + 1> || ...);
}

}  // namespace model_detail

// A module that can be a model: its forward takes one to eight tensors, or a Batch.
template <typename M>
concept ModelModule = std::derived_from<M, torch::nn::Module> &&
    (model_detail::takes_some_tensors<M>(std::make_index_sequence<kMostInputs>()) ||
     model_detail::kTakesBatch<M>);

// A handle: copies share one model.
class Model {
 public:
  Model() = default;

  template <ModelModule M>
  Model(std::shared_ptr<M> module) : impl_(std::make_shared<Native<M>>(std::move(module))) {}
  Model(std::shared_ptr<torch::nn::SequentialImpl> module);

  template <ModelModule M>
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

  // The only output of a model that takes several tensors, or a batch. Throws ConfigError, which
  // says what the model takes and returns, if the inputs are of another number or kind, or if there
  // are several outputs.
  template <std::convertible_to<torch::Tensor>... More>
  requires(sizeof...(More) > 0) torch::Tensor operator()(const torch::Tensor& first,
                                                         const More&... more) const {
    return outputs(first, more...).tensor();
  }
  torch::Tensor operator()(const Batch& batch) const { return outputs(batch).tensor(); }

  // All outputs.
  Outputs outputs(std::span<const torch::Tensor> inputs) const { return impl_->outputs(inputs); }
  Outputs outputs(const Batch& batch) const { return impl_->batch_outputs(batch); }
  Outputs outputs(const torch::Tensor& input) const { return impl_->outputs({&input, 1}); }
  template <std::convertible_to<torch::Tensor>... More>
  requires(sizeof...(More) > 0) Outputs outputs(const torch::Tensor& first, const More&... more)
  const {
    const std::array<torch::Tensor, sizeof...(More) + 1> inputs = {first, more...};
    return impl_->outputs(inputs);
  }

  // Whether forward takes a batch, and no tensors.
  bool takes_batch() const { return impl_->takes_batch(); }
  // "takes 2 tensors and returns a tensor"
  std::string signature() const { return impl_->signature(); }

  // A network of a combined model (combine() above). Throws ConfigError, which suggests the nearest
  // name, if it has no such network.
  const Model& network(std::string_view name) const { return impl_->network(name); }

  // The network as TorchScript, if it was made by script(); else nullptr.
  const torch::jit::Module* script_module() const { return impl_->script_module(); }

  // The tensors in a fixed order, with the names that Python uses for the same model.
  NamedTensors parameters() const { return impl_->parameters(); }
  NamedTensors buffers() const { return impl_->buffers(); }
  NamedTensors weights() const;  // parameters, then buffers

  void train(bool on) const { impl_->train(on); }
  bool is_training() const { return impl_->is_training(); }
  // Puts modules into evaluation mode, with everything inside of them: those for whose name
  // `chosen` returns true. The model itself has the name "". The next train() undoes it.
  using ChooseModule = std::function<bool(const std::string& name)>;
  void eval_modules(const ChooseModule& chosen) const { impl_->eval_modules(chosen); }
  // Whether each module is in training mode, by its name as above. set_modes() brings these modes
  // back; modules that are not in `modes` keep theirs, unless a module around them is changed.
  using Modes = std::map<std::string, bool>;
  Modes modes() const;
  void set_modes(const Modes& modes) const;
  void to(torch::Device device) const { impl_->to(device); }

  // Copies of the weights by name; load_state() copies them back into the same tensors. A name,
  // shape or type that does not fit is a CheckpointError that names it, and nothing has changed
  // then. A second name of a weight (tied weights, which Python saves twice) is ignored.
  StateDict state() const;
  // The same without copying: the tensors are the model's own, without gradients.
  StateDict view_state() const;
  void load_state(const StateDict& state) const;
  void check_state(const StateDict& state) const;  // throws as load_state() does, changes nothing

 private:
  // Called for every module, before those inside of it, with its mode. Returns the mode that it
  // gets, with everything inside of it, if it has another one.
  using ChooseMode = std::function<bool(const std::string& name, bool is_training)>;

  struct Interface {
    virtual ~Interface() = default;
    virtual torch::Tensor forward(const torch::Tensor& input) = 0;
    // By default, forward() of one tensor; a batch is refused.
    virtual Outputs outputs(std::span<const torch::Tensor> inputs);
    virtual Outputs batch_outputs(const Batch& batch);
    virtual bool takes_batch() const { return false; }
    virtual std::string signature() const { return "takes 1 tensor and returns a tensor"; }
    virtual const Model& network(std::string_view name) const;  // by default there is none
    virtual const torch::jit::Module* script_module() const { return nullptr; }
    virtual NamedTensors parameters() const = 0;
    virtual NamedTensors buffers() const = 0;
    virtual void train(bool on) = 0;
    virtual bool is_training() const = 0;
    virtual void eval_modules(const ChooseModule& chosen) = 0;
    virtual void change_modes(const ChooseMode& mode_of) = 0;
    virtual void to(torch::Device device) = 0;

   protected:
    [[noreturn]] void refuse(std::span<const torch::Tensor> inputs) const;
    [[noreturn]] void refuse(const Batch& batch) const;
  };

  // A C++ module; implements everything except its forward.
  struct NativeBase : Interface {
    explicit NativeBase(std::shared_ptr<torch::nn::Module> held);
    NamedTensors parameters() const override;
    NamedTensors buffers() const override;
    void train(bool on) override;
    bool is_training() const override;
    void eval_modules(const ChooseModule& chosen) override;
    void change_modes(const ChooseMode& mode_of) override;
    void to(torch::Device device) override;

    std::shared_ptr<torch::nn::Module> module;
  };

  // "takes 1 or 2 tensors and returns a tensor"
  struct SignatureParts {
    std::vector<std::size_t> inputs;  // numbers of tensors
    bool takes_batch = false;
    bool returns_tensor = false;
    bool returns_batch = false;
  };
  static std::string signature_of(const SignatureParts& parts);

  template <typename M>
  struct Native final : NativeBase {
    explicit Native(std::shared_ptr<M> held) : NativeBase(held), typed(held.get()) {}

    torch::Tensor forward(const torch::Tensor& input) override {
      if constexpr (kTensorToTensor) {
        return typed->forward(input);
      } else {
        return outputs({&input, 1}).tensor();
      }
    }
    Outputs outputs(std::span<const torch::Tensor> inputs) override { return with<1>(inputs); }
    Outputs batch_outputs(const Batch& batch) override {
      if constexpr (model_detail::kTakesBatch<M>) {
        return Outputs::of(typed->forward(batch));
      } else {
        this->refuse(batch);
      }
    }
    bool takes_batch() const override { return counts().empty(); }
    std::string signature() const override {
      return signature_of(
          {.inputs = counts(),
           .takes_batch = model_detail::kTakesBatch<M>,
           .returns_tensor =
               returns([]<typename R>() { return std::convertible_to<R, torch::Tensor>; }),
           .returns_batch =
               returns([]<typename R>() { return std::same_as<std::remove_cvref_t<R>, Batch>; })});
    }

    M* typed;

   private:
    static constexpr bool kTensorToTensor = requires(M & module, const torch::Tensor& input) {
      { module.forward(input) } -> std::convertible_to<torch::Tensor>;
    };

    static std::vector<std::size_t> counts() {
      return model_detail::input_counts<M>(std::make_index_sequence<kMostInputs>());
    }

    template <std::size_t N>
    Outputs with(std::span<const torch::Tensor> inputs) {
      if constexpr (N > kMostInputs) {
        this->refuse(inputs);
      } else {
        if constexpr (model_detail::kTakesTensors<M, N>) {
          if (inputs.size() == N) return call(inputs, std::make_index_sequence<N>());
        }
        return with<N + 1>(inputs);
      }
    }
    template <std::size_t... I>
    Outputs call(std::span<const torch::Tensor> inputs, std::index_sequence<I...>) {
      return Outputs::of(typed->forward(inputs[I]...));
    }

    // What `ask` says about the type that forward returns, for the fewest inputs.
    template <std::size_t N = 1, typename Ask>
    static bool returns(const Ask& ask) {
      if constexpr (N > kMostInputs) {
        return ask.template
        operator()<decltype(std::declval<M&>().forward(std::declval<const Batch&>()))>();
      } else if constexpr (model_detail::kTakesTensors<M, N>) {
        return returns_with(ask, std::make_index_sequence<N>());
      } else {
        return returns<N + 1>(ask);
      }
    }
    template <typename Ask, std::size_t... I>
    static bool returns_with(const Ask& ask, std::index_sequence<I...>) {
      return ask.template operator()<decltype(std::declval<M&>().forward(
          std::declval<typename model_detail::TensorAt<I>::type>()...))>();
    }
  };

  struct Sequential;  // may have layers that compute/ can plan

  struct Script;  // a TorchScript module

  struct Combined;  // several networks

  std::shared_ptr<Interface> impl_;
};

}  // namespace lockstep
