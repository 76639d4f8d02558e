// Which images a data set has, and the class of each. Internal to image/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::data {

struct ListedImage {
  std::filesystem::path path;
  std::int64_t target = 0;  // the number of its class
};

struct ImageList {
  std::vector<std::string> classes;  // their names, by number
  std::vector<ListedImage> images;
};

struct ClassFolders {
  std::filesystem::path root;
  std::vector<std::string> extensions;    // without a dot
  std::vector<std::string> classes = {};  // the folders, in this order; default: all, sorted
  // Names by number, of the training data. A folder may be missing, but those that are used must be
  // among them.
  std::vector<std::string> train_classes = {};
  bool allow_empty = false;  // folders without images
};

// Images in a folder per class, and in the folders below it, in the order of torchvision's
// ImageFolder. Throws DataError if there is no image, or none of a class.
ImageList list_class_folders(const ClassFolders& folders);

// All images below the root, whatever the folders are called. Throws DataError if there is none.
ImageList list_unlabelled(const ClassFolders& folders);

struct ImageTable {
  std::filesystem::path csv;
  std::filesystem::path root = {};  // of relative paths; default: the folder of the table
  // The names of labels, by number. Default: if all labels are integers, these are the numbers;
  // otherwise the sorted labels.
  std::vector<std::string> classes = {};
};

// Images and labels of a table of comma-separated values (RFC 4180, see CsvRows): columns `path`
// and `label` if its first line has these names, otherwise two columns. Throws DataError, which
// names the line.
ImageList list_image_table(const ImageTable& table);

}  // namespace lockstep::data
