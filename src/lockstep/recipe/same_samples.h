// Metrics of the data that a model is trained on say nothing about new data. Finds loaders for
// evaluation that have samples of a train loader.
#pragma once

#include "lockstep/config/node.h"
#include "lockstep/data/loaders.h"
#include "lockstep/recipe/dataset_tree.h"

namespace lockstep::recipe {

// Compares the sources of samples (the file, its part) and which samples of them are used (Subset,
// SubsetRandomSampler). Other samplers may choose any sample. `node` has the loaders' options as
// they were made. Throws LocatedError, which names the loaders, unless allow_training_data is set.
void check_training_data(config::Node node, const data::Loaders& loaders, const MadeDatasets& made);

}  // namespace lockstep::recipe
