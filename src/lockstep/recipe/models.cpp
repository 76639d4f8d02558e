#include "lockstep/network/gpt.h"
#include "lockstep/network/mlp.h"
#include "lockstep/network/recurrent.h"
#include "lockstep/network/resnet.h"
#include "lockstep/network/transformer.h"
#include "lockstep/network/unet.h"
#include "lockstep/recipe/input_sizes.h"
#include "lockstep/recipe/sequential.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"

namespace lockstep::config {

template <>
struct EnumNames<network::UNetNorm> {
  static constexpr std::pair<network::UNetNorm, const char*> names[] = {
      {network::UNetNorm::kBatch, "batch"},
      {network::UNetNorm::kInstance, "instance"},
      {network::UNetNorm::kGroup, "group"},
      {network::UNetNorm::kNone, "none"}};
};

template <>
struct EnumNames<network::Activation> {
  static constexpr std::pair<network::Activation, const char*> names[] = {
      {network::Activation::kReLU, "relu"},
      {network::Activation::kGELU, "gelu"},
      {network::Activation::kTanh, "tanh"}};
};

}  // namespace lockstep::config

namespace lockstep::recipe {
namespace {

struct SequentialOptions {
  config::Node layers;
};

struct TorchScriptOptions {
  std::filesystem::path path;
};

// The options of networks whose sizes a config may leave out.
struct ResNetTarget {
  std::optional<std::int64_t> classes;
  std::optional<std::int64_t> channels;
};

struct UNetTarget {
  std::optional<std::int64_t> dimensions;
  std::optional<std::int64_t> in;
  std::int64_t out = 0;
  std::int64_t width = network::UNetOptions{}.width;
  std::int64_t depth = network::UNetOptions{}.depth;
  network::UNetNorm norm = network::UNetOptions{}.norm;
  bool checkpoint_activations = false;
};

struct MLPTarget {
  std::optional<std::int64_t> in;
  std::vector<std::int64_t> hidden = network::MLPOptions{}.hidden;
  std::int64_t out = 0;
  network::Activation activation = network::MLPOptions{}.activation;
  double dropout = network::MLPOptions{}.dropout;
};

// `given`, or the number of classes in the data if the config leaves it out.
std::int64_t classes_or(const std::optional<std::int64_t>& given, const Example& example) {
  if (given) return *given;
  if (example.classes) return *example.classes;
  throw ConfigError("classes: expected a number, got none, and the data set does not know it");
}

void add_resnet(Targets& targets, std::int64_t depth, const std::string& about) {
  using O = ResNetTarget;
  targets.models.add<O>(fmt::format("ResNet{}", depth), about,
                        {{"classes", &O::classes, "outputs per image; default: those of the data"},
                         {"channels", &O::channels, "of an image; default: those of its input"}},
                        [depth](const O& o, const Example& example) {
                          return Model(network::ResNet(network::ResNetOptions{
                              .depth = depth,
                              .classes = classes_or(o.classes, example),
                              .channels = size_or(o.channels, example.input, 1, "channels")}));
                        });
}

// 2 for images and 3 for volumes, [batch, channels, …].
std::int64_t dimensions_or(const std::optional<std::int64_t>& given, const torch::Tensor& input) {
  if (given) return *given;
  require_input(input, "dimensions");
  return input.dim() - 2;
}

void add_unet(Targets& targets) {
  using O = UNetTarget;
  targets.models.add<O>(
      "UNet", "U-Net: an output for every pixel of an image or volume.",
      {{"dimensions", &O::dimensions, "2: images, 3: volumes; default: those of its input"},
       {"in", &O::in, "channels; default: those of its input"},
       config::required("out", &O::out, "channels of the output: classes, for example"),
       {"width", &O::width, "channels of the first level; each level has twice as many"},
       {"depth", &O::depth, "how often the size is halved"},
       {"norm", &O::norm, "after each convolution"},
       {"checkpoint_activations", &O::checkpoint_activations,
        "computes activations of a level again in backward: less memory, more time"}},
      [](const O& o, const Example& example) {
        return Model(network::UNet(
            network::UNetOptions{.dimensions = dimensions_or(o.dimensions, example.input),
                                 .in = size_or(o.in, example.input, 1, "in"),
                                 .out = o.out,
                                 .width = o.width,
                                 .depth = o.depth,
                                 .norm = o.norm,
                                 .checkpoint_activations = o.checkpoint_activations}));
      });
}

struct TransformerKind {
  std::string name;
  std::string about;
  bool per_token;
};

void add_encoder(Targets& targets, const TransformerKind& kind) {
  using T = network::TransformerOptions;
  targets.models.add<T>(
      kind.name,
      kind.about + " A second input is the lengths, or a mask that is true where there is padding.",
      {config::required("vocabulary", &T::vocabulary, "tokens are 0 to this number - 1"),
       config::required("classes", &T::classes,
                        kind.per_token ? "outputs per token" : "outputs per sequence"),
       {"tokens", &T::tokens, "of the longest sequence"},
       {"width", &T::width, "of embeddings and layers; a multiple of heads"},
       {"layers", &T::layers, "of the encoder"},
       {"heads", &T::heads, "of attention"},
       {"hidden", &T::hidden, "width between the two linear layers; default: 4 * width"},
       {"dropout", &T::dropout, "probability"}},
      [kind](T o) {
        o.per_token = kind.per_token;
        return Model(network::TransformerClassifier(o));
      });
}

void add_transformers(Targets& targets) {
  add_encoder(targets,
              {"TransformerClassifier", "A transformer encoder with a class for each sequence.",
               /*per_token=*/false});
  add_encoder(targets, {"TransformerTagger", "A transformer encoder with a class for each token.",
                        /*per_token=*/true});
  using G = network::GPTOptions;
  targets.models.add<G>(
      "GPT", "Predicts the next token at each place of a sequence; nanoGPT's layers and names.",
      {config::required("vocabulary", &G::vocabulary, "tokens are 0 to this number - 1"),
       {"tokens", &G::tokens, "of the longest sequence"},
       {"width", &G::width, "of embeddings and layers; a multiple of heads"},
       {"layers", &G::layers, "attention and MLP"},
       {"heads", &G::heads, "of attention"},
       {"dropout", &G::dropout, "probability"},
       {"tied", &G::tied, "the last layer has the weights of the embedding"},
       {"checkpoint_activations", &G::checkpoint_activations,
        "computes activations of a layer again in backward: less memory, more time"}},
      [](const G& o) { return Model(network::GPT(o)); });
}

struct RecurrentKind {
  std::string name;
  std::string about;
  network::Cell cell;
  bool per_token;
};

void add_recurrent(Targets& targets, const RecurrentKind& kind) {
  using O = network::RecurrentOptions;
  targets.models.add<O>(
      kind.name, kind.about + " A second input is the lengths.",
      {{"vocabulary", &O::vocabulary, "inputs are tokens, 0 to this number - 1"},
       {"features", &O::features, "or inputs are vectors of this size; default: that of its input"},
       config::required("classes", &O::classes,
                        kind.per_token ? "outputs per token" : "outputs per sequence"),
       {"embedding", &O::embedding, "size of a token's vector, with a vocabulary"},
       {"hidden", &O::hidden, "size of the state, of each direction"},
       {"layers", &O::layers, "one after the other"},
       {"bidirectional", &O::bidirectional, "whether it also reads from the end"},
       {"dropout", &O::dropout, "between layers and before the last one, probability"}},
      [kind](O o, const Example& example) {
        if (!o.vocabulary) o.features = size_or(o.features, example.input, -1, "features");
        o.cell = kind.cell;
        o.per_token = kind.per_token;
        return Model(network::Recurrent(o));
      });
}

void add_mlp(Targets& targets) {
  using O = MLPTarget;
  targets.models.add<O>(
      "MLP", "Linear layers with an activation between them.",
      {{"in", &O::in, "numbers per sample; default: those of its input"},
       {"hidden", &O::hidden, "widths of the hidden layers"},
       config::required("out", &O::out, "numbers per sample of the output"),
       {"activation", &O::activation, "after each hidden layer"},
       {"dropout", &O::dropout, "after each activation, probability"}},
      [](const O& o, const Example& example) {
        if (!o.in) require_input(example.input, "in");
        return Model(network::make_mlp({.in = o.in ? *o.in : example.input[0].numel(),
                                        .hidden = o.hidden,
                                        .out = o.out,
                                        .activation = o.activation,
                                        .dropout = o.dropout}));
      });
}

void add_networks(Targets& targets) {
  add_mlp(targets);
  add_resnet(targets, 18, "torchvision's ResNet-18 for images.");
  add_resnet(targets, 20, "The small ResNet for images of 32 x 32.");
  add_resnet(targets, 34, "torchvision's ResNet-34 for images.");
  add_resnet(targets, 50, "torchvision's ResNet-50 for images.");
  add_unet(targets);
  add_transformers(targets);
  using network::Cell;
  add_recurrent(targets, {"LSTMClassifier", "An LSTM with a class for each sequence.", Cell::kLSTM,
                          /*per_token=*/false});
  add_recurrent(targets, {"LSTMTagger", "An LSTM with a class for each token.", Cell::kLSTM,
                          /*per_token=*/true});
  add_recurrent(targets, {"GRUClassifier", "A GRU with a class for each sequence.", Cell::kGRU,
                          /*per_token=*/false});
  add_recurrent(targets, {"GRUTagger", "A GRU with a class for each token.", Cell::kGRU,
                          /*per_token=*/true});
}

}  // namespace

void add_models(Targets& targets) {
  using S = SequentialOptions;
  targets.models.add<S>(
      "Sequential", "Layers one after the other; a plain list means the same.",
      {config::required("layers", &S::layers, "one after the other").named("list of layer")},
      [](const S& o, const Example& example) { return Model(make_sequential(o.layers, example)); });
  using T = TorchScriptOptions;
  targets.models.add<T>("TorchScript", "A model that Python saved with torch.jit.save.",
                        {config::required("path", &T::path, "of the file")},
                        [](const T& o) { return Model::script(o.path); });
  add_networks(targets);
}

}  // namespace lockstep::recipe
