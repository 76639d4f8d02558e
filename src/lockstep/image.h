// Everything about images in files, for users: the component `image`. lockstep/lockstep.h includes
// it. Never included inside Lockstep itself.
#pragma once

#include "lockstep/image/decode.h"
#include "lockstep/image/encode.h"
#include "lockstep/image/image_folder.h"
