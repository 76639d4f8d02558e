#include "lockstep/engine/blas.h"

#include <cstdlib>
#include <filesystem>

#include <dlfcn.h>
#include <fmt/format.h>

#include "lockstep/base/warn.h"
#include "lockstep/compute/matrix_product.h"

namespace lockstep {
namespace {

// By default the last bits of MKL's matrix products depend on where the matrices are in memory, so
// they would depend on how workers are connected. MKL reads this variable in its first call, so it
// is set before main(). A value of the user's stays.
[[maybe_unused]] const int mkl_setting = ::setenv("MKL_CBWR", "AUTO,STRICT", /*replace=*/0);

// The same for cuBLAS, whose results may otherwise depend on the stream. With deterministic
// algorithms, LibTorch refuses matrix products on a GPU without it.
[[maybe_unused]] const int cublas_setting =
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/0);

}  // namespace

std::optional<std::string> find_reference_blas() {
  // A fast BLAS may be loaded as well, because LAPACK needs one. What counts is which library has
  // the matrix product that LibTorch calls.
  void* const sgemm = compute::find_sgemm();
  Dl_info info;
  if (sgemm == nullptr || dladdr(sgemm, &info) == 0) return std::nullopt;
  std::error_code error;
  const auto real = std::filesystem::canonical(info.dli_fname, error);
  const std::string path = error ? info.dli_fname : real.string();
  for (const char* fast : {"openblas", "mkl", "blis", "atlas", "libtorch"}) {
    if (path.find(fast) != std::string::npos) return std::nullopt;
  }
  return path;
}

void warn_of_slow_blas() {
  if (const auto path = find_reference_blas()) {
    warn_once(
        fmt::format("LibTorch uses the reference BLAS ({}), which is many times slower than "
                    "it needs to be; install a fast one: apt-get install libopenblas0-openmp",
                    *path));
  }
}

}  // namespace lockstep
