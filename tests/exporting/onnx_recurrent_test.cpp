// Whole networks are tested in onnx_test.cpp. Here are layers with states of their own.
#include <gmock/gmock.h>

#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

namespace nn = torch::nn;

template <typename Layer>
struct WithStateImpl : nn::Module {
  explicit WithStateImpl(Layer given) : layer(this->register_module("rnn", given)) {}
  std::vector<torch::Tensor> forward(const torch::Tensor& x, const torch::Tensor& state) {
    if constexpr (std::is_same_v<Layer, nn::LSTM>) {
      const auto [outputs, states] = layer->forward(x, std::tuple(state, state * 2));
      return {outputs, std::get<0>(states), std::get<1>(states)};
    } else {
      const auto [outputs, last] = layer->forward(x, state);
      return {outputs, last};
    }
  }
  Layer layer;
};

// The batch is the second dimension of the states, so they are passed the other way round.
template <typename Layer>
struct BatchFirstImpl : WithStateImpl<Layer> {
  using WithStateImpl<Layer>::WithStateImpl;
  std::vector<torch::Tensor> forward(const torch::Tensor& x, const torch::Tensor& state) {
    return WithStateImpl<Layer>::forward(x, state.transpose(0, 1).contiguous());
  }
};

template <typename Layer>
void expect_layer_with_state(const Layer& layer, std::int64_t states) {
  const Model model(std::make_shared<BatchFirstImpl<Layer>>(layer));
  testing::export_both(model,
                       {{"x", torch::randn({2, 5, 3})}, {"state", torch::randn({2, states, 4})}});
}

TEST(OnnxRecurrent, FirstAndLastStates) {
  expect_layer_with_state(
      nn::LSTM(nn::LSTMOptions(3, 4).num_layers(2).batch_first(true).bidirectional(true)), 4);
  expect_layer_with_state(nn::GRU(nn::GRUOptions(3, 4).num_layers(2).batch_first(true).bias(false)),
                          2);
}

TEST(OnnxRecurrent, AProjectionIsRefused) {
  const Model model(
      std::make_shared<BatchFirstImpl<nn::GRU>>(nn::GRU(nn::GRUOptions(3, 4).batch_first(true))));
  EXPECT_NO_THROW(testing::export_both(
      model, {{"x", torch::randn({2, 5, 3})}, {"state", torch::randn({2, 1, 4})}}));
  const Model lstm = nn::LSTM(nn::LSTMOptions(3, 4).batch_first(true).proj_size(2));
  EXPECT_THAT(testing::error_of([&] {
                to_onnx(lstm, {{"x", torch::randn({2, 5, 3})}}, "never.onnx");
              }),
              ::testing::HasSubstr("projection"));
}

}  // namespace
}  // namespace lockstep::exporting
