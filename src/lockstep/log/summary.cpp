#include "lockstep/log/summary.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const std::optional<EpochSummary>& epoch) {
  if (!epoch) return nullptr;
  Json metrics = Json::object();
  for (const auto& [loader, values] : epoch->metrics) {
    metrics[loader] = Json::object();
    for (const auto& [name, value] : values) metrics[loader][name] = value;
  }
  return {{"epoch", epoch->epoch},
          {"metrics", std::move(metrics)},
          {"checkpoint", epoch->checkpoint ? Json(*epoch->checkpoint) : Json(nullptr)}};
}

}  // namespace

void write_summary(const std::filesystem::path& path, const RunSummary& summary) {
  const Json json = {{"best", to_json(summary.best)},
                     {"last", to_json(summary.last)},
                     {"train_samples_per_second", summary.train_samples_per_second},
                     {"seconds", summary.seconds},
                     {"workers", summary.workers},
                     {"shards", summary.shards},
                     {"global_batch_size", summary.global_batch_size},
                     {"weights_hash", summary.weights_hash},
                     {"recoveries", summary.recoveries},
                     {"precision", summary.precision},
                     {"skipped_steps", summary.skipped_steps}};
  // A path need not be UTF-8; JSON must be.
  const auto bad_utf8 = Json::error_handler_t::replace;
  write_file_atomically(path, json.dump(2, ' ', false, bad_utf8) + "\n");
}

}  // namespace lockstep
