// WebP by libwebp.
#include <memory>

#include <webp/decode.h>
#include <webp/demux.h>

#include "lockstep/base/error.h"
#include "lockstep/image/codec.h"
#include "lockstep/image/exif.h"

namespace lockstep::data {
namespace {

int webp_orientation(ImageBytes bytes) {
  const WebPData data = {.bytes = bytes.data(), .size = bytes.size()};
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> demuxer(WebPDemux(&data),
                                                                         &WebPDemuxDelete);
  if (demuxer == nullptr || (WebPDemuxGetI(demuxer.get(), WEBP_FF_FORMAT_FLAGS) & EXIF_FLAG) == 0) {
    return 1;
  }
  WebPChunkIterator chunk;
  if (WebPDemuxGetChunk(demuxer.get(), "EXIF", 1, &chunk) == 0) return 1;
  const int orientation = exif_orientation({chunk.chunk.bytes, chunk.chunk.size});
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

}  // namespace

Raster decode_webp(ImageBytes bytes, const DecodeOptions& options) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(bytes.data(), bytes.size(), &features) != VP8_STATUS_OK) {
    throw DataError("WebP: the header is damaged or incomplete");
  }
  if (features.has_animation != 0) throw DataError("WebP: an animation, expected a still image");
  check_size({.height = features.height, .width = features.width}, options);
  const bool alpha = options.channels == Channels::kRgba ||
                     (options.channels == Channels::kStored && features.has_alpha != 0);
  const int channels = alpha ? 4 : 3;
  torch::Tensor pixels = torch::empty({features.height, features.width, channels}, torch::kUInt8);
  const auto decode_into = alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (decode_into(bytes.data(), bytes.size(), pixels.data_ptr<std::uint8_t>(), pixels.nbytes(),
                  features.width * channels) == nullptr) {
    throw DataError("WebP: the data are damaged or incomplete");
  }
  return {.pixels = std::move(pixels), .orientation = webp_orientation(bytes)};
}

}  // namespace lockstep::data
