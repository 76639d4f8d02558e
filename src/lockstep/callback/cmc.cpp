#include "lockstep/callback/cmc.h"

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/metric/cmc.h"

namespace lockstep {
namespace {

constexpr const char* kCmcTargets = "_cmc_targets";  // in the batch, while the metric is updated

}  // namespace

CmcCallback::CmcCallback(const CmcCallbackOptions& options) : CmcCallback(options, std::nullopt) {}

CmcCallback::CmcCallback(const CmcCallbackOptions& options,
                         const std::optional<std::string>& cids_key)
    : MetricCallback(std::make_unique<metric::Cmc>(metric::CmcOptions{
                         .topk = options.topk, .prefix = options.prefix, .suffix = options.suffix}),
                     {options.embeddings_key, kCmcTargets},
                     OptionText()
                         .with("labels_key", options.labels_key)
                         .with("is_query_key", options.is_query_key)
                         .with("cids_key", cids_key)
                         .str()),
      columns_({options.labels_key, options.is_query_key}) {
  if (cids_key) columns_.push_back(*cids_key);
}

torch::Tensor CmcCallback::targets_of(const Batch& batch) const {
  std::vector<torch::Tensor> columns;
  for (const std::string& key : columns_) {
    const torch::Tensor& column = batch[key];
    if (column.dim() != 1 || column.is_floating_point()) {
      throw DataError("CMC: '{}' of the batch: expected integers or truth values [N], got {} [{}]",
                      key, c10::toString(column.scalar_type()), fmt::join(column.sizes(), ", "));
    }
    columns.push_back(column.to(torch::kInt64));
  }
  return torch::stack(columns, 1);
}

void CmcCallback::dry_run(const std::string& loader, Batch& batch) {
  batch.set(kCmcTargets, targets_of(batch));
  MetricCallback::dry_run(loader, batch);
  batch.erase(kCmcTargets);
}

void CmcCallback::on_batch_end(State& state) {
  state.batch.set(kCmcTargets, targets_of(state.batch));
  MetricCallback::on_batch_end(state);
  state.batch.erase(kCmcTargets);
}

ReidCmcCallback::ReidCmcCallback(const ReidCmcCallbackOptions& options)
    : CmcCallback({.embeddings_key = options.embeddings_key,
                   .labels_key = options.pids_key,
                   .is_query_key = options.is_query_key,
                   .topk = options.topk,
                   .prefix = options.prefix,
                   .suffix = options.suffix},
                  options.cids_key) {}

}  // namespace lockstep
