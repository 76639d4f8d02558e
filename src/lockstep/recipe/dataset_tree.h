// Data sets in a config. A data set may be inside of others, such as a Subset of a Transformed; the
// innermost ones are the sources of the samples.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/config/node.h"
#include "lockstep/data/dataset.h"

namespace lockstep::recipe {

// A data set as a node of a config describes it, in any way to write it: {_target_: MNIST, root:
// data}, {MNIST: {root: data}} or MNIST.
struct DatasetNode {
  config::Node* node = nullptr;     // as a whole
  std::string target = {};          // empty if the node names none
  config::Node* options = nullptr;  // nullptr if there are none

  // The option of this name, or nullptr.
  config::Node* find(const char* option) const {
    return options == nullptr ? nullptr : options->find(option);
  }
};

DatasetNode dataset_node(config::Node& node);

// The data sets that are inside of this one. None: it is a source.
std::vector<DatasetNode> parts_of(const DatasetNode& dataset);

// All sources, in the order in which they are written.
std::vector<DatasetNode> sources_of(config::Node& dataset);

// The data sets that were made while this object exists, by what the config says about them. A data
// set that is written twice is made once. Several may exist, in any order; the one that was made
// last gets the data sets. An object belongs to the thread that made it.
class MadeDatasets {
 public:
  MadeDatasets();
  ~MadeDatasets();
  MadeDatasets(const MadeDatasets&) = delete;
  MadeDatasets& operator=(const MadeDatasets&) = delete;

  // nullptr if it was not made.
  data::DatasetPtr find(const config::Node& node) const;

 private:
  friend data::DatasetPtr make_dataset(const config::Node& node);

  std::map<std::string, data::DatasetPtr> by_text_;
  MadeDatasets* outer_;
};

// Makes the data set of a node, or takes it from the MadeDatasets of this thread. Throws
// LocatedError.
data::DatasetPtr make_dataset(const config::Node& node);

}  // namespace lockstep::recipe
