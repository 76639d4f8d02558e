// Gives another logger every record once, although a run that was restarted after a fault repeats
// some batches. Records are counted. After rewind(), as many records as the other logger already
// has are left out. Repeated batches log the same values, so this loses nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/log/logger.h"

namespace lockstep {

class OnceLogger final : public Logger {
 public:
  explicit OnceLogger(std::shared_ptr<Logger> inner);

  // The number of records that the run has logged up to its current position.
  std::int64_t position() const { return position_; }
  // The run continues from an earlier position, at which position() had this value.
  void rewind(std::int64_t position) { position_ = position; }

  void start(const RunStart& run) override { inner_->start(run); }
  void log_metrics(const Record& record) override;
  void log_image(const std::string& loader, const std::string& tag, const Image& image,
                 const Progress& progress) override;
  void flush() override { inner_->flush(); }
  void close() override { inner_->close(); }

 private:
  template <typename Action>
  void once(const Action& pass_on);

  std::shared_ptr<Logger> inner_;
  std::int64_t position_ = 0;
  std::int64_t passed_on_ = 0;  // records that `inner_` has
};

}  // namespace lockstep
