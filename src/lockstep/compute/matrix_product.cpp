#include "lockstep/compute/matrix_product.h"

#include <dlfcn.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace lockstep::compute {
namespace {

using Sgemm = void(const char*, const char*, const int*, const int*, const int*, const float*,
                   const float*, const int*, const float*, const int*, const float*, float*,
                   const int*);

torch::Tensor as_tensor(const Matrix& matrix) {
  auto* const data = const_cast<float*>(matrix.data);
  if (matrix.transposed) {
    return torch::from_blob(data, {matrix.rows, matrix.columns}, {1, matrix.stride});
  }
  return torch::from_blob(data, {matrix.rows, matrix.columns}, {matrix.stride, 1});
}

}  // namespace

void* find_sgemm() {
  static void* const found = ::dlsym(RTLD_DEFAULT, "sgemm_");
  return found;
}

void multiply(const Product& product, float* out) {
  const Matrix& a = product.a;
  const Matrix& b = product.b;
  auto* const sgemm = reinterpret_cast<Sgemm*>(find_sgemm());
  if (sgemm == nullptr || a.columns == 0) {
    const torch::NoGradGuard no_grad;
    torch::Tensor result = torch::from_blob(out, {a.rows, b.columns});
    if (product.accumulate) {
      result.addmm_(as_tensor(a), as_tensor(b));
    } else {
      torch::mm_out(result, as_tensor(a), as_tensor(b));
    }
    return;
  }
  // Fortran stores matrices by columns, so everything is transposed: out^T = b^T a^T.
  const char* const op_a = a.transposed ? "t" : "n";
  const char* const op_b = b.transposed ? "t" : "n";
  const int m = static_cast<int>(b.columns);
  const int n = static_cast<int>(a.rows);
  const int k = static_cast<int>(a.columns);
  const int stride_a = static_cast<int>(a.stride);
  const int stride_b = static_cast<int>(b.stride);
  const float one = 1.0F;
  const float beta = product.accumulate ? 1.0F : 0.0F;
  sgemm(op_b, op_a, &m, &n, &k, &one, b.data, &stride_b, a.data, &stride_a, &beta, out, &m);
}

}  // namespace lockstep::compute
