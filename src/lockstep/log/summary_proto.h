// TensorBoard's Summary messages, as contents for EventFile::write. Field numbers are those of
// TensorBoard's summary.proto, event.proto and plugins/hparams/*.proto.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/metrics.h"
#include "lockstep/log/logger.h"
#include "lockstep/log/proto.h"
#include "lockstep/plot/image.h"

namespace lockstep::proto {

// All of one record's values, each tagged `<metric>/<suffix>`.
ProtoMessage scalars(const Metrics& metrics, std::string_view suffix);

ProtoMessage image(std::string_view tag, const Image& image);

// As tensorboard's HistogramProto.
ProtoMessage histogram(std::string_view tag, const Histogram& histogram);

// For the text tab; `text` is Markdown.
ProtoMessage text(std::string_view tag, std::string_view text);

// Says that a run is resumed at this event's step. TensorBoard drops what it has from that step on.
ProtoMessage session_start();

// The values of this run, for the HParams tab.
ProtoMessage hparams_session(const HParams& hparams, double start_time);

// A scalar that the HParams tab shows next to the values. TensorBoard finds it under `tag` in the
// subfolder `group` of the folder that holds the session.
struct MetricName {
  std::string group = {};
  std::string tag = {};

  auto operator<=>(const MetricName&) const = default;
};

// The columns of the HParams tab.
ProtoMessage hparams_experiment(const HParams& hparams, const std::set<MetricName>& metrics);

// The content of an encoded Event, as far as it is needed to know what a file has.
struct EventContent {
  std::int64_t step = 0;
  bool is_session_start = false;
  std::vector<std::string_view> scalars = {};  // their tags, which refer to the encoded event
};
EventContent read_event(std::string_view encoded);

}  // namespace lockstep::proto
