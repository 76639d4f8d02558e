#include "lockstep/log/summary_proto.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <variant>

#include "lockstep/log/proto_reader.h"

namespace lockstep::proto {
namespace {

// Event
constexpr int kEventStep = 2, kEventSummary = 5, kEventSessionLog = 7;
// SessionLog
constexpr int kStatus = 1, kStart = 1;
// Summary, and Summary.Value
constexpr int kSummaryValue = 1;
constexpr int kTag = 1, kSimpleValue = 2, kImage = 4, kHisto = 5, kTensor = 8, kMetadata = 9;

ProtoMessage summary_of(const ProtoMessage& value) {
  return ProtoMessage().message(kEventSummary, ProtoMessage().message(kSummaryValue, value));
}

// SummaryMetadata: which plugin shows the value, and data for that plugin.
ProtoMessage metadata(std::string_view plugin, std::string_view content) {
  constexpr int kPluginData = 1, kPluginName = 1, kContent = 2;
  ProtoMessage data;
  data.bytes(kPluginName, plugin).bytes(kContent, content);
  return ProtoMessage().message(kPluginData, data);
}

// A summary without a value: everything is in HParamsPluginData. Its version is 0, the default, and
// is not written.
ProtoMessage hparams_summary(std::string_view tag, int data_field, const ProtoMessage& data) {
  const ProtoMessage plugin_data = ProtoMessage().message(data_field, data);
  ProtoMessage value;
  value.bytes(kTag, tag).message(kMetadata, metadata("hparams", plugin_data.encoded()));
  return summary_of(value);
}

// google.protobuf.Value
ProtoMessage hparam_value(const HParam& hparam) {
  constexpr int kNumber = 2, kString = 3, kBool = 4;
  ProtoMessage message;
  std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, bool>) {
          message.integer(kBool, value ? 1 : 0);
        } else if constexpr (std::is_same_v<T, std::string>) {
          message.bytes(kString, value);
        } else {
          message.float64(kNumber, static_cast<double>(value));
        }
      },
      hparam);
  return message;
}

// tensorboard.hparams.DataType
std::int64_t data_type(const HParam& hparam) {
  constexpr std::int64_t kString = 1, kBool = 2, kFloat64 = 3;
  if (std::holds_alternative<std::string>(hparam)) return kString;
  return std::holds_alternative<bool>(hparam) ? kBool : kFloat64;
}

bool is_start(std::string_view session_log) {
  return std::ranges::any_of(read_proto(session_log), [](const ProtoField& field) {
    return field.number == kStatus && field.raw == kStart;
  });
}

// The tag of a Summary.Value; nothing if it is no scalar.
std::optional<std::string_view> scalar_tag(std::string_view value) {
  std::string_view tag;
  bool is_scalar = false;
  for (const ProtoField& field : read_proto(value)) {
    if (field.number == kTag) tag = field.bytes;
    if (field.number == kSimpleValue) is_scalar = true;
  }
  return is_scalar ? std::optional(tag) : std::nullopt;
}

}  // namespace

ProtoMessage scalars(const Metrics& metrics, std::string_view suffix) {
  ProtoMessage summary;
  for (const auto& [name, number] : metrics) {
    ProtoMessage value;
    value.bytes(kTag, name + "/" + std::string(suffix));
    value.float32(kSimpleValue, static_cast<float>(number));
    summary.message(kSummaryValue, value);
  }
  return ProtoMessage().message(kEventSummary, summary);
}

ProtoMessage image(std::string_view tag, const Image& image) {
  constexpr int kHeight = 1, kWidth = 2, kColorspace = 3, kEncoded = 4;
  constexpr int kRgb = 3;
  ProtoMessage picture;
  picture.integer(kHeight, image.height).integer(kWidth, image.width);
  picture.integer(kColorspace, kRgb).bytes(kEncoded, encode_png(image));
  return summary_of(ProtoMessage().bytes(kTag, tag).message(kImage, picture));
}

ProtoMessage histogram(std::string_view tag, const Histogram& histogram) {
  constexpr int kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kLimits = 6, kCounts = 7;
  ProtoMessage message;
  message.float64(kMin, histogram.min).float64(kMax, histogram.max);
  message.float64(kNum, histogram.num).float64(kSum, histogram.sum);
  message.float64(kSumSquares, histogram.sum_squares);
  message.packed_float64(kLimits, histogram.bucket_limits);
  message.packed_float64(kCounts, histogram.buckets);
  return summary_of(ProtoMessage().bytes(kTag, tag).message(kHisto, message));
}

ProtoMessage text(std::string_view tag, std::string_view text) {
  constexpr int kDtype = 1, kShape = 2, kStringVal = 8, kDim = 2, kSize = 1;
  constexpr int kDtString = 7;
  const ProtoMessage shape = ProtoMessage().message(kDim, ProtoMessage().integer(kSize, 1));
  ProtoMessage tensor;
  tensor.integer(kDtype, kDtString).message(kShape, shape).bytes(kStringVal, text);
  ProtoMessage value;
  value.bytes(kTag, tag).message(kMetadata, metadata("text", "")).message(kTensor, tensor);
  return summary_of(value);
}

ProtoMessage session_start() {
  return ProtoMessage().message(kEventSessionLog, ProtoMessage().integer(kStatus, kStart));
}

ProtoMessage hparams_session(const HParams& hparams, double start_time) {
  constexpr int kSessionStartInfo = 3;
  constexpr int kHparams = 1, kStartTime = 5, kMapKey = 1, kMapValue = 2;
  ProtoMessage info;
  for (const auto& [name, value] : hparams) {
    ProtoMessage entry;
    entry.bytes(kMapKey, name).message(kMapValue, hparam_value(value));
    info.message(kHparams, entry);
  }
  info.float64(kStartTime, start_time);
  return hparams_summary("_hparams_/session_start_info", kSessionStartInfo, info);
}

ProtoMessage hparams_experiment(const HParams& hparams, const std::set<MetricName>& metrics) {
  constexpr int kExperiment = 2;
  constexpr int kHparamInfos = 4, kName = 1, kType = 4;
  constexpr int kMetricInfos = 5, kMetricName = 1, kGroup = 1, kMetricTag = 2;
  ProtoMessage experiment;
  for (const auto& [name, value] : hparams) {
    experiment.message(kHparamInfos,
                       ProtoMessage().bytes(kName, name).integer(kType, data_type(value)));
  }
  for (const auto& metric : metrics) {
    ProtoMessage name;
    name.bytes(kGroup, metric.group).bytes(kMetricTag, metric.tag);
    experiment.message(kMetricInfos, ProtoMessage().message(kMetricName, name));
  }
  return hparams_summary("_hparams_/experiment", kExperiment, experiment);
}

EventContent read_event(std::string_view encoded) {
  EventContent content;
  for (const ProtoField& field : read_proto(encoded)) {
    if (field.number == kEventStep) content.step = field.integer();
    if (field.number == kEventSessionLog) content.is_session_start = is_start(field.bytes);
    if (field.number != kEventSummary) continue;
    for (const ProtoField& value : read_proto(field.bytes)) {
      if (value.number != kSummaryValue) continue;
      if (const auto tag = scalar_tag(value.bytes)) content.scalars.push_back(*tag);
    }
  }
  return content;
}

}  // namespace lockstep::proto
