// Measures loaders without a model: how fast samples come from files that are in the page cache.
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

namespace lockstep::bench {

struct LoadingOptions {
  std::filesystem::path
      folder;  // for the files that are read: made once, and kept for the next run
  std::string python = "/usr/bin/python3";
};

// I: 4,000 JPEGs of 256 x 256, random crops of 128, flipped and normalised, in batches of 64.
// {"lockstep": {"1": images/s, …}, "pytorch": {"0": …}, "ratio", …}, by threads and num_workers;
// the ratio compares the best of each. In a build without the component image it only says so.
nlohmann::json run_images(const LoadingOptions& options);

// N: 2 GB of rows of 4 KB in an .npy file, shuffled, in batches of 256, against a loop of memcpy()
// over the same rows in the same order: {"lockstep": rows/s, "memcpy", "ratio", "pytorch": {…}}.
nlohmann::json run_rows(const LoadingOptions& options);

}  // namespace lockstep::bench
