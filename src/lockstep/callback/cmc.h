// How often the nearest samples of a gallery have the label of a query, over each loader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/callback/classification.h"

namespace lockstep {

struct CmcCallbackOptions {
  std::string embeddings_key = "embeddings";  // the model's outputs in the batch, [N, size]
  std::string labels_key = "targets";         // labels, [N]
  std::string is_query_key = "is_query";      // [N]: 1 for a query, 0 for a sample of the gallery
  std::vector<std::int64_t> topk = {1};       // for which k
  std::string prefix = "";                    // before and after the metrics' names
  std::string suffix = "";
};

struct ReidCmcCallbackOptions {
  std::string embeddings_key = "embeddings";  // the model's outputs in the batch, [N, size]
  std::string pids_key = "pids";              // the person on the image, [N]
  std::string cids_key = "cids";              // the camera, [N]
  std::string is_query_key = "is_query";      // [N]: 1 for a query, 0 for a sample of the gallery
  std::vector<std::int64_t> topk = {1};       // for which k
  std::string prefix = "";
  std::string suffix = "";
};

// `cmc01`, … for each k; metric::Cmc says what they are. Put it into
// ControlFlowCallback({.loaders = {"valid"}}) if train batches have no queries.
class CmcCallback : public MetricCallback {
 public:
  explicit CmcCallback(const CmcCallbackOptions& options = {});

  void dry_run(const std::string& loader, Batch& batch) override;
  void on_batch_end(State& state) override;

 protected:
  // The keys of the columns of the metric's targets.
  CmcCallback(const CmcCallbackOptions& options, const std::optional<std::string>& cids_key);

 private:
  torch::Tensor targets_of(const Batch& batch) const;

  std::vector<std::string> columns_;
};

// The same for person re-identification: images of a person by the query's camera do not count.
class ReidCmcCallback : public CmcCallback {
 public:
  explicit ReidCmcCallback(const ReidCmcCallbackOptions& options = {});
};

}  // namespace lockstep
