// TensorBoard's Summary messages, as contents for EventFile::write. Field numbers are those of
// TensorBoard's summary.proto, event.proto and plugins/hparams/*.proto.
#pragma once

#include <compare>
#include <set>
#include <string>
#include <string_view>

#include "lockstep/base/metrics.h"
#include "lockstep/log/logger.h"
#include "lockstep/log/proto.h"
#include "lockstep/plot/image.h"

namespace lockstep::proto {

// All of one record's values, each tagged `<metric>/<suffix>`.
ProtoMessage scalars(const Metrics& metrics, std::string_view suffix);

ProtoMessage image(std::string_view tag, const Image& image);

// For the text tab; `text` is Markdown.
ProtoMessage text(std::string_view tag, std::string_view text);

// A run goes on at this event's step: TensorBoard drops what it has from that step on.
ProtoMessage session_start();

// For the HParams tab: this run's values.
ProtoMessage hparams_session(const HParams& hparams, double start_time);

// A scalar that the HParams tab shows beside the values: found under `tag` in the folder `group`
// below the one that holds the session.
struct MetricName {
  std::string group = {};
  std::string tag = {};

  auto operator<=>(const MetricName&) const = default;
};

// For the HParams tab: its columns.
ProtoMessage hparams_experiment(const HParams& hparams, const std::set<MetricName>& metrics);

}  // namespace lockstep::proto
