// Tests that need GPUs derive from this. Where there are not enough, they are skipped with the
// reason, which `make test` lists at its end. Counting does not start CUDA, so these tests can
// fork; each runs in a process of its own (tests/CMakeLists.txt).
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/engine/devices.h"

namespace lockstep {

template <int kGpus>
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const UsableGpus gpus = usable_gpus();
    if (gpus.count >= kGpus) return;
    GTEST_SKIP() << fmt::format("NOT RUN ON A GPU: needs {}, and LibTorch can use {}{}",
                                kGpus == 1 ? "a GPU" : fmt::format("{} GPUs", kGpus),
                                gpus.count == 0 ? "none: " : fmt::to_string(gpus.count),
                                gpus.why_none);
  }
};

using OneGpu = GpuTest<1>;
using TwoGpus = GpuTest<2>;

}  // namespace lockstep
