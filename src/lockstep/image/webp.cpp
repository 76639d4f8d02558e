// WebP by libwebp.
#include <memory>
#include <new>

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
  WebPDecoderConfig config;
  WebPInitDecoderConfig(&config);
  config.output.colorspace = alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {.rgba = pixels.data_ptr<std::uint8_t>(),
                          .stride = features.width * channels,
                          .size = pixels.nbytes()};
  const VP8StatusCode status = WebPDecode(bytes.data(), bytes.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
  if (status != VP8_STATUS_OK) throw DataError("WebP: the data are damaged or incomplete");
  return {.pixels = std::move(pixels), .orientation = webp_orientation(bytes)};
}

}  // namespace lockstep::data
