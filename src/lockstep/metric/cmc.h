// Cumulative matching characteristics: how often one of the k nearest samples of a gallery has the
// label of a query. For embeddings of metric learning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/metric/loader_rows.h"
#include "lockstep/metric/metric.h"

namespace lockstep::metric {

struct CmcOptions {
  std::vector<std::int64_t> topk = {1};  // for which k
  std::string prefix = "";               // before and after the metrics' names
  std::string suffix = "";
};

// `cmc01`, `cmc05`, … for each k: the share of queries for which fewer than k samples of the
// gallery with another label are nearer than the nearest one with the query's label, or equally
// near: embeddings that are all equal find nothing. Distances are Euclidean, computed in double. A
// query whose label the gallery does not have is a miss. NaN if there is no query or no gallery.
//
// Targets are integers, [N, 2] or [N, 3]: the label, whether the sample is a query (1) or in the
// gallery (0), and the camera. With cameras, as in person re-identification, a query ignores
// samples of the gallery that have its label and its camera.
//
// All embeddings are kept in memory, and sent to rank 0 at the end.
class Cmc final : public OutputMetric {
 public:
  // Throws ConfigError if a k is not positive, or if there is none.
  explicit Cmc(CmcOptions options = {});

  void begin(const Place& place) override { rows_.begin(place); }
  // Throws DataError for an embedding with NaN or infinity, too.
  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override;

  std::vector<std::string> names() const override;
  std::optional<Better> better(std::string_view) const override { return Better::kLarger; }
  void reset() override { rows_.reset(); }
  Metrics compute() const override;
  StateDict state() const override { return rows_.state(); }
  void load_state(const StateDict& state) override { rows_.load_state(state); }
  void merge(const StateDict& other) override { rows_.merge(other); }

 private:
  std::string name_of(std::int64_t k) const;

  CmcOptions options_;
  LoaderRows rows_;
};

}  // namespace lockstep::metric
