// Gives another logger every record once, although a run that was restarted after a fault repeats
// some batches. Records are numbered by the batch in which they come, and by their order in it.
// After rewind(), the records up to the last one that the other logger has are left out. Repeated
// batches log the same values, so this loses nothing.
//
// The number of the batch is needed because a callback may log in on_batch_end, which is called for
// each shard of rank 0: if a run goes on with fewer workers, rank 0 has more shards.
//
// Records whose order among others may change, when batches are repeated, are in a stream of their
// own, which is counted for itself: a record about a checkpoint comes when the file is written. The
// starts of the run, of epochs and of passes have a stream, too: a run that goes on inside an epoch
// calls their hooks again, although their batches are not repeated.
#pragma once

#include <compare>
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

  // The next records belong to a start of the run, of an epoch or of a pass. Starts have numbers
  // that increase in the course of the run.
  void set_start(std::int64_t start);

  // Another process has passed on the records of all starts up to this one, so they are left out.
  void skip_starts(std::int64_t last);

  // Called after each batch of the run.
  void next_batch();

  // A place in the records of a stream.
  struct Position {
    std::int64_t batch = 0;   // in stream 0; the number of the start in the stream of starts
    std::int64_t record = 0;  // in the batch
    auto operator<=>(const Position&) const = default;
  };
  // Up to which the run has logged, in each stream.
  using Positions = std::map<int, Position>;
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
    Position position;
    Position passed_on;  // the last record that `inner_` has
  };

  static constexpr int kStarts = -1;

  std::shared_ptr<Logger> inner_;
  std::map<int, Stream> streams_;
  int stream_ = 0;  // the current one
};

}  // namespace lockstep
