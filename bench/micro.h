// Measures single parts of a step.
#pragma once

#include <nlohmann/json.hpp>

namespace lockstep::bench {

// Compares each fused optimizer with LibTorch's, on one thread.
nlohmann::json run_optimizers();

// Compares gathering a batch of images, converted from bytes to floats, with index_select of
// floats, on one thread.
nlohmann::json run_gather();

// Compares the time for which a checkpoint inside an epoch stalls training with a memcpy of as many
// bytes, for a model with 100 MB of weights and Adam.
nlohmann::json run_saves();

// Compares a 3-D U-Net whose activations are computed again in backward() with one that keeps them:
// the peak memory and the time of a step, on one thread. The outputs and gradients must be the
// same.
nlohmann::json run_activations();

}  // namespace lockstep::bench
