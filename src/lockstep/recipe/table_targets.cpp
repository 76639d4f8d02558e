// Tables, and data sets of images that are published as one file or a few.
#include "lockstep/recipe/fitted.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"
#include "lockstep/source/cifar.h"
#include "lockstep/source/csv.h"
#include "lockstep/source/mnist_variants.h"

namespace lockstep::recipe {
namespace {

void add_csv(Targets& targets) {
  using O = data::CsvOptions;
  targets.datasets.add<O>(
      "CsvDataset", "Rows of a CSV or TSV file: numbers, categories, missing values.",
      {config::required("path", &O::path, "of the file, plain or gzip"),
       {"features", &O::features, "names of columns; none: all but the targets"},
       {"targets", &O::targets, "names of columns; none: no targets"},
       {"separator", &O::separator, "of cells; default: tab for .tsv, else comma"},
       {"header", &O::header, "the first row has names; else columns are 0, 1, …"},
       {"types", &O::types, "of columns; default: category if cells are not numbers"},
       {"categories", &O::categories, "of columns, in the order of their codes"},
       {"missing", &O::missing, "what becomes of cells without a value"},
       {"missing_value", &O::missing_value, "instead of them, for missing: value"},
       {"missing_values", &O::missing_values, "cells that mean no value"},
       {"unknown", &O::unknown, "what becomes of a category that is not known"},
       {"normalize", &O::normalize, "features are (x - mean) / std"},
       {"one_hot", &O::one_hot, "a category is one feature per category"},
       {"schema", &O::schema, "of the training data: a file; default: that of the train loader"},
       {"save_schema", &O::save_schema, "file to write this data's schema to"},
       {"without_targets", &O::without_targets, "the file lacks the schema's targets"}},
      [](const O& o) { return data::csv_dataset(o); });
}

void add_cifar(Targets& targets, const std::string& name, const std::string& about,
               data::DatasetPtr (*make)(const data::CifarOptions&)) {
  using O = data::CifarOptions;
  targets.datasets.add<O>(name, about,
                          {{"root", &O::root, "folder of the files; downloads go there"},
                           {"train", &O::train, "the 50,000 to train on, else the 10,000 to test"},
                           {"download", &O::download, "fetch the archive if nothing is found"},
                           {"transform", &O::transform, "default: ToTensor"},
                           {"target_transform", &O::target_transform, "of the classes"},
                           {"mirrors", &O::mirrors, "base addresses to fetch from instead"}},
                          [make](const O& o) { return make(o); });
}

void add_emnist(Targets& targets) {
  using O = data::EmnistOptions;
  targets.datasets.add<O>(
      "EMNIST", "Letters and digits of 28 x 28, rows and columns exchanged, as torchvision has it.",
      {{"root", &O::root, "folder of the files; the archive is downloaded into it"},
       {"split", &O::split, "byclass, bymerge, balanced, letters, digits or mnist"},
       {"train", &O::train, "the part to train on, else the part to test"},
       {"download", &O::download, "fetch the archive, 560 MB, if files are missing"},
       {"transform", &O::transform, "default: ToTensor"},
       {"target_transform", &O::target_transform, "of the classes"},
       {"mirrors", &O::mirrors, "base addresses to fetch from instead"}},
      [](const O& o) { return data::emnist(o); });
}

void add_qmnist(Targets& targets) {
  using O = data::QmnistOptions;
  targets.datasets.add<O>("QMNIST", "MNIST's digits with 60,000 to test, and their origin.",
                          {{"root", &O::root, "folder of the files; downloads go there"},
                           {"train", &O::train, "the 60,000 to train on, else the 60,000 to test"},
                           {"what", &O::what, "instead: train, test, test10k, test50k or nist"},
                           {"compat", &O::compat, "targets are classes, else 8 numbers each"},
                           {"download", &O::download, "fetch files that are missing"},
                           {"transform", &O::transform, "default: ToTensor"},
                           {"target_transform", &O::target_transform, "of the classes"},
                           {"mirrors", &O::mirrors, "base addresses to fetch from instead"}},
                          [](const O& o) { return data::qmnist(o); });
}

}  // namespace

void add_tables(Targets& targets) {
  add_csv(targets);
  add_cifar(targets, "CIFAR10", "50,000 and 10,000 colour images of 32 x 32 in 10 classes.",
            data::cifar10);
  add_cifar(targets, "CIFAR100", "50,000 and 10,000 colour images of 32 x 32 in 100 classes.",
            data::cifar100);
  add_emnist(targets);
  add_qmnist(targets);
}

}  // namespace lockstep::recipe
