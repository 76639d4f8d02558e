// A model as a list of layers.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include "lockstep/config/node.h"
#include "lockstep/recipe/targets.h"

namespace lockstep::recipe {

// Builds the layers one by one and sends the example through each new layer. Sizes that the config
// leaves out are taken from the layer's input, and the out_features of a last Linear from the
// number of classes in the data. A layer that does not fit the one before it is an error at its
// line. If the example has no input, nothing is checked.
torch::nn::Sequential make_sequential(const config::Node& layers, const Example& example);

}  // namespace lockstep::recipe
