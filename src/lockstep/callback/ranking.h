// Metrics of lists that are ordered by a score, over each loader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/callback/classification.h"

namespace lockstep {

struct RankingCallbackOptions {
  std::string input_key = "logits";    // scores [N, items]
  std::string target_key = "targets";  // relevances [N, items], 0 or more
  // Which: hitrate, mrr, map, ndcg, any_hit.
  std::vector<std::string> metrics = {"hitrate", "mrr", "map", "ndcg"};
  std::vector<std::int64_t> topk = {1};  // for which k
  std::string prefix = "";               // before and after the metrics' names
  std::string suffix = "";
};

// `map01`, `map05`, … for each metric and k, each with `/std`. metric::Ranking says what they are.
class RankingCallback : public MetricCallback {
 public:
  explicit RankingCallback(RankingCallbackOptions options = {});
};

// The options of Catalyst's callbacks, of one metric each. If you want several, RankingCallback
// sorts only once.
struct TopkCallbackOptions {
  std::string input_key = "logits";      // scores [N, items]
  std::string target_key = "targets";    // relevances [N, items], 0 or more
  std::vector<std::int64_t> topk = {1};  // for which k
  std::string prefix = "";
  std::string suffix = "";
};

class HitrateCallback : public RankingCallback {
 public:
  explicit HitrateCallback(TopkCallbackOptions options = {});
};

class MRRCallback : public RankingCallback {
 public:
  explicit MRRCallback(TopkCallbackOptions options = {});
};

class MAPCallback : public RankingCallback {
 public:
  explicit MAPCallback(TopkCallbackOptions options = {});
};

class NDCGCallback : public RankingCallback {
 public:
  explicit NDCGCallback(TopkCallbackOptions options = {});
};

}  // namespace lockstep
