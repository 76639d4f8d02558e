// The layers of a Sequential, with PyTorch's names and defaults. A number of channels or features
// that is left out is that of the layer's input.
#include <optional>

#include <torch/nn/modules.h>

#include "lockstep/network/global_pool.h"
#include "lockstep/network/rms_norm.h"
#include "lockstep/network/squeeze_excitation.h"
#include "lockstep/recipe/input_sizes.h"
#include "lockstep/recipe/targets.h"

namespace lockstep::recipe {
namespace {

namespace nn = torch::nn;
using Numbers = std::vector<std::int64_t>;
using torch::nn::AnyModule;

// One value per dimension. A single value in `values` is used for all N dimensions.
template <std::size_t N>
torch::ExpandingArray<N> expand(const Numbers& values, const char* name) {
  if (values.size() == 1) return values[0];
  if (values.size() != N) {
    throw ConfigError("{}: expected one number or {}, got {}", name, N, values.size());
  }
  return torch::ExpandingArray<N>(values);
}

struct LinearOptions {
  std::optional<std::int64_t> in_features;
  std::int64_t out_features = 0;
  bool bias = true;
};

// Options of a convolution or its transpose.
struct ConvOptions {
  std::optional<std::int64_t> in_channels;
  std::int64_t out_channels = 0;
  Numbers kernel_size;
  Numbers stride = {1};
  Numbers padding = {0};
  Numbers dilation = {1};        // of a convolution
  Numbers output_padding = {0};  // of a transpose
  std::int64_t groups = 1;
  bool bias = true;
};

struct PoolLayerOptions {
  Numbers kernel_size;
  Numbers stride;
  Numbers padding = {0};
};

struct AdaptivePoolOptions {
  Numbers output_size = {1};
};

struct BatchNormOptions {
  std::optional<std::int64_t> num_features;
  double eps = 1e-5;
  double momentum = 0.1;
  bool affine = true;
  bool track_running_stats = true;
};

struct LayerNormOptions {
  Numbers normalized_shape;
  double eps = 1e-5;
  bool elementwise_affine = true;
};

struct GroupNormOptions {
  std::int64_t num_groups = 1;
  std::optional<std::int64_t> num_channels;
  double eps = 1e-5;
  bool affine = true;
};

struct DropoutOptions {
  double p = 0.5;
};

struct SlopeOptions {
  double negative_slope = 0.01;
};

struct EluOptions {
  double alpha = 1.0;
};

struct SoftmaxOptions {
  std::int64_t dim = 1;
};

struct FlattenOptions {
  std::int64_t start_dim = 1;
  std::int64_t end_dim = -1;
};

struct AttentionPoolOptions {
  std::optional<std::int64_t> channels;
};

struct ExcitationOptions {
  std::optional<std::int64_t> channels;
  std::int64_t reduction = 16;
  bool spatial = false;
};

struct RootNormOptions {
  std::optional<std::int64_t> features;
  double eps = 1e-6;
  bool elementwise_affine = true;
};

struct UnflattenOptions {
  std::int64_t dim = 1;
  Numbers sizes;
};

struct EmbeddingOptions {
  std::int64_t num_embeddings = 0;
  std::int64_t embedding_dim = 0;
};

void add_linear(Targets& targets) {
  using O = LinearOptions;
  targets.layers.add<O>(
      "Linear", "y = x A^T + b over the last dimension.",
      {{"in_features", &O::in_features, "default: those of its input"},
       config::required("out_features", &O::out_features,
                        "of its output; of a last layer: the data's classes"),
       {"bias", &O::bias, "whether it has b"}},
      [](const O& o, const torch::Tensor& input) {
        require_positive({o.out_features}, "out_features");
        return AnyModule(nn::Linear(
            nn::LinearOptions(size_or(o.in_features, input, -1, "in_features"), o.out_features)
                .bias(o.bias)));
      });
}

// The options that both have, and `own`.
std::vector<config::Field<ConvOptions>> conv_fields(const char* stride, const char* padding,
                                                    config::Field<ConvOptions> own) {
  using O = ConvOptions;
  return {
      {"in_channels", &O::in_channels, "default: those of its input"},
      config::required("out_channels", &O::out_channels, "of its output"),
      config::required("kernel_size", &O::kernel_size, "one number for all dimensions, or each"),
      {"stride", &O::stride, stride},
      {"padding", &O::padding, padding},
      std::move(own),
      {"groups", &O::groups, "groups of channels that are convolved separately"},
      {"bias", &O::bias, "whether a number is added to each output channel"}};
}

// LibTorch's options that both have in common.
template <std::size_t N, typename ModuleOptions>
ModuleOptions conv_options(const ConvOptions& o, const torch::Tensor& input) {
  require_positive({o.out_channels}, "out_channels");
  require_positive({o.groups}, "groups");
  require_positive(o.kernel_size, "kernel_size");
  require_positive(o.stride, "stride");
  require_positive(o.dilation, "dilation");
  return ModuleOptions(size_or(o.in_channels, input, 1, "in_channels"), o.out_channels,
                       expand<N>(o.kernel_size, "kernel_size"))
      .stride(expand<N>(o.stride, "stride"))
      .padding(expand<N>(o.padding, "padding"))
      .groups(o.groups)
      .bias(o.bias);
}

template <std::size_t N, typename Module, typename ModuleOptions>
void add_conv(Targets& targets, const std::string& name) {
  using O = ConvOptions;
  targets.layers.add<O>(
      name, fmt::format("A convolution over {} dimension{}.", N, N == 1 ? "" : "s"),
      conv_fields("of the kernel", "zeros on each side",
                  {"dilation", &O::dilation, "between the kernel's elements"}),
      [](const O& o, const torch::Tensor& input) {
        return AnyModule(Module(
            conv_options<N, ModuleOptions>(o, input).dilation(expand<N>(o.dilation, "dilation"))));
      });
}

template <std::size_t N, typename Module, typename ModuleOptions>
void add_conv_transpose(Targets& targets, const std::string& name) {
  using O = ConvOptions;
  targets.layers.add<O>(
      name, fmt::format("The transpose of a {}-D convolution: its output is larger.", N),
      conv_fields("of the kernel, in the output", "cut off on each side of the output",
                  {"output_padding", &O::output_padding, "size added to one side of the output"}),
      [](const O& o, const torch::Tensor& input) {
        return AnyModule(Module(conv_options<N, ModuleOptions>(o, input).output_padding(
            expand<N>(o.output_padding, "output_padding"))));
      });
}

template <std::size_t N, typename Module, typename ModuleOptions>
void add_pool(Targets& targets, const std::string& name, const std::string& about) {
  using O = PoolLayerOptions;
  targets.layers.add<O>(
      name, about,
      {config::required("kernel_size", &O::kernel_size, "one number for all dimensions, or each"),
       {"stride", &O::stride, "default: the kernel's size"},
       {"padding", &O::padding, "on each side"}},
      [](const O& o) {
        require_positive(o.kernel_size, "kernel_size");
        require_positive(o.stride, "stride");
        return AnyModule(
            Module(ModuleOptions(expand<N>(o.kernel_size, "kernel_size"))
                       .stride(expand<N>(o.stride.empty() ? o.kernel_size : o.stride, "stride"))
                       .padding(expand<N>(o.padding, "padding"))));
      });
}

template <typename Module, typename ModuleOptions, typename Sizes>
void add_adaptive_pool(Targets& targets, const std::string& name, Sizes sizes) {
  using O = AdaptivePoolOptions;
  targets.layers.add<O>(
      name, "Averages down to a given size, for inputs of any size.",
      {{"output_size", &O::output_size, "one number for all dimensions, or each"}},
      [sizes](const O& o) {
        require_positive(o.output_size, "output_size");
        return AnyModule(Module(ModuleOptions(sizes(o.output_size))));
      });
}

template <typename Module>
void add_batch_norm(Targets& targets, const std::string& name) {
  using O = BatchNormOptions;
  targets.layers.add<O>(
      name, "Normalises each channel over the batch.",
      {{"num_features", &O::num_features, "default: the channels of its input"},
       {"eps", &O::eps, "added to the variance"},
       {"momentum", &O::momentum, "of the running mean and variance"},
       {"affine", &O::affine, "whether it learns a scale and a shift"},
       {"track_running_stats", &O::track_running_stats,
        "use them in evaluation; else the batch's"}},
      [](const O& o, const torch::Tensor& input) {
        return AnyModule(
            Module(nn::BatchNormOptions(size_or(o.num_features, input, 1, "num_features"))
                       .eps(o.eps)
                       .momentum(o.momentum)
                       .affine(o.affine)
                       .track_running_stats(o.track_running_stats)));
      });
}

void add_norms(Targets& targets) {
  add_batch_norm<nn::BatchNorm1d>(targets, "BatchNorm1d");
  add_batch_norm<nn::BatchNorm2d>(targets, "BatchNorm2d");
  add_batch_norm<nn::BatchNorm3d>(targets, "BatchNorm3d");
  using L = LayerNormOptions;
  targets.layers.add<L>(
      "LayerNorm", "Normalises each sample over its last dimensions.",
      {{"normalized_shape", &L::normalized_shape, "their sizes; default: the last dimension"},
       {"eps", &L::eps, "added to the variance"},
       {"elementwise_affine", &L::elementwise_affine, "whether it learns scales and shifts"}},
      [](const L& o, const torch::Tensor& input) {
        const Numbers shape = o.normalized_shape.empty()
                                  ? Numbers{size_or({}, input, -1, "normalized_shape")}
                                  : o.normalized_shape;
        return AnyModule(nn::LayerNorm(
            nn::LayerNormOptions(shape).eps(o.eps).elementwise_affine(o.elementwise_affine)));
      });
  using G = GroupNormOptions;
  targets.layers.add<G>(
      "GroupNorm", "Normalises each sample over groups of channels.",
      {config::required("num_groups", &G::num_groups, "of channels"),
       {"num_channels", &G::num_channels, "default: those of its input"},
       {"eps", &G::eps, "added to the variance"},
       {"affine", &G::affine, "whether it learns a scale and a shift"}},
      [](const G& o, const torch::Tensor& input) {
        require_positive({o.num_groups}, "num_groups");
        return AnyModule(nn::GroupNorm(
            nn::GroupNormOptions(o.num_groups, size_or(o.num_channels, input, 1, "num_channels"))
                .eps(o.eps)
                .affine(o.affine)));
      });
}

template <typename Module>
void add_dropout(Targets& targets, const std::string& name, const std::string& about) {
  using O = DropoutOptions;
  targets.layers.add<O>(name, about, {{"p", &O::p, "probability"}},
                        [](const O& o) { return AnyModule(Module(o.p)); });
}

template <typename Module>
void add_plain_layer(Targets& targets, const std::string& name, const std::string& about) {
  targets.layers.add(name, about, [](const torch::Tensor&) { return AnyModule(Module()); });
}

template <typename Module>
void add_softmax(Targets& targets, const std::string& name, const std::string& about) {
  using O = SoftmaxOptions;
  targets.layers.add<O>(name, about, {{"dim", &O::dim, "dimension that sums to one"}},
                        [](const O& o) { return AnyModule(Module(o.dim)); });
}

void add_activations(Targets& targets) {
  add_plain_layer<nn::ReLU>(targets, "ReLU", "max(x, 0)");
  using S = SlopeOptions;
  targets.layers.add<S>(
      "LeakyReLU", "x, or negative_slope times x below 0.",
      {{"negative_slope", &S::negative_slope, "slope below 0"}}, [](const S& o) {
        return AnyModule(nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(o.negative_slope)));
      });
  using E = EluOptions;
  targets.layers.add<E>(
      "ELU", "x, or alpha (exp(x) - 1) below 0.", {{"alpha", &E::alpha, "its limit"}},
      [](const E& o) { return AnyModule(nn::ELU(nn::ELUOptions().alpha(o.alpha))); });
  add_plain_layer<nn::GELU>(targets, "GELU", "x times the normal distribution's P(X <= x)");
  add_plain_layer<nn::SiLU>(targets, "SiLU", "x sigmoid(x), also known as swish");
  add_plain_layer<nn::Mish>(targets, "Mish", "x tanh(log(1 + exp(x)))");
  add_plain_layer<nn::SELU>(targets, "SELU", "ELU with a scale that keeps the variance");
  add_plain_layer<nn::ReLU6>(targets, "ReLU6", "min(max(x, 0), 6)");
  add_plain_layer<nn::PReLU>(targets, "PReLU", "LeakyReLU with a slope that is learned");
  add_plain_layer<nn::Tanh>(targets, "Tanh", "tanh(x)");
  add_plain_layer<nn::Sigmoid>(targets, "Sigmoid", "1 / (1 + exp(-x))");
  add_plain_layer<nn::Softplus>(targets, "Softplus", "log(1 + exp(x))");
  add_softmax<nn::Softmax>(targets, "Softmax", "exp(x), scaled to a sum of one");
  add_softmax<nn::LogSoftmax>(targets, "LogSoftmax", "The logarithm of Softmax.");
}

void add_shapes(Targets& targets) {
  using F = FlattenOptions;
  targets.layers.add<F>("Flatten", "Makes one dimension of several.",
                        {{"start_dim", &F::start_dim, "the first of them"},
                         {"end_dim", &F::end_dim, "the last of them; -1: the last dimension"}},
                        [](const F& o) {
                          return AnyModule(nn::Flatten(
                              nn::FlattenOptions().start_dim(o.start_dim).end_dim(o.end_dim)));
                        });
  using U = UnflattenOptions;
  targets.layers.add<U>(
      "Unflatten", "Makes several dimensions of one.",
      {{"dim", &U::dim, "the one"}, config::required("sizes", &U::sizes, "of the new ones")},
      [](const U& o) { return AnyModule(nn::Unflatten(nn::UnflattenOptions(o.dim, o.sizes))); });
  using E = EmbeddingOptions;
  targets.layers.add<E>(
      "Embedding", "A vector for each integer.",
      {config::required("num_embeddings", &E::num_embeddings, "integers are 0 to this number - 1"),
       config::required("embedding_dim", &E::embedding_dim, "size of a vector")},
      [](const E& o) {
        require_positive({o.num_embeddings}, "num_embeddings");
        require_positive({o.embedding_dim}, "embedding_dim");
        return AnyModule(nn::Embedding(o.num_embeddings, o.embedding_dim));
      });
  add_plain_layer<nn::Identity>(targets, "Identity", "Returns its input.");
}

// Layers of network/: from [N, C, …] to [N, C], and others that LibTorch lacks.
void add_own_layers(Targets& targets) {
  add_plain_layer<network::GlobalAvgPool>(targets, "GlobalAvgPool",
                                          "The mean over all positions: [N, C, …] to [N, C].");
  add_plain_layer<network::GlobalMaxPool>(targets, "GlobalMaxPool",
                                          "The maximum over all positions: [N, C, …] to [N, C].");
  add_plain_layer<network::GlobalConcatPool>(
      targets, "GlobalConcatPool", "Mean and maximum over all positions: [N, C, …] to [N, 2 C].");
  using G = network::GeMPoolOptions;
  targets.layers.add<G>("GeMPool", "The generalised mean over all positions: [N, C, …] to [N, C].",
                        {{"p", &G::p, "1: the mean; the larger, the nearer to the maximum"},
                         {"eps", &G::eps, "smaller values count as this"},
                         {"trainable", &G::trainable, "whether p is learned"}},
                        [](const G& o) { return AnyModule(network::GeMPool(o)); });
  using A = AttentionPoolOptions;
  targets.layers.add<A>(
      "GlobalAttentionPool", "A mean over all positions, with weights that are learned.",
      {{"channels", &A::channels, "default: those of its input"}},
      [](const A& o, const torch::Tensor& input) {
        return AnyModule(network::GlobalAttentionPool(size_or(o.channels, input, 1, "channels")));
      });
  using E = ExcitationOptions;
  targets.layers.add<E>(
      "SqueezeExcitation", "Scales channels by numbers that depend on their means.",
      {{"channels", &E::channels, "default: those of its input"},
       {"reduction", &E::reduction, "the inner layer has channels / reduction features"},
       {"spatial", &E::spatial, "adds the input scaled by one number for each position"}},
      [](const E& o, const torch::Tensor& input) {
        require_positive({o.reduction}, "reduction");
        return AnyModule(network::SqueezeExcitation(
            network::SqueezeExcitationOptions{.channels = size_or(o.channels, input, 1, "channels"),
                                              .reduction = o.reduction,
                                              .spatial = o.spatial}));
      });
  using R = RootNormOptions;
  targets.layers.add<R>(
      "RMSNorm", "Divides by the root of the mean square of the last dimension.",
      {{"features", &R::features, "default: the last dimension of its input"},
       {"eps", &R::eps, "added to the mean square"},
       {"elementwise_affine", &R::elementwise_affine, "whether it learns scales"}},
      [](const R& o, const torch::Tensor& input) {
        return AnyModule(network::RMSNorm(
            network::RMSNormOptions{.features = size_or(o.features, input, -1, "features"),
                                    .eps = o.eps,
                                    .elementwise_affine = o.elementwise_affine}));
      });
}

}  // namespace

