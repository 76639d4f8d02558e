// The orientation of a photo, from its EXIF data.
#pragma once

#include "lockstep/image/decode.h"

namespace lockstep::data {

// 1 to 8, as EXIF counts them. 1, upright, if the data have no orientation or are damaged: the
// image itself is not. `exif` may begin with "Exif\0\0", as in JPEG files.
int exif_orientation(ImageBytes exif);

}  // namespace lockstep::data
