// LibTorch calls whatever libblas.so.3 is on the machine, and the reference one is many times
// slower than the others without a word. This is the word.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

// The file of the reference BLAS where this process has loaded it, nothing where it has a fast one
// (OpenBLAS, MKL, BLIS, ATLAS) or LibTorch carries its own.
std::optional<std::string> find_reference_blas();

// Warns, once a process, with the remedy.
void warn_of_slow_blas();

}  // namespace lockstep
