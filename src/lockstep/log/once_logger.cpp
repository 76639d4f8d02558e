#include "lockstep/log/once_logger.h"

#include <utility>

namespace lockstep {

OnceLogger::OnceLogger(std::shared_ptr<Logger> inner) : inner_(std::move(inner)) {}

// Counted before the record is passed on: a logger that throws may have written a part of it.
bool OnceLogger::is_new() {
  position_ += 1;
  if (position_ <= passed_on_) return false;
  passed_on_ = position_;
  return true;
}

void OnceLogger::log_metrics(const Record& record) {
  if (is_new()) inner_->log_metrics(record);
}

void OnceLogger::log_image(const std::string& loader, const std::string& tag, const Image& image,
                           const Progress& progress) {
  if (is_new()) inner_->log_image(loader, tag, image, progress);
}

}  // namespace lockstep
