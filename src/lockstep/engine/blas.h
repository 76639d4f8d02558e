// LibTorch uses the libblas.so.3 that is installed on the machine. The reference BLAS is many times
// slower than the others, and LibTorch does not warn about it. Lockstep does.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

// The file of the reference BLAS if LibTorch uses it in this process. Nothing if LibTorch uses a
// fast one (OpenBLAS, MKL, BLIS, ATLAS) or contains its own.
std::optional<std::string> find_reference_blas();

// Warns about the reference BLAS, once per process, and names the package to install.
void warn_of_slow_blas();

}  // namespace lockstep
