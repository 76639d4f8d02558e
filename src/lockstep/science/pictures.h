// The pictures of an experiment, each with the table that it was drawn from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <torch/types.h>

#include "lockstep/base/metrics.h"
#include "lockstep/science/fft.h"
#include "lockstep/science/report.h"
#include "lockstep/science/statistics.h"

namespace lockstep::science {

struct Picture {
  std::string name;      // of its files
  ReportPicture report;  // its part of a report
  std::string csv;
};

// The loss of every loader over the epochs.
Picture loss_picture(const std::map<std::int64_t, EpochMetrics>& history);

// PDF and CDF of the values in `range`, or of all values.
Picture distribution_picture(const torch::Tensor& predict, const torch::Tensor& target,
                             const std::optional<Range>& range = {});

// For fields [C, N, …]: the middle plane of the first channel, as target, as predicted, and the
// difference. Fields of one dimension are drawn as lines.
Picture slice_picture(const torch::Tensor& predict, const torch::Tensor& target,
                      const std::optional<Range>& range = {});

// The mean spectra of whole fields [n, C, N, …], which are periodic, with Kolmogorov's slope. `box`
// has the lengths of a field's sides.
Picture spectrum_picture(const torch::Tensor& predict, const torch::Tensor& target,
                         const BoxLengths& box = {});
// The mean spectra of cubes [n, C, b, …], which are not periodic: they are windowed. `box` has the
// lengths of a cube's sides.
Picture cube_spectrum_picture(const torch::Tensor& predict, const torch::Tensor& target,
                              const BoxLengths& box = {});

}  // namespace lockstep::science
