#include <gmock/gmock.h>

#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

using testing::expect_translated;
using torch::Tensor;

const Tensor kNumbers = torch::randn({2, 3, 4});

TEST(OnnxArithmetic, OperationsOnSingleNumbers) {
  expect_translated([](const Tensor& x) { return x.abs().sqrt().exp().log() - x.sin() * x.cos(); },
                    kNumbers);
  expect_translated([](const Tensor& x) { return x.neg().sign() + x.floor() + x.ceil() + x.erf(); },
                    kNumbers);
  expect_translated(
      [](const Tensor& x) { return (x.square() + 1).rsqrt() + (x.abs() + 1).reciprocal(); },
      kNumbers);
  expect_translated([](const Tensor& x) { return x.abs().log1p() + x.expm1(); }, kNumbers);
  expect_translated(
      [](const Tensor& x) { return x.abs().pow(0.5) + x.pow(2) + torch::pow(2.0, x); }, kNumbers);
  expect_translated(
      [](const Tensor& x) { return torch::add(x, x.exp(), 0.5) + torch::sub(x, x, 2) + (3 - x); },
      kNumbers);
  expect_translated([](const Tensor& x) { return torch::div(x, 0.3, "floor") + x / 3; }, kNumbers);
  expect_translated(
      [](const Tensor& x) { return x.clamp(-0.5, 0.5) + x.clamp_min(0.1) + x.clamp_max(0.2); },
      kNumbers);
  expect_translated(
      [](const Tensor& x) { return torch::minimum(x, x.exp()) + torch::maximum(x, x.sin()); },
      kNumbers);
}

TEST(OnnxArithmetic, TypesArePromotedAsInLibTorch) {
  const Tensor counts = torch::arange(6).reshape({2, 3});
  expect_translated([](const Tensor& x) { return x / 2; }, counts);
  expect_translated([](const Tensor& x) { return x * 2 + 1; }, counts);
  expect_translated([](const Tensor& x) { return x * 0.5; }, counts);
  expect_translated([](const Tensor& x) { return (x > 2).sum(1) + x.sum(1); }, counts);
  expect_translated([](const Tensor& x) { return x.to(torch::kFloat32) + x; }, counts);
  expect_translated([](const Tensor& x) { return (x > 1.5).to(torch::kFloat32); }, counts);
}

TEST(OnnxArithmetic, ComparisonsAndChoices) {
  expect_translated(
      [](const Tensor& x) { return (x > 0).logical_and(x <= 0.5).logical_or(x < -1); }, kNumbers);
  expect_translated([](const Tensor& x) { return (x >= x.exp()).logical_not().bitwise_not(); },
                    kNumbers);
  expect_translated(
      [](const Tensor& x) {
        return (x.floor() == 0).to(torch::kInt64) + (x.floor() != 1).to(torch::kInt64);
      },
      kNumbers);
  expect_translated([](const Tensor& x) { return torch::where(x > 0, x, x.exp()); }, kNumbers);
  expect_translated([](const Tensor& x) { return x.masked_fill(x > 0, -2.5); }, kNumbers);
}

TEST(OnnxArithmetic, Reductions) {
  expect_translated(
      [](const Tensor& x) {
        return x.mean({1, -1}) + x.sum({1, 2}) + x.amax({1, 2}) + x.amin({1, 2});
      },
      kNumbers);
  expect_translated(
      [](const Tensor& x) {
        return x.mean(1, true) + std::get<0>(x.max(1, true)) + std::get<0>(x.min(1, true));
      },
      kNumbers);
  expect_translated(
      [](const Tensor& x) { return std::get<1>(x.max(2)) + x.argmax(2) + x.argmin(2); }, kNumbers);
  expect_translated([](const Tensor& x) { return x + x.sum() + x.mean() + x.max() + x.min(); },
                    kNumbers);
  expect_translated(
      [](const Tensor& x) { return x.var({2}, false, true) + x.std({2}, true, true); }, kNumbers);
  expect_translated([](const Tensor& x) { return x.cumsum(1); }, kNumbers);
}

TEST(OnnxArithmetic, MatrixProducts) {
  const Tensor matrix = torch::randn({4, 5});
  expect_translated([&](const Tensor& x) { return x.matmul(matrix); }, kNumbers);
  expect_translated([](const Tensor& x) { return x.bmm(x.transpose(1, 2)); }, kNumbers);
  expect_translated(
      [&](const Tensor& x) {
        return torch::addmm(torch::ones({5}), x.flatten(1).slice(1, 0, 4), matrix, 0.5, 2);
      },
      kNumbers);
  expect_translated(
      [](const Tensor& x) {
        return torch::baddbmm(x.mean(1, true).mean(2, true), x, x.transpose(1, 2), 2, 0.5);
      },
      kNumbers);
}

}  // namespace
}  // namespace lockstep::exporting
