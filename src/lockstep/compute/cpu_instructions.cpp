#include "lockstep/compute/cpu_instructions.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>
#include <vector>

#include <ATen/Context.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::compute {
namespace {

// As Linux calls them: on x86, and then on ARM.
constexpr std::array<std::string_view, 4> kOfBf16 = {"avx512_bf16", "amx_bf16", "bf16", "svebf16"};
constexpr std::array<std::string_view, 4> kOfFp16 = {"avx512_fp16", "amx_fp16", "asimdhp", "fphp"};

std::vector<std::string> features_in(std::string_view cpuinfo) {
  std::istringstream lines{std::string(cpuinfo)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(std::min(line.find(':') + 1, line.size())));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

std::vector<std::string> found_in(std::string_view cpuinfo,
                                  std::span<const std::string_view> wanted) {
  std::vector<std::string> found = features_in(cpuinfo);
  std::erase_if(found, [&](const std::string& feature) {
    return std::ranges::find(wanted, feature) == wanted.end();
  });
  return found;
}

}  // namespace

std::string half_instructions(std::string_view cpuinfo) {
  std::vector<std::string> found = found_in(cpuinfo, kOfBf16);
  for (auto& name : found_in(cpuinfo, kOfFp16)) found.push_back(std::move(name));
  return found.empty() ? "none" : fmt::format("{}", fmt::join(found, " "));
}

std::string read_cpuinfo() {
  std::ifstream file("/proc/cpuinfo");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string why_slow(Precision precision, std::string_view cpuinfo) {
  if (!precision.is_mixed()) return "";
  const bool is_bf16 = precision == Precision::kBf16;
  std::string reason;
  if (found_in(cpuinfo, is_bf16 ? std::span(kOfBf16) : std::span(kOfFp16)).empty()) {
    reason = fmt::format("this CPU has no instructions for it, such as {}",
                         is_bf16 ? "avx512_bf16 or amx_bf16" : "avx512_fp16");
  } else if (!at::globalContext().hasMKLDNN()) {
    reason = "this LibTorch was built without oneDNN, which uses the CPU's instructions for it";
  }
  if (reason.empty()) return "";
  return fmt::format("precision: {}: {}, so training is slower than with fp32", precision.name(),
                     reason);
}

}  // namespace lockstep::compute
