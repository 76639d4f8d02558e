#include "lockstep/optim/lamb.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/compute/parallel.h"
#include "lockstep/optim/table_optimizer.h"

namespace lockstep::optim {
namespace {

// The elements of a parameter that are in one block of kSumBlock elements of its buffer. Ranks
// divide a buffer at blocks, so one rank sums all of a segment.
struct LambSegment {
  std::size_t slice = 0;
  ElementRange range;
};

// What the second pass needs to know about a buffer.
struct LambSums {
  std::vector<LambSegment> segments;
  std::vector<std::size_t> first;  // of each slice, and the number of segments
  torch::Tensor squares;           // two per segment; in shared memory if the parameters are
};

LambSums make_sums(const FlatParameters& parameters, std::size_t buffer) {
  LambSums sums;
  const auto& slices = parameters.buffers()[buffer].slices;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    sums.first.push_back(sums.segments.size());
    const std::int64_t last = slices[i].offset + slices[i].size;
    for (std::int64_t begin = slices[i].offset; begin < last;) {
      const std::int64_t block_end = (begin / kernels::kSumBlock + 1) * kernels::kSumBlock;
      const std::int64_t end = std::min(block_end, last);
      sums.segments.push_back({.slice = i, .range = {.begin = begin, .end = end}});
      begin = end;
    }
  }
  sums.first.push_back(sums.segments.size());
  sums.squares =
      parameters.zeros(2 * static_cast<std::int64_t>(sums.segments.size()), torch::kFloat64);
  return sums;
}

class LambOptimizer final : public TableOptimizer<LambOptimizer, Lamb> {
 public:
  LambOptimizer(const Lamb& options, FlatParameters& parameters)
      : TableOptimizer(options, parameters, {"exp_avg", "exp_avg_sq"}),
        sums_(parameters.buffers().size()) {
    prepare();
  }

  static void check_options(const Check& check, const Lamb& options) {
    check.decay("beta1", options.beta1);
    check.decay("beta2", options.beta2);
    check.positive("eps", options.eps);
    check.require(options.max_weight_norm > 0.0, "max_weight_norm", "a number > 0",
                  options.max_weight_norm);
  }

 private:
  void update(const GradientUse& gradient) override {
    prepare();
    const std::size_t buffers = parameters().buffers().size();
    for (std::size_t i = 0; i < buffers; ++i) {
      if (parameters().buffers()[i].is_trainable()) update_moments(i, gradient);
    }
    // The norm of a parameter has parts of several ranks.
    wait_for_parts();
    for (std::size_t i = 0; i < buffers; ++i) {
      if (parameters().buffers()[i].is_trainable()) update_values(i);
    }
  }

  // Also for buffers that have become trainable since the last step.
  void prepare() {
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const auto& buffer = parameters().buffers()[i];
      if (!buffer.is_trainable() || sums_[i].squares.defined()) continue;
      if (has_fused_updates(buffer.values)) sums_[i] = make_sums(parameters(), i);
    }
  }

  LambUpdate update_of(std::size_t buffer, std::size_t slice) const {
    const Rates rates = rates_of(common(), buffer, slice);
    const auto t = static_cast<double>(rates.step);
    const auto correction = [&](double beta) {
      return options().bias_correction ? 1.0 - std::pow(beta, t) : 1.0;
    };
    return {.eps = options().eps,
            .weight_decay = rates.weight_decay,
            .correction1 = correction(options().beta1),
            .correction2 = correction(options().beta2),
            .step_size = rates.lr};
  }

  void update_moments(std::size_t index, const GradientUse& gradient) {
    const auto& buffer = parameters().buffers()[index];
    const UpdateTensors tensors = tensors_of(index);
    const LambMoments moments{
        .gradient = gradient, .beta1 = options().beta1, .beta2 = options().beta2};
    if (!has_fused_updates(buffer.values)) {
      for (const auto& slice : buffer.slices) {
        if (!slice.used) continue;
        apply_best(moments, tensors, {.begin = slice.offset, .end = slice.offset + slice.size});
      }
    } else if (buffer.values.scalar_type() == torch::kFloat32) {
      update_segments<float>(index, moments, tensors);
    } else {
      update_segments<double>(index, moments, tensors);
    }
  }

  // The moments of this rank's segments, and their sums of squares while they are in the cache.
  template <typename T>
  void update_segments(std::size_t index, const LambMoments& moments,
                       const UpdateTensors& tensors) {
    const auto& slices = parameters().buffers()[index].slices;
    const LambSums& sums = sums_[index];
    const ElementRange ours = range_of(part(), tensors.values.numel());
    const auto arrays = arrays_of<T>(tensors);
    std::vector<LambUpdate> updates(slices.size());
    for (std::size_t i = 0; i < slices.size(); ++i) {
      if (slices[i].used) updates[i] = update_of(index, i);
    }
    auto* const squares = sums.squares.data_ptr<double>();
    const auto count = static_cast<std::int64_t>(sums.segments.size());
    compute::for_ranges({.size = count, .grain = kElementsPerThread / kernels::kSumBlock},
                        [&](std::int64_t first, std::int64_t last) {
                          for (std::int64_t i = first; i < last; ++i) {
                            const auto& [slice, range] = sums.segments[static_cast<std::size_t>(i)];
                            const bool is_ours = range.begin >= ours.begin && range.end <= ours.end;
                            if (!is_ours || !slices[slice].used) continue;
                            const kernels::IndexRange indices{range.begin, range.end};
                            kernels::apply(moments, arrays, indices);
                            const LambSquares sum =
                                kernels::lamb_squares(updates[slice], arrays, indices);
                            squares[2 * i] = sum.values;
                            squares[2 * i + 1] = sum.updates;
                          }
                        });
  }

  // Of a whole parameter, added up in the order of its segments.
  LambSquares squares_of(std::size_t index, std::size_t slice) const {
    const LambSums& sums = sums_[index];
    LambSquares total;
    const auto* const squares = sums.squares.data_ptr<double>();
    for (std::size_t i = sums.first[slice]; i < sums.first[slice + 1]; ++i) {
      total.values += squares[2 * i];
      total.updates += squares[2 * i + 1];
    }
    return total;
  }

  // As lamb_ratio(), on the processor. A parameter that is zero must be able to leave it.
  double ratio_of(const LambSquares& squares) const {
    const double weight_norm = std::min(std::sqrt(squares.values), options().max_weight_norm);
    const double update_norm = std::sqrt(squares.updates);
    return weight_norm > 0.0 && update_norm > 0.0 ? weight_norm / update_norm : 1.0;
  }

  void update_values(std::size_t index) {
    const auto& slices = parameters().buffers()[index].slices;
    UpdateTensors tensors = tensors_of(index);
    const ElementRange ours = range_of(part(), tensors.values.numel());
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const ElementRange whole{.begin = slices[i].offset, .end = slices[i].offset + slices[i].size};
      const ElementRange range{.begin = std::max(ours.begin, whole.begin),
                               .end = std::min(ours.end, whole.end)};
      if (!slices[i].used || range.size() <= 0) continue;
      LambUpdate update = update_of(index, i);
      if (sums_[index].squares.defined()) {
        update.step_size *= ratio_of(squares_of(index, i));
      } else {
        tensors.factor = lamb_ratio(update, narrowed(tensors, whole), options().max_weight_norm);
      }
      apply_best(update, tensors, range);
    }
  }

  std::vector<LambSums> sums_;  // one per buffer
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Lamb& options, FlatParameters& parameters) {
  return std::make_unique<LambOptimizer>(options, parameters);
}

}  // namespace lockstep::optim
