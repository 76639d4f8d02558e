// A custom model, and a metric from a function, for `lockstep run --plugin libwide_net.so`.
#include <lockstep/callback/function_metric.h>
#include <lockstep/recipe/plugin.h>
#include <torch/nn.h>

namespace ls = lockstep;
namespace nn = torch::nn;

struct WideNetOptions {
  std::int64_t width = 64;
  std::int64_t classes = 10;
};

class WideNetImpl : public nn::Module {
 public:
  WideNetImpl(const WideNetOptions& options, std::int64_t inputs)
      : hidden_(register_module("hidden", nn::Linear(inputs, options.width))),
        output_(register_module("output", nn::Linear(options.width, options.classes))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return output_(torch::relu(hidden_(x.flatten(1))));
  }

 private:
  nn::Linear hidden_, output_;
};
TORCH_MODULE(WideNet);

// The probability of the predicted class, for each sample.
torch::Tensor confidence(const torch::Tensor& outputs, const torch::Tensor& /*targets*/) {
  return outputs.softmax(1).amax(1);
}

LOCKSTEP_PLUGIN(targets) {
  targets.models.add<WideNetOptions>(
      "WideNet", "One wide layer.",
      {{"width", &WideNetOptions::width, "width of the hidden layer"},
       {"classes", &WideNetOptions::classes, "number of classes, the width of the output"}},
      [](const WideNetOptions& options, const ls::recipe::Example& example) {
        return ls::Model(WideNet(options, example.input.flatten(1).size(1)));
      });
  targets.callbacks.add("ConfidenceCallback", "The mean probability of the predicted class.", [] {
    return std::make_shared<ls::BatchFunctionCallback>(
        ls::BatchFunctionCallbackOptions{.name = "confidence", .function = confidence});
  });
}
