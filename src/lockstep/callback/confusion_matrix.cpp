#include "lockstep/callback/confusion_matrix.h"

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/plot/confusion_image.h"
#include "lockstep/train/merge.h"

namespace lockstep {
namespace {

ConfusionMatrixCallbackOptions resolve(ConfusionMatrixCallbackOptions options) {
  const auto named = static_cast<std::int64_t>(options.class_names.size());
  if (named == 0) {
    for (std::int64_t i = 0; i < options.num_classes; ++i) {
      options.class_names.push_back(std::to_string(i));
    }
  } else if (options.num_classes == 0) {
    options.num_classes = named;
  } else if (options.num_classes != named) {
    throw ConfigError(
        "ConfusionMatrixCallback: class_names: expected num_classes = {} names, got {}",
        options.num_classes, named);
  }
  return options;
}

}  // namespace

ConfusionMatrixCallback::ConfusionMatrixCallback(ConfusionMatrixCallbackOptions options)
    : options_(resolve(std::move(options))),
      metric_({.num_classes = options_.num_classes, .normalized = options_.normalized}) {}

void ConfusionMatrixCallback::dry_run(const std::string&, Batch& batch) {
  metric_.reset();
  metric_.update(batch[options_.input_key], batch[options_.target_key]);
  metric_.reset();
}

std::string ConfusionMatrixCallback::agreed_options() const {
  return OptionText()
      .with("input_key", options_.input_key)
      .with("target_key", options_.target_key)
      .with("num_classes", options_.num_classes)
      .str();
}

void ConfusionMatrixCallback::on_loader_start(State& state) {
  if (state.loader_batch == 0 || !state.comm->is_primary()) metric_.reset();
}

void ConfusionMatrixCallback::on_batch_end(State& state) {
  metric_.update(state.batch[options_.input_key].detach(), state.batch[options_.target_key]);
}

void ConfusionMatrixCallback::load_state(const StateDict& state) {
  if (state.size() == 0) return metric_.reset();
  metric_.load_state(state);
}

void ConfusionMatrixCallback::gather(comm::Communicator& communicator) {
  gather_metric(metric_, communicator);
}

void ConfusionMatrixCallback::on_loader_end(State& state) {
  gather(*state.comm);
  if (state.loggers.empty()) return;
  const torch::Tensor values = metric_.values().contiguous();
  const double* cells = values.data_ptr<double>();
  const Image image = plot::draw_confusion_matrix({.class_names = options_.class_names,
                                                   .cells = {cells, cells + values.numel()},
                                                   .normalized = options_.normalized});
  state.log_image(options_.prefix + "confusion_matrix", image);
}

}  // namespace lockstep
