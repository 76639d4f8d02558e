#include "lockstep/engine/blas.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/warn.h"
#include "lockstep/compute/matrix_product.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string output_of(const std::string& command) {
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> chunk;
  while (const std::size_t n = fread(chunk.data(), 1, chunk.size(), pipe)) {
    output.append(chunk.data(), n);
  }
  pclose(pipe);
  return output;
}

// Debian keeps the reference BLAS next to the chosen one, so one program can run on either.
std::optional<fs::path> reference_folder() {
  for (const char* triplet : {"x86_64-linux-gnu", "aarch64-linux-gnu"}) {
    const fs::path folder = fs::path("/usr/lib") / triplet / "blas";
    if (fs::exists(folder / "libblas.so.3")) return folder;
  }
  return std::nullopt;
}

// LibTorch's wheel for Python has MKL inside of its own library, which cannot be replaced.
bool has_own_blas() {
  void* const sgemm = compute::find_sgemm();
  Dl_info info;
  return sgemm == nullptr || dladdr(sgemm, &info) == 0 ||
         std::string_view(info.dli_fname).find("libtorch") != std::string_view::npos;
}

// This is not a test by itself: BlasWarning runs it in a separate process.
TEST(BlasProbe, WarnsTwiceIfNotOnce) {
  warn_of_slow_blas();
  warn_of_slow_blas();
}

TEST(Blas, MklIsAskedForReproducibleProducts) {
  const char* const setting = std::getenv("MKL_CBWR");
  ASSERT_NE(setting, nullptr);
  EXPECT_STRNE(setting, "");
}

TEST(BlasWarning, IsSilentOnAFastBlas) {
  EXPECT_EQ(find_reference_blas(), std::nullopt)
      << "this machine runs LibTorch on the reference BLAS: apt-get install libopenblas0-openmp";
}

TEST(BlasWarning, NamesTheReferenceBlasOnceWithTheRemedy) {
  if (has_own_blas()) GTEST_SKIP() << "this LibTorch has a BLAS of its own";
  const auto folder = reference_folder();
  if (!folder) GTEST_SKIP() << "the reference BLAS is not here; install libblas3";
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  const std::string output = output_of("LD_LIBRARY_PATH=" + folder->string() + " " + self +
                                       " --gtest_filter=BlasProbe.* 2>&1");
  EXPECT_THAT(output, testing::HasSubstr("reference BLAS"));
  EXPECT_THAT(output, testing::HasSubstr("libopenblas0-openmp"));
  EXPECT_EQ(output.find("reference BLAS"), output.rfind("reference BLAS")) << "said twice";
}

}  // namespace
}  // namespace lockstep
