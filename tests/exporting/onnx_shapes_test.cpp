#include <gmock/gmock.h>

#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

using testing::expect_translated;
using torch::Tensor;

const Tensor kBlock = torch::randn({2, 3, 4});

TEST(OnnxShapes, OtherShapes) {
  expect_translated(
      [](const Tensor& x) {
        return x.view({-1, 12}).unflatten(1, {2, 6}).flatten(1);
      },
      kBlock);
  expect_translated(
      [](const Tensor& x) {
        return x.unsqueeze(-1).squeeze(-1).reshape_as(x).unsqueeze(1).squeeze(1);
      },
      kBlock);
  expect_translated(
      [](const Tensor& x) {
        return x.permute({2, 0, -2}).transpose(0, 1).contiguous().clone();
      },
      kBlock);
  expect_translated([](const Tensor& x) { return x.flatten(1).t(); }, kBlock);
}

TEST(OnnxShapes, Parts) {
  expect_translated(
      [](const Tensor& x) { return x.slice(1, 0, 3, 2) + x.narrow(1, 1, 2) + x.slice(1, -2); },
      kBlock);
  expect_translated([](const Tensor& x) { return x.select(1, -1) + x[0][1] + x.unbind(1)[2]; },
                    kBlock);
  expect_translated([](const Tensor& x) { return x.chunk(2, 2)[1] + x.split(2, 2)[0]; }, kBlock);
  expect_translated([](const Tensor& x) { return x.split_with_sizes({1, 3}, 2)[1]; }, kBlock);
  expect_translated([](const Tensor& x) { return x.flip({1, 2}); }, kBlock);
}

TEST(OnnxShapes, SeveralTensorsTogether) {
  expect_translated(
      [](const Tensor& x) {
        return torch::cat({x, x.exp(), (x > 0).to(torch::kFloat32)}, -1);
      },
      kBlock);
  expect_translated([](const Tensor& x) { return torch::stack({x, x.exp()}, -1); }, kBlock);
}

TEST(OnnxShapes, Repetition) {
  expect_translated(
      [](const Tensor& x) {
        return x.mean(1, true).expand({-1, 5, 4}) + x.mean(1, true).expand({-1, 5, -1});
      },
      kBlock);
  expect_translated(
      [](const Tensor& x) {
        return x.mean(1, true).expand_as(x) + x.new_zeros({3, 4}).expand_as(x);
      },
      kBlock);
  expect_translated(
      [](const Tensor& x) {
        return x.repeat({1, 2, 1}) + x.repeat_interleave(2, 1);
      },
      kBlock);
  expect_translated([](const Tensor& x) { return x.repeat({2, 1, 1, 1}); }, kBlock);
  expect_translated([](const Tensor& x) { return x.repeat_interleave(3, 0); }, kBlock);
}

TEST(OnnxShapes, Indices) {
  const Tensor places = torch::tensor({2, 0});
  expect_translated([&](const Tensor& x) { return x.index_select(1, places); }, kBlock);
  expect_translated(
      [&](const Tensor& x) {
        return x.index({torch::indexing::Slice(), places});
      },
      kBlock);
  expect_translated([](const Tensor& x) { return x.gather(2, std::get<1>(x.sort(2))); }, kBlock);
  expect_translated(
      [](const Tensor& x) { return x.scatter(2, x.argmax(2, true), x.mean(2, true)); }, kBlock);
  expect_translated([](const Tensor& x) { return std::get<0>(x.sort(1, true)); }, kBlock);
  const Tensor table = torch::randn({5, 2});
  expect_translated([&](const Tensor& x) { return torch::embedding(table, x); },
                    torch::randint(5, {2, 3}, torch::kInt64));
}

TEST(OnnxShapes, Padding) {
  namespace F = torch::nn::functional;
  expect_translated(
      [](const Tensor& x) {
        return torch::constant_pad_nd(x, {1, 2, 0, 1}, 0.5);
      },
      kBlock);
  expect_translated(
      [](const Tensor& x) {
        return F::pad(x, F::PadFuncOptions({1, 2}).mode(torch::kReflect));
      },
      kBlock);
  expect_translated(
      [](const Tensor& x) {
        return F::pad(x, F::PadFuncOptions({1, 2}).mode(torch::kReplicate));
      },
      kBlock);
}

TEST(OnnxShapes, CircularPadding) {
  namespace F = torch::nn::functional;
  expect_translated(
      [](const Tensor& x) {
        return F::pad(x, F::PadFuncOptions({1, 2}).mode(torch::kCircular));
      },
      kBlock);
}

TEST(OnnxShapes, NewTensors) {
  expect_translated(
      [](const Tensor& x) {
        return x + torch::arange(4) + torch::arange(0, 12, 3) + torch::full({4}, 2.5);
      },
      kBlock);
  expect_translated(
      [](const Tensor& x) {
        return x + torch::ones_like(x) + torch::zeros_like(x) + torch::full_like(x, 0.5);
      },
      kBlock);
  expect_translated(
      [](const Tensor& x) {
        return x + torch::arange(x.size(0)).view({-1, 1, 1}) + torch::ones({x.size(0), 1, 1});
      },
      kBlock);
}

}  // namespace
}  // namespace lockstep::exporting
