#include "lockstep/science/model_scaling.h"

#include "lockstep/base/error.h"

namespace lockstep::science {

void check_scaling(const ModelScaling& model, const data::Loader& loader) {
  const data::Scaling found = data::scaling_of(*loader.dataset());
  if (found == model.scaling) return;
  throw DataError(
      "{}: expected samples with the scaling of the training data ({}), got samples with another "
      "({}); make the data set with `.scaling = ` the scaling of the training data or of the "
      "estimator",
      model.name, data::describe(model.scaling), data::describe(found));
}

}  // namespace lockstep::science