void add_layers(Targets& targets) {
  add_linear(targets);
  add_conv<1, nn::Conv1d, nn::Conv1dOptions>(targets, "Conv1d");
  add_conv<2, nn::Conv2d, nn::Conv2dOptions>(targets, "Conv2d");
  add_conv<3, nn::Conv3d, nn::Conv3dOptions>(targets, "Conv3d");
  add_conv_transpose<1, nn::ConvTranspose1d, nn::ConvTranspose1dOptions>(targets,
                                                                         "ConvTranspose1d");
  add_conv_transpose<2, nn::ConvTranspose2d, nn::ConvTranspose2dOptions>(targets,
                                                                         "ConvTranspose2d");
  add_conv_transpose<3, nn::ConvTranspose3d, nn::ConvTranspose3dOptions>(targets,
                                                                         "ConvTranspose3d");
  const std::string largest = "The largest number of each window.";
  add_pool<1, nn::MaxPool1d, nn::MaxPool1dOptions>(targets, "MaxPool1d", largest);
  add_pool<2, nn::MaxPool2d, nn::MaxPool2dOptions>(targets, "MaxPool2d", largest);
  add_pool<3, nn::MaxPool3d, nn::MaxPool3dOptions>(targets, "MaxPool3d", largest);
  const std::string mean = "The mean of each window.";
  add_pool<1, nn::AvgPool1d, nn::AvgPool1dOptions>(targets, "AvgPool1d", mean);
  add_pool<2, nn::AvgPool2d, nn::AvgPool2dOptions>(targets, "AvgPool2d", mean);
  add_pool<3, nn::AvgPool3d, nn::AvgPool3dOptions>(targets, "AvgPool3d", mean);
  add_adaptive_pool<nn::AdaptiveAvgPool1d, nn::AdaptiveAvgPool1dOptions>(
      targets, "AdaptiveAvgPool1d", [](const Numbers& n) { return expand<1>(n, "output_size"); });
  add_adaptive_pool<nn::AdaptiveAvgPool2d, nn::AdaptiveAvgPool2dOptions>(
      targets, "AdaptiveAvgPool2d", [](const Numbers& n) {
        const auto sizes = expand<2>(n, "output_size");
        return torch::ExpandingArrayWithOptionalElem<2>({(*sizes)[0], (*sizes)[1]});
      });
  add_adaptive_pool<nn::AdaptiveAvgPool3d, nn::AdaptiveAvgPool3dOptions>(
      targets, "AdaptiveAvgPool3d", [](const Numbers& n) {
        const auto sizes = expand<3>(n, "output_size");
        return torch::ExpandingArrayWithOptionalElem<3>({(*sizes)[0], (*sizes)[1], (*sizes)[2]});
      });
  add_norms(targets);
  add_dropout<nn::Dropout>(targets, "Dropout", "Zeroes elements at random while training.");
  add_dropout<nn::Dropout2d>(targets, "Dropout2d", "Zeroes channels of images at random.");
  add_dropout<nn::Dropout3d>(targets, "Dropout3d", "Zeroes channels of volumes at random.");
  add_activations(targets);
  add_shapes(targets);
  add_own_layers(targets);
}

}  // namespace lockstep::recipe
