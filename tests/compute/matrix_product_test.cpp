#include "lockstep/compute/matrix_product.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep::compute {
namespace {

Matrix matrix_of(const torch::Tensor& stored, bool transposed) {
  return {.data = stored.data_ptr<float>(),
          .rows = stored.size(transposed ? 1 : 0),
          .columns = stored.size(transposed ? 0 : 1),
          .stride = stored.stride(0),
          .transposed = transposed};
}

TEST(MatrixProduct, IsTorchsForAllWaysToStoreIt) {
  torch::manual_seed(1);
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const bool accumulate : {false, true}) {
        const auto a = a_transposed ? torch::randn({7, 5}) : torch::randn({5, 7});
        const auto b = b_transposed ? torch::randn({3, 7}) : torch::randn({7, 3});
        auto out = torch::randn({5, 3});
        const auto expected = torch::mm(a_transposed ? a.t() : a, b_transposed ? b.t() : b) +
                              (accumulate ? out : torch::zeros_like(out));
        multiply({.a = matrix_of(a, a_transposed),
                  .b = matrix_of(b, b_transposed),
                  .accumulate = accumulate},
                 out.data_ptr<float>());
        EXPECT_TRUE(torch::allclose(out, expected, 1e-5, 1e-6));
      }
    }
  }
}

TEST(MatrixProduct, RowsMayLieApart) {
  const auto wide = torch::randn({4, 10});
  const auto part = wide.narrow(1, 2, 5);
  const auto b = torch::randn({5, 2});
  auto out = torch::empty({4, 2});
  multiply({.a = matrix_of(part, false), .b = matrix_of(b, false)}, out.data_ptr<float>());
  EXPECT_TRUE(torch::allclose(out, part.mm(b), 1e-5, 1e-6));
}

TEST(MatrixProduct, OfNothingIsZeroOrWhatWasThere) {
  const auto a = torch::empty({2, 0});
  const auto b = torch::empty({0, 3});
  auto out = torch::ones({2, 3});
  const Matrix left{.data = a.data_ptr<float>(), .rows = 2, .columns = 0, .stride = 1};
  const Matrix right{.data = b.data_ptr<float>(), .rows = 0, .columns = 3, .stride = 3};
  multiply({.a = left, .b = right, .accumulate = true}, out.data_ptr<float>());
  EXPECT_TRUE(out.equal(torch::ones({2, 3})));
  multiply({.a = left, .b = right}, out.data_ptr<float>());
  EXPECT_TRUE(out.equal(torch::zeros({2, 3})));
}

}  // namespace
}  // namespace lockstep::compute
