// Multiplies the loss, so that small gradients are not zero in fp16: the rules of PyTorch's
// GradScaler.
#pragma once

#include <cstdint>

#include "lockstep/state/state_dict.h"

namespace lockstep::optim {

// Names and defaults of PyTorch.
struct GradScalerOptions {
  double init_scale = 65536.0;          // the first factor of the loss
  double growth_factor = 2.0;           // of the scale, after growth_interval updates
  double backoff_factor = 0.5;          // of the scale, after an update that was skipped
  std::int64_t growth_interval = 2000;  // updates in a row whose gradients are finite
  bool enabled = true;                  // false: the loss is not scaled, also with fp16

  friend bool operator==(const GradScalerOptions&, const GradScalerOptions&) = default;
};

// Throws ConfigError for a number out of its range.
void check_options(const GradScalerOptions& options);

// It decides by what it is told, and it must be told the same on all ranks: they then have the same
// scale. Every update of a batch is noted. adjust() is called once when all of them are done and no
// gradient waits for another batch.
class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});

  // The factor of the loss. Gradients have to be divided by it.
  double scale() const { return scale_; }
  // An update took place, or was skipped because its gradients were not finite.
  void note_update(bool skipped);
  // Changes the scale after the updates since the last call, and does nothing if there was none.
  // Throws Error if the scale has become so small that no gradient will ever be finite.
  void adjust();

  std::int64_t skipped() const { return skipped_; }  // updates, in the whole run

  // The state of PyTorch's GradScaler, with "skipped" in addition. As in PyTorch, the factors are
  // part of it.
  StateDict state() const;
  void load_state(const StateDict& state);

 private:
  GradScalerOptions options_;
  float scale_;
  std::int64_t growth_tracker_ = 0;  // updates in a row whose gradients were finite
  std::int64_t skipped_ = 0;
  bool any_update_ = false;   // since the last adjust()
  bool any_skipped_ = false;  // since the last adjust()
};

}  // namespace lockstep::optim
