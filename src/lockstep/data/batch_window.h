// The batches of one pass of a run. Usually they are those of an epoch of the loader. They can also
// be a part of the series of all epochs of the loader, one after the other: batch number n of the
// series is batch n % size of epoch n / size + 1. So the order of samples depends on the seed and
// the number of the epoch, wherever a pass begins.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/data/batch_stream.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sharding.h"

namespace lockstep::data {

struct WindowOptions {
  EpochKey key = {};
  // The number of the first batch in the series, from 0. Default: the first one of key.epoch.
  std::optional<std::int64_t> begin = {};
  // Batches of the window. Without `begin` it is a limit. Default: those of one epoch.
  std::optional<std::int64_t> batches = {};
  std::int64_t first_batch = 0;  // of the window: earlier ones were done before a resume
};

class BatchWindow {
 public:
  BatchWindow(const Loader& loader, const WindowOptions& options, std::int64_t shards);

  // Global batches count from 0 at the beginning of the window.
  std::int64_t batches() const { return batches_; }
  std::int64_t samples(std::int64_t batch) const;                   // in a global batch
  std::int64_t samples_before(std::int64_t batch) const;            // in all batches before it
  SampleSlice slice(std::int64_t batch, std::int64_t shard) const;  // as ShardedEpoch::slice

  struct Worker {
    std::int64_t first_shard = 0;
    std::int64_t count = 1;
  };
  class Stream {
   public:
    Stream(const BatchWindow& window, const Worker& worker);

    // The next part of a batch; empty parts are left out. Nothing at the end of the last epoch that
    // the window touches.
    std::optional<Batch> next();

   private:
    const BatchWindow& window_;
    Worker worker_;
    std::int64_t epoch_;
    BatchStream stream_;
  };
  // From first_batch on. The window must outlive the stream.
  Stream stream(const Worker& worker) const { return Stream(*this, worker); }

 private:
  EpochKey first_key(const WindowOptions& options);
  // Of the first batches of the series that begins with first_epoch_.
  std::int64_t samples_of_series(std::int64_t batches) const;
  std::int64_t in_epoch(std::int64_t batch) const;  // the number of a batch in its epoch
  std::int64_t epoch_of(std::int64_t batch) const;

  Loader loader_;
  EpochKey key_;
  std::int64_t shards_;
  EpochSize size_;  // of an epoch
  std::int64_t global_;
  std::int64_t first_epoch_;  // of the first batch of the window
  std::int64_t offset_;       // of the first batch of the window in that epoch
  std::int64_t batches_;
  std::int64_t first_batch_;
  ShardedEpoch epoch_;  // that of first_batch_
};

}  // namespace lockstep::data
