// A physics-informed autoencoder: whatever its weights are, the velocity that it returns has no
// divergence.
#pragma once

#include <vector>

#include "lockstep/science/network.h"

namespace lockstep::science {

struct PICAEConfig {
  NetworkConfig network = {.lr = 1e-4, .weight_decay = 1e-5};
  std::int64_t nfilters = 6;
  std::int64_t kernel_size = 3;  // odd
  std::int64_t enc_nlayers = 3;  // convolutions that halve each side
  std::int64_t dec_nlayers = 3;  // convolutions on the way back
  // Distances between points in the three directions, in any unit, if they differ: the length of
  // each side divided by its points. None: they are equal.
  std::vector<double> spacing = {};
};

// Encoder and decoder with periodic padding. The decoder returns a vector potential. Its curl, by
// periodic central differences, is the output.
class PICAE : public Network {
 public:
  // Throws ConfigError for options that are not valid.
  explicit PICAE(PICAEConfig config = {});
  std::string name() const override { return "PICAE"; }

 protected:
  // Throws DataError if samples are not [3, N, N, N], or if N cannot be halved enc_nlayers times.
  Model make_model(const FieldShape& shape) const override;
  Criterion criterion() const override;
  HParams options() const override;
  void restore(const HParams& options) override;

 private:
  PICAEConfig config_;
};

// The curl of [B, 3, N, N, N], by periodic central differences. Its divergence by the same
// differences is zero up to rounding. `spacing` is that of PICAEConfig; none: 1.
torch::Tensor curl(const torch::Tensor& potential, const std::vector<double>& spacing = {});
torch::Tensor divergence(const torch::Tensor& velocity, const std::vector<double>& spacing = {});

}  // namespace lockstep::science
