#include "lockstep/log/once_logger.h"

#include <limits>
#include <utility>

namespace lockstep {

OnceLogger::OnceLogger(std::shared_ptr<Logger> inner) : inner_(std::move(inner)) {}

// Counted as passed on only afterwards: a record that could not be written, because the disk is
// full, is written in the next attempt.
template <typename Action>
void OnceLogger::once(const Action& pass_on) {
  Stream& stream = streams_[stream_];
  stream.position.record += 1;
  if (stream.position <= stream.passed_on) return;
  pass_on();
  stream.passed_on = stream.position;
}

void OnceLogger::next_batch() {
  Position& position = streams_[0].position;
  position = {.batch = position.batch + 1};
}

int OnceLogger::set_stream(int stream) {
  return std::exchange(stream_, stream);
}

void OnceLogger::set_start(std::int64_t start) {
  stream_ = kStarts;
  streams_[kStarts].position = {.batch = start};
}

void OnceLogger::skip_starts(std::int64_t last) {
  streams_[kStarts].passed_on = {.batch = last, .record = std::numeric_limits<std::int64_t>::max()};
}

OnceLogger::Positions OnceLogger::position() const {
  Positions positions;
  for (const auto& [number, stream] : streams_) positions[number] = stream.position;
  return positions;
}

void OnceLogger::rewind(const Positions& position) {
  stream_ = 0;
  for (auto& [number, stream] : streams_) {
    const auto found = position.find(number);
    stream.position = found != position.end() ? found->second : Position();
  }
}

void OnceLogger::log_metrics(const Record& record) {
  once([&] { inner_->log_metrics(record); });
}

void OnceLogger::log_image(const std::string& loader, const std::string& tag, const Image& image,
                           const Progress& progress) {
  once([&] { inner_->log_image(loader, tag, image, progress); });
}

void OnceLogger::log_artifact(const Artifact& artifact, const Progress& progress) {
  once([&] { inner_->log_artifact(artifact, progress); });
}

void OnceLogger::log_histogram(const std::string& loader, const std::string& tag,
                               const Histogram& histogram, const Progress& progress) {
  once([&] { inner_->log_histogram(loader, tag, histogram, progress); });
}

}  // namespace lockstep
