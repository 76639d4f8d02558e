#include "lockstep/metric/ranking.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/metric/predictions.h"

namespace lockstep::metric {
namespace {

// One sample: the relevances of its items.
struct RankedList {
  std::span<const double> found;  // by descending score, as many as the largest k needs
  std::span<const double> ideal;  // by descending relevance
  std::int64_t relevant;          // among all items

  std::span<const double> first(std::span<const double> list, std::int64_t k) const {
    return list.first(std::min(list.size(), static_cast<std::size_t>(k)));
  }
};

double hits(const RankedList& list, std::int64_t k) {
  return static_cast<double>(
      std::ranges::count_if(list.first(list.found, k), [](double x) { return x > 0; }));
}

double hitrate_of(const RankedList& list, std::int64_t k) {
  return list.relevant == 0 ? 0 : hits(list, k) / static_cast<double>(list.relevant);
}

double any_hit_of(const RankedList& list, std::int64_t k) {
  return hits(list, k) > 0 ? 1 : 0;
}

double reciprocal_rank_of(const RankedList& list, std::int64_t k) {
  const auto first = list.first(list.found, k);
  const auto found = std::ranges::find_if(first, [](double x) { return x > 0; });
  return found == first.end() ? 0 : 1 / static_cast<double>(found - first.begin() + 1);
}

double average_precision_of(const RankedList& list, std::int64_t k) {
  double hits = 0, sum = 0, rank = 0;
  for (const double relevance : list.first(list.found, k)) {
    ++rank;
    if (relevance <= 0) continue;
    ++hits;
    sum += hits / rank;
  }
  return hits == 0 ? 0 : sum / hits;
}

double gain(std::span<const double> relevances) {
  double sum = 0, rank = 0;
  for (const double relevance : relevances) {
    ++rank;
    sum += (std::exp2(relevance) - 1) / std::log2(rank + 1);
  }
  return sum;
}

double ndcg_of(const RankedList& list, std::int64_t k) {
  const double best = gain(list.first(list.ideal, k));
  return best == 0 ? 0 : gain(list.first(list.found, k)) / best;
}

using ListMetric = double (*)(const RankedList&, std::int64_t);

const std::vector<std::pair<std::string, ListMetric>>& list_metrics() {
  static const std::vector<std::pair<std::string, ListMetric>> all = {{"hitrate", hitrate_of},
                                                                      {"mrr", reciprocal_rank_of},
                                                                      {"map", average_precision_of},
                                                                      {"ndcg", ndcg_of},
                                                                      {"any_hit", any_hit_of}};
  return all;
}

ListMetric list_metric(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& [other, function] : list_metrics()) {
    if (other == name) return function;
    known.push_back(other);
  }
  throw ConfigError("ranking: metrics: there is no '{}'; {}", name, suggest(name, known));
}

std::vector<std::string> ranking_names(const RankingOptions& options) {
  if (options.metrics.empty()) throw ConfigError("ranking: metrics: expected one or more");
  if (options.topk.empty()) throw ConfigError("ranking: topk: expected one or more");
  std::vector<std::string> names;
  for (const std::string& metric : options.metrics) {
    list_metric(metric);  // throws if there is no such metric
    for (const std::int64_t k : options.topk) {
      if (k < 1) throw ConfigError("ranking: topk: expected 1 or more, got {}", k);
      names.push_back(fmt::format("{}{}{:02}{}", options.prefix, metric, k, options.suffix));
      if (std::ranges::count(names, names.back()) > 1) {
        throw ConfigError("ranking: expected each metric and each k once, got {} twice",
                          names.back());
      }
    }
  }
  return names;
}

torch::Tensor to_doubles(const torch::Tensor& tensor) {
  return tensor.detach().to(torch::kCPU, torch::kFloat64).contiguous();
}

}  // namespace

Ranking::Ranking(RankingOptions options)
    : SampleMeans(ranking_names(options), Better::kLarger), options_(std::move(options)) {}

void Ranking::update(const torch::Tensor& outputs, const torch::Tensor& targets) {
  if (outputs.dim() != 2 || outputs.sizes() != targets.sizes()) {
    throw DataError(
        "ranking: outputs [{}] and targets [{}]: expected the shape [samples, items] of both",
        fmt::join(outputs.sizes(), ", "), fmt::join(targets.sizes(), ", "));
  }
  const torch::Tensor scores = to_doubles(outputs), relevances = to_doubles(targets);
  const auto items = static_cast<std::size_t>(outputs.size(1));
  const auto depth = std::min(items, static_cast<std::size_t>(std::ranges::max(options_.topk)));
  std::vector<std::size_t> order(items);
  std::vector<double> found(depth), ideal(items);
  std::vector<std::vector<double>> values(options_.metrics.size() * options_.topk.size());
  std::vector<ListMetric> metrics;
  for (const std::string& name : options_.metrics) metrics.push_back(list_metric(name));

  for (std::int64_t i = 0; i < outputs.size(0); ++i) {
    const auto score = elements<double>(scores).subspan(static_cast<std::size_t>(i) * items, items);
    const auto relevance =
        elements<double>(relevances).subspan(static_cast<std::size_t>(i) * items, items);
    for (std::size_t j = 0; j < items; ++j) {
      if (std::isnan(score[j])) {
        throw DataError("ranking: outputs: the score of item {} is NaN in sample {}", j, i);
      }
      if (!(relevance[j] >= 0) || std::isinf(relevance[j])) {
        throw DataError(
            "ranking: targets: item {} of sample {} has the relevance {}, expected 0 or "
            "more",
            j, i, relevance[j]);
      }
    }
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(depth),
                      order.end(), [&](std::size_t a, std::size_t b) {
                        return score[a] != score[b] ? score[a] > score[b] : a < b;
                      });
    for (std::size_t j = 0; j < depth; ++j) found[j] = relevance[order[j]];
    std::ranges::copy(relevance, ideal.begin());
    std::partial_sort(ideal.begin(), ideal.begin() + static_cast<std::ptrdiff_t>(depth),
                      ideal.end(), std::greater<>());
    const RankedList list{
        .found = found,
        .ideal = std::span<const double>(ideal).first(depth),
        .relevant = std::ranges::count_if(relevance, [](double x) { return x > 0; })};
    auto to = values.begin();
    for (const ListMetric metric : metrics) {
      for (const std::int64_t k : options_.topk) (to++)->push_back(metric(list, k));
    }
  }
  for (std::size_t index = 0; index < values.size(); ++index) add(index, values[index]);
}

}  // namespace lockstep::metric
