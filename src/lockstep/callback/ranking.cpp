#include "lockstep/callback/ranking.h"

#include "lockstep/metric/ranking.h"

namespace lockstep {
namespace {

RankingCallbackOptions only(const char* metric, const TopkCallbackOptions& options) {
  return {.input_key = options.input_key,
          .target_key = options.target_key,
          .metrics = {metric},
          .topk = options.topk,
          .prefix = options.prefix,
          .suffix = options.suffix};
}

}  // namespace

// The names of the metrics have all options in them, so ranks need not compare more.
RankingCallback::RankingCallback(RankingCallbackOptions options)
    : MetricCallback(
          std::make_unique<metric::Ranking>(metric::RankingOptions{.metrics = options.metrics,
                                                                   .topk = options.topk,
                                                                   .prefix = options.prefix,
                                                                   .suffix = options.suffix}),
          {options.input_key, options.target_key}) {}

HitrateCallback::HitrateCallback(TopkCallbackOptions options)
    : RankingCallback(only("hitrate", options)) {}

MRRCallback::MRRCallback(TopkCallbackOptions options) : RankingCallback(only("mrr", options)) {}

MAPCallback::MAPCallback(TopkCallbackOptions options) : RankingCallback(only("map", options)) {}

NDCGCallback::NDCGCallback(TopkCallbackOptions options) : RankingCallback(only("ndcg", options)) {}

}  // namespace lockstep
