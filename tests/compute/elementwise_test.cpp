#include "lockstep/compute/elementwise.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep::compute {
namespace {

TEST(Elementwise, RowsAreRepeatedAndAdded) {
  const auto row = torch::randn({37});
  auto out = torch::empty({5, 37});
  repeat_row({.count = 5, .width = 37}, row.data_ptr<float>(), out.data_ptr<float>());
  EXPECT_TRUE(out.equal(row.expand({5, 37})));

  const auto values = torch::randn({9, 37});
  auto sums = row.clone();
  add_rows({.count = 9, .width = 37}, values.data_ptr<float>(), sums.data_ptr<float>());
  EXPECT_TRUE(torch::allclose(sums, row + values.sum(0), 1e-5, 1e-6));
}

TEST(Elementwise, ReluIsTorchsForNotANumberToo) {
  auto values = torch::randn({101});
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[4] = -std::numeric_limits<float>::infinity();
  const auto expected = torch::relu(values);
  const auto grad = torch::randn({101});
  auto masked = torch::empty({101});
  relu(101, values.data_ptr<float>());
  EXPECT_TRUE(values.nan_to_num(7).equal(expected.nan_to_num(7)));
  relu_backward(101, {.grad = grad.data_ptr<float>(),
                      .output = values.data_ptr<float>(),
                      .masked = masked.data_ptr<float>()});
  EXPECT_TRUE(masked.equal(torch::threshold_backward(grad, expected, 0)));
}

}  // namespace
}  // namespace lockstep::compute
