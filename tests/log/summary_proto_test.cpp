#include "lockstep/log/summary_proto.h"

#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/log/event_reader.h"

namespace lockstep {
namespace {

using namespace std::string_literals;
using reader::Message;

// The Summary.Value of an event whose summary has one value.
Message only_value(const ProtoMessage& content) {
  return Message(content.encoded()).message(5).message(1);
}

TEST(SummaryProto, ScalarsAreTagged) {
  const ProtoMessage content = proto::scalars({{"loss", 0.5}, {"nan", std::nan("")}}, "epoch");
  const auto values = Message(content.encoded()).message(5).messages(1);
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[0].text(1), "loss/epoch");
  EXPECT_EQ(values[0].float32(2), 0.5f);
  EXPECT_EQ(values[1].text(1), "nan/epoch");
  EXPECT_TRUE(std::isnan(values[1].float32(2)));
}

TEST(SummaryProto, AnImageIsAPng) {
  const Image picture = make_image({.width = 4, .height = 2}, {1, 2, 3});
  const Message value = only_value(proto::image("confusion_matrix", picture));
  EXPECT_EQ(value.text(1), "confusion_matrix");
  EXPECT_EQ(value.message(4).integer(1), 2);
  EXPECT_EQ(value.message(4).integer(2), 4);
  EXPECT_EQ(value.message(4).integer(3), 3);
  EXPECT_EQ(value.message(4).text(4), encode_png(picture));
}

TEST(SummaryProto, TextIsAStringTensorOfTheTextPlugin) {
  const Message value = only_value(proto::text("hparams", "lr: 0.1"));
  EXPECT_EQ(value.message(9).message(1).text(1), "text");
  EXPECT_EQ(value.message(8).integer(1), 7);  // DT_STRING
  EXPECT_EQ(value.message(8).message(2).message(2).integer(1), 1);
  EXPECT_EQ(value.message(8).text(8), "lr: 0.1");
}

TEST(SummaryProto, HparamsKeepTheirTypesAndDefaults) {
  const HParams hparams = {{"amp", false}, {"epochs", std::int64_t{8}}, {"lr", 0.0}, {"name", ""s}};
  const Message value = only_value(proto::hparams_session(hparams, 12.5));
  EXPECT_EQ(value.text(1), "_hparams_/session_start_info");
  EXPECT_EQ(value.message(9).message(1).text(1), "hparams");
  const Message info = Message(value.message(9).message(1).text(2)).message(3);
  EXPECT_EQ(info.float64(5), 12.5);
  const auto entries = info.messages(1);
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].text(1), "amp");
  EXPECT_EQ(entries[0].message(2).integer(4), 0);
  EXPECT_EQ(entries[1].message(2).float64(2), 8.0);
  EXPECT_EQ(entries[2].message(2).float64(2), 0.0);
  EXPECT_EQ(entries[3].message(2).text(3), "");
}

TEST(SummaryProto, TheExperimentNamesColumns) {
  const Message value = only_value(proto::hparams_experiment(
      {{"lr", 0.1}, {"opt", "Adam"s}, {"amp", true}}, {{.group = "valid", .tag = "loss/epoch"}}));
  EXPECT_EQ(value.text(1), "_hparams_/experiment");
  const Message experiment = Message(value.message(9).message(1).text(2)).message(2);
  const auto columns = experiment.messages(4);
  ASSERT_EQ(columns.size(), 3u);
  EXPECT_EQ(columns[0].text(1), "amp");
  EXPECT_EQ(columns[0].integer(4), 2);
  EXPECT_EQ(columns[1].integer(4), 3);
  EXPECT_EQ(columns[2].integer(4), 1);
  EXPECT_EQ(experiment.message(5).message(1).text(1), "valid");
  EXPECT_EQ(experiment.message(5).message(1).text(2), "loss/epoch");
}

TEST(SummaryProto, ASessionStartIsASessionLog) {
  EXPECT_EQ(Message(proto::session_start().encoded()).message(7).integer(1), 1);
}

TEST(SummaryProto, AnEventIsReadBack) {
  ProtoMessage event;
  event.float64(1, 12.5).integer(2, 7).merge(proto::scalars({{"a", 0}, {"b", 2}}, "epoch"));
  const auto scalars = proto::read_event(event.encoded());
  EXPECT_EQ(scalars.step, 7);
  EXPECT_FALSE(scalars.is_session_start);
  EXPECT_EQ(scalars.scalars, (std::vector<std::string_view>{"a/epoch", "b/epoch"}));
  const std::string start = ProtoMessage().integer(2, 9).merge(proto::session_start()).encoded();
  EXPECT_TRUE(proto::read_event(start).is_session_start);
  EXPECT_EQ(proto::read_event(start).step, 9);
  const Image picture = make_image({.width = 1, .height = 1}, {1, 2, 3});
  EXPECT_TRUE(proto::read_event(proto::image("x/epoch", picture).encoded()).scalars.empty());
}

TEST(SummaryProto, AHistogramHasItsBuckets) {
  const Histogram histogram{.min = -1,
                            .max = 2,
                            .num = 3,
                            .sum = 1.5,
                            .sum_squares = 5.25,
                            .bucket_limits = {0, 0.5},
                            .buckets = {1, 2}};
  const Message value = only_value(proto::histogram("weights/0.bias", histogram));
  EXPECT_EQ(value.text(1), "weights/0.bias");
  const auto number = [&](int field) {
    return std::bit_cast<double>(value.message(5).integer(field));
  };
  EXPECT_EQ(number(1), -1);
  EXPECT_EQ(number(2), 2);
  EXPECT_EQ(number(3), 3);
  EXPECT_EQ(number(4), 1.5);
  EXPECT_EQ(number(5), 5.25);
  const auto packed = [](double first, double second) {
    std::string bytes;
    append_little_endian(bytes, std::bit_cast<std::uint64_t>(first), 8);
    append_little_endian(bytes, std::bit_cast<std::uint64_t>(second), 8);
    return bytes;
  };
  EXPECT_EQ(value.message(5).text(6), packed(0, 0.5));
  EXPECT_EQ(value.message(5).text(7), packed(1, 2));
}

}  // namespace
}  // namespace lockstep
