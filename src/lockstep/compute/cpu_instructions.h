// What the CPU can do with numbers of 16 bits.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/precision.h"

namespace lockstep::compute {

// The instructions for matrix products of bf16 and fp16 that /proc/cpuinfo lists, "avx512_bf16
// amx_bf16"; "none" if there are none.
std::string half_instructions(std::string_view cpuinfo);

// The content of this machine's /proc/cpuinfo; empty if it cannot be read.
std::string read_cpuinfo();

// A sentence that says why the precision is slow on the CPU; empty if it is not, and for fp32.
std::string why_slow(Precision precision, std::string_view cpuinfo);

}  // namespace lockstep::compute
