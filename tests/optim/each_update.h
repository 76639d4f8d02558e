// Updates of every kind, for tests that compare the ways to compute them.
#pragma once

#include "lockstep/optim/update.h"

namespace lockstep::optim {

// Calls function(update, number of states) for every update in LOCKSTEP_FOR_EACH_UPDATE, with and
// without the options that choose another formula. The numbers are for states that are not
// negative.
template <typename Function>
void for_each_update(const GradientUse& gradient, const Function& function) {
  const AdamUpdate adam{.gradient = gradient,
                        .beta1 = 0.9,
                        .beta2 = 0.99,
                        .eps = 1e-4,
                        .weight_decay = 0.1,
                        .shrink = 0.99,
                        .step_size = 0.013,
                        .sqrt_correction = 0.7};
  function(adam, 2);
  function(adam, 3);
  SGDUpdate sgd{.gradient = gradient, .lr = 0.013, .weight_decay = 0.1};
  function(sgd, 0);
  sgd.momentum = 0.9;
  sgd.gain = 0.6;
  function(sgd, 1);
  sgd.nesterov = true;
  function(sgd, 1);
  RMSpropUpdate rmsprop{
      .gradient = gradient, .lr = 0.013, .alpha = 0.9, .eps = 0.1, .weight_decay = 0.1};
  function(rmsprop, 1);
  function(rmsprop, 2);
  rmsprop.momentum = 0.9;
  function(rmsprop, 3);
  function(AdagradUpdate{.gradient = gradient, .lr = 0.013, .eps = 1e-6, .weight_decay = 0.1}, 1);
  RAdamUpdate radam{.gradient = gradient,
                    .beta1 = 0.9,
                    .beta2 = 0.99,
                    .eps = 1e-4,
                    .weight_decay = 0.1,
                    .step_size = 0.013};
  function(radam, 2);
  radam.rectified = false;
  function(radam, 2);
  function(NAdamUpdate{.gradient = gradient,
                       .beta1 = 0.9,
                       .beta2 = 0.99,
                       .eps = 1e-4,
                       .weight_decay = 0.1,
                       .correction = 0.7,
                       .gradient_size = 0.013,
                       .momentum_size = 0.1},
           2);
  function(AdamaxUpdate{.gradient = gradient,
                        .beta1 = 0.9,
                        .beta2 = 0.99,
                        .eps = 1e-4,
                        .weight_decay = 0.1,
                        .step_size = 0.013},
           2);
  function(
      AdadeltaUpdate{.gradient = gradient, .lr = 0.5, .rho = 0.9, .eps = 1e-3, .weight_decay = 0.1},
      2);
  function(
      LionUpdate{.gradient = gradient, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .shrink = 0.99}, 1);
  function(LambMoments{.gradient = gradient, .beta1 = 0.9, .beta2 = 0.99}, 2);
  function(LambUpdate{.eps = 1e-4,
                      .weight_decay = 0.1,
                      .correction1 = 0.5,
                      .correction2 = 0.7,
                      .step_size = 0.1},
           2);
  function(LookaheadUpdate{.alpha = 0.3}, 1);
}

}  // namespace lockstep::optim
