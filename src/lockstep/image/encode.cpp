// By libjpeg-turbo. Its errors jump out of the calls, see jump.h.
#include "lockstep/image/encode.h"

#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"
#include "lockstep/image/jpeg_errors.h"
#include "lockstep/image/jump.h"

namespace lockstep::data {
namespace {

// Owns the memory that libjpeg writes to.
struct EncoderOutput {
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  ~EncoderOutput() { std::free(bytes); }
};

}  // namespace

std::string encode_jpeg(const torch::Tensor& image, const JpegOptions& options) {
  const bool grey = image.dim() == 2 || (image.dim() == 3 && image.size(2) == 1);
  const bool rgb = image.dim() == 3 && image.size(2) == 3;
  if (image.scalar_type() != torch::kUInt8 || !(grey || rgb) || image.numel() == 0) {
    throw DataError("encode_jpeg: expected bytes [H, W, 3], [H, W, 1] or [H, W], got {}",
                    describe(image));
  }
  if (options.quality < 1 || options.quality > 100) {
    throw ConfigError("encode_jpeg: quality: expected 1 to 100, got {}", options.quality);
  }
  const torch::Tensor pixels = image.cpu().contiguous();
  EncoderOutput output;
  JpegErrors state = {};
  jpeg_compress_struct info = {};
  info.err = jpeg_std_error(&state.errors);
  state.errors.error_exit = jpeg_failed;
  auto encode = [&] {
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &output.bytes, &output.size);
    info.image_height = static_cast<JDIMENSION>(pixels.size(0));
    info.image_width = static_cast<JDIMENSION>(pixels.size(1));
    info.input_components = grey ? 1 : 3;
    info.in_color_space = grey ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, options.quality, TRUE);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
      JSAMPROW row = pixels.data_ptr<std::uint8_t>() +
                     static_cast<std::size_t>(info.next_scanline) * info.image_width *
                         static_cast<unsigned>(info.input_components);
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
  };
  const bool encoded = call_until_jump(state.jump, encode);
  jpeg_destroy_compress(&info);
  if (!encoded) throw DataError("encode_jpeg: {}", state.message);
  return {reinterpret_cast<const char*>(output.bytes), output.size};
}

}  // namespace lockstep::data
