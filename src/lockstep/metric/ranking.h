// Metrics of lists that are ordered by a score: recommendations, search results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/metric/sample_means.h"

namespace lockstep::metric {

struct RankingOptions {
  // Which metrics: hitrate, mrr, map, ndcg, any_hit.
  std::vector<std::string> metrics = {"hitrate", "mrr", "map", "ndcg"};
  // For which k: only the k items with the highest scores count.
  std::vector<std::int64_t> topk = {1};
  // Put before and after "map01" and so on in the names.
  std::string prefix = "";
  std::string suffix = "";
};

// `map01`, ...: each the mean over all samples, with `/std`, the standard deviation of the batches.
//
//   hitrate   the share of the relevant items that are among the first k, as in Catalyst; others
//             call it the recall at k
//   any_hit   1 if a relevant item is among the first k, otherwise 0: torchmetrics' hit rate
//   mrr       1 / rank of the first relevant item; 0 if it is not among the first k
//   map       the mean, over the relevant items among the first k, of the precision at their ranks
//   ndcg      the sum of (2^relevance - 1) / log2(rank + 1) over the first k, divided by the sum
//             of the best order
//
// A sample without relevant items counts 0. Of equal scores, the lower index comes first.
//
// Outputs are scores [N, items], and targets relevances [N, items] of 0 or more. An item is
// relevant if its relevance is above 0.
class Ranking final : public SampleMeans {
 public:
  explicit Ranking(RankingOptions options);

  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override;

 private:
  RankingOptions options_;
};

}  // namespace lockstep::metric
