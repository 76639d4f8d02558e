#include "lockstep/metric/cmc.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"

namespace lockstep::metric {
namespace {

constexpr std::int64_t kBlock = 256;  // queries at a time, which limits the memory for distances
constexpr int kDirect = 2;            // torch::cdist without a matrix product, which rounds more

struct Embeddings {
  torch::Tensor rows;     // double
  torch::Tensor targets;  // as Cmc takes them
};

Embeddings chosen(const LoaderRows::All& all, bool queries) {
  const torch::Tensor index = (all.targets.select(1, 1) != 0).eq(queries).nonzero().squeeze(1);
  return {.rows = all.outputs.index_select(0, index).to(torch::kFloat64),
          .targets = all.targets.index_select(0, index)};
}

// Whether each of the queries (rows) and of the gallery (columns) have the same value.
torch::Tensor equal_in(std::int64_t column, const torch::Tensor& queries,
                       const torch::Tensor& gallery) {
  return queries.select(1, column).unsqueeze(1) == gallery.select(1, column).unsqueeze(0);
}

// For each query, the number of samples with other labels that are at most as far as the nearest
// one with its label; as many as possible if there is none.
torch::Tensor ranks_of(const Embeddings& queries, const Embeddings& gallery) {
  const double infinity = std::numeric_limits<double>::infinity();
  const torch::Tensor distances = torch::cdist(queries.rows, gallery.rows, 2.0, kDirect);
  const torch::Tensor alike = equal_in(0, queries.targets, gallery.targets);
  torch::Tensor matches = alike;
  if (queries.targets.size(1) == 3) {
    matches = alike.logical_and(equal_in(2, queries.targets, gallery.targets).logical_not());
  }
  const torch::Tensor nearest = std::get<0>(
      distances.masked_fill(matches.logical_not(), infinity).min(/*dim=*/1, /*keepdim=*/true));
  const torch::Tensor before = (distances <= nearest).logical_and(alike.logical_not()).sum(1);
  const torch::Tensor has_match = matches.any(1);
  return torch::where(has_match, before,
                      torch::full_like(before, std::numeric_limits<std::int64_t>::max()));
}

}  // namespace

Cmc::Cmc(CmcOptions options) : options_(std::move(options)) {
  const bool is_right = !options_.topk.empty() &&
                        std::ranges::all_of(options_.topk, [](std::int64_t k) { return k > 0; });
  if (is_right) return;
  throw ConfigError("Cmc: topk: expected positive numbers, got [{}]",
                    fmt::join(options_.topk, ", "));
}

std::string Cmc::name_of(std::int64_t k) const {
  return fmt::format("{}cmc{:02}{}", options_.prefix, k, options_.suffix);
}

std::vector<std::string> Cmc::names() const {
  std::vector<std::string> names;
  for (const std::int64_t k : options_.topk) names.push_back(name_of(k));
  return names;
}

void Cmc::update(const torch::Tensor& outputs, const torch::Tensor& targets) {
  if (outputs.dim() != 2) {
    throw DataError("Cmc: expected embeddings [N, size], got [{}]",
                    fmt::join(outputs.sizes(), ", "));
  }
  const torch::Tensor finite = outputs.isfinite().all(1);
  if (!finite.all().item<bool>()) {
    throw DataError("Cmc: expected finite embeddings, got NaN or infinity in sample {}",
                    finite.logical_not().nonzero()[0].item<std::int64_t>());
  }
  const bool fits = targets.dim() == 2 && (targets.size(1) == 2 || targets.size(1) == 3) &&
                    !targets.is_floating_point();
  if (!fits) {
    throw DataError("Cmc: expected targets of integers, [N, 2] or [N, 3], got {} [{}]",
                    c10::toString(targets.scalar_type()), fmt::join(targets.sizes(), ", "));
  }
  rows_.add(outputs, targets);
}

Metrics Cmc::compute() const {
  Metrics metrics;
  for (const std::string& name : names()) metrics[name] = std::nan("");
  if (rows_.empty()) return metrics;
  const LoaderRows::All all = rows_.all();
  const Embeddings queries = chosen(all, /*queries=*/true);
  const Embeddings gallery = chosen(all, /*queries=*/false);
  const std::int64_t count = queries.rows.size(0);
  if (count == 0 || gallery.rows.size(0) == 0) return metrics;
  std::vector<torch::Tensor> ranks;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t size = std::min(kBlock, count - begin);
    ranks.push_back(ranks_of({.rows = queries.rows.narrow(0, begin, size),
                              .targets = queries.targets.narrow(0, begin, size)},
                             gallery));
  }
  const torch::Tensor all_ranks = torch::cat(ranks);
  for (const std::int64_t k : options_.topk) {
    const auto hits = (all_ranks < k).sum().item<std::int64_t>();
    metrics[name_of(k)] = static_cast<double>(hits) / static_cast<double>(count);
  }
  return metrics;
}

}  // namespace lockstep::metric
