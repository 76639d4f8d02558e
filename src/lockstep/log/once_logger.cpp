#include "lockstep/log/once_logger.h"

#include <utility>

namespace lockstep {

OnceLogger::OnceLogger(std::shared_ptr<Logger> inner) : inner_(std::move(inner)) {}

// Counted as passed on only afterwards: a record that could not be written, because the disk is
// full, is written in the next attempt.
template <typename Action>
void OnceLogger::once(const Action& pass_on) {
  position_ += 1;
  if (position_ <= passed_on_) return;
  pass_on();
  passed_on_ = position_;
}

void OnceLogger::log_metrics(const Record& record) {
  once([&] { inner_->log_metrics(record); });
}

void OnceLogger::log_image(const std::string& loader, const std::string& tag, const Image& image,
                           const Progress& progress) {
  once([&] { inner_->log_image(loader, tag, image, progress); });
}

}  // namespace lockstep
