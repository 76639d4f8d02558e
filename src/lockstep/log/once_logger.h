// Gives another logger every record once, although a run that was restarted after a fault repeats
// some batches. Records are counted. After rewind(), as many records as the other logger already
// has are left out. Repeated batches log the same values, so this loses nothing.
//
// Records whose order among others may change, when batches are repeated, are in a stream of their
// own, which is counted for itself: a record about a checkpoint comes when the file is written.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "lockstep/log/logger.h"

namespace lockstep {

class OnceLogger final : public Logger {
 public:
  explicit OnceLogger(std::shared_ptr<Logger> inner);

  // The stream to which the next records belong; 0 at the beginning. Returns the one before.
  int set_stream(int stream);

  // The number of records of each stream that the run has logged up to its current position.
  using Positions = std::map<int, std::int64_t>;
  Positions position() const;
  // The run continues from an earlier position, at which position() had this value.
  void rewind(const Positions& position);

  void start(const RunStart& run) override { inner_->start(run); }
  void log_metrics(const Record& record) override;
  void log_image(const std::string& loader, const std::string& tag, const Image& image,
                 const Progress& progress) override;
  void log_artifact(const Artifact& artifact, const Progress& progress) override;
  void log_histogram(const std::string& loader, const std::string& tag, const Histogram& histogram,
                     const Progress& progress) override;
  void flush() override { inner_->flush(); }
  void end(const RunEnd& run) override { inner_->end(run); }
  void close() override { inner_->close(); }

 private:
  template <typename Action>
  void once(const Action& pass_on);

  struct Stream {
    std::int64_t position = 0;
    std::int64_t passed_on = 0;  // records that `inner_` has
  };

  std::shared_ptr<Logger> inner_;
  std::map<int, Stream> streams_;
  int stream_ = 0;  // the current one
};

}  // namespace lockstep
