// Stands for image_targets.cpp in a build without the component `image` (LOCKSTEP_IMAGE=OFF).
#include "lockstep/recipe/targets.h"

namespace lockstep::recipe {

void add_images(Targets&) {}

}  // namespace lockstep::recipe
