// JPEG by libjpeg-turbo. Its errors jump out of the calls, see jump.h.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <new>

#include <jerror.h>
#include <jpeglib.h>

#include "lockstep/base/error.h"
#include "lockstep/image/codec.h"
#include "lockstep/image/exif.h"
#include "lockstep/image/jpeg_errors.h"
#include "lockstep/image/jump.h"
#include "lockstep/image/pixels.h"

namespace lockstep::data {
namespace {

// A block of 64 pixels takes at least a bit in one of its components, and each component may have
// half of the pixels in one direction.
constexpr std::int64_t kPixelsPerByte = 1024;

extern "C" {

// libjpeg warns about damaged data and returns grey instead of the rest of the image. Such an image
// must not be trained on.
static void jpeg_warned(j_common_ptr info, int level) {
  const bool is_warning = level < 0;
  const int code = info->err->msg_code;
  // Cameras write bytes between the pixels, which are complete, and the end of the image.
  constexpr int kEndOfImage = 0xd9;
  const bool is_harmless =
      code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
      (code == JWRN_EXTRANEOUS_DATA && info->err->msg_parm.i[1] == kEndOfImage);
  if (is_warning && !is_harmless) jpeg_failed(info);
}

static void jpeg_prints(j_common_ptr) {}

// A file of some KB can have thousands of passes over the whole image, which take minutes. Real
// ones have about ten.
static void jpeg_goes_on(j_common_ptr info) {
  constexpr int kMostScans = 500;
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
  auto* const state = reinterpret_cast<JpegErrors*>(info->err);
  std::snprintf(state->message, sizeof state->message, "the image has more than %d scans",
                kMostScans);
  std::longjmp(state->jump, 1);
}

}  // extern "C"

// Rows and columns of an image, at the scale at which it is decoded.
struct JpegPart {
  std::int64_t top = 0;
  std::int64_t bottom = 0;  // behind the last row
  std::int64_t left = 0;
  std::int64_t right = 0;
};

class JpegReader {
 public:
  explicit JpegReader(ImageBytes bytes) {
    info_.err = jpeg_std_error(&state_.errors);
    state_.errors.error_exit = jpeg_failed;
    state_.errors.emit_message = jpeg_warned;
    state_.errors.output_message = jpeg_prints;
    progress_.progress_monitor = jpeg_goes_on;
    try {
      call([this, bytes] {
        jpeg_create_decompress(&info_);
        info_.progress = &progress_;
        jpeg_mem_src(&info_, bytes.data(), static_cast<unsigned long>(bytes.size()));
        jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xffff);  // EXIF
        jpeg_read_header(&info_, TRUE);
      });
    } catch (...) {
      jpeg_destroy_decompress(&info_);
      throw;
    }
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  ImageSize size() const { return {.height = info_.image_height, .width = info_.image_width}; }

  int orientation() const {
    for (jpeg_saved_marker_ptr marker = info_.marker_list; marker != nullptr;
         marker = marker->next) {
      // A file may have other data under the same marker.
      const int orientation = exif_orientation({marker->data, marker->data_length});
      if (orientation != 1) return orientation;
    }
    return 1;
  }

  // Throws DataError if the data behind the header cannot be a whole image. It is found out before
  // memory is taken for the image, and also if the last rows are not needed.
  void check_data() const {
    const ImageBytes data(info_.src->next_input_byte, info_.src->bytes_in_buffer);
    constexpr std::uint8_t kEnd[] = {0xff, 0xd9};
    if (std::find_end(data.begin(), data.end(), std::begin(kEnd), std::end(kEnd)) == data.end()) {
      throw DataError("JPEG: the file ends too early: the end of the image is missing");
    }
    if (info_.arith_code) return;  // has no such limit
    check_packed_size({.values = size().height * size().width,
                       .bytes = static_cast<std::int64_t>(data.size()),
                       .factor = kPixelsPerByte});
  }

  void choose_colors(Channels channels) {
    is_cmyk_ = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    const bool grey = channels == Channels::kGrey ||
                      (channels == Channels::kStored && info_.jpeg_color_space == JCS_GRAYSCALE);
    info_.out_color_space = is_cmyk_ ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_RGB;
  }

  // The image's size at eighths/8.
  ImageSize scaled_size(int eighths) {
    call([this, eighths] {
      info_.scale_num = static_cast<unsigned>(eighths);
      info_.scale_denom = 8;
      jpeg_calc_output_dimensions(&info_);
    });
    return {.height = info_.output_height, .width = info_.output_width};
  }

  // Pixels of the part's rows. The columns may begin before those of the part, because libjpeg
  // decodes whole blocks: `part.left` is changed to the first one. Call it once, after
  // scaled_size().
  torch::Tensor decode(JpegPart& part) {
    JDIMENSION left = static_cast<JDIMENSION>(part.left);
    JDIMENSION width = static_cast<JDIMENSION>(part.right - part.left);
    call([this, &left, &width] {
      jpeg_start_decompress(&info_);
      if (width < info_.output_width) jpeg_crop_scanline(&info_, &left, &width);
    });
    part.left = left;
    torch::Tensor pixels = torch::empty(
        {part.bottom - part.top, info_.output_width, info_.output_components}, torch::kUInt8);
    call([this, &part, &pixels] { read_rows(part, pixels.data_ptr<std::uint8_t>()); });
    return is_cmyk_ ? inverted_cmyk_to_rgb(pixels) : pixels;
  }

 private:
  void read_rows(const JpegPart& part, std::uint8_t* to) {
    if (part.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(part.top));
    const std::size_t row_bytes = static_cast<std::size_t>(info_.output_width) *
                                  static_cast<unsigned>(info_.output_components);
    while (info_.output_scanline < part.bottom) {
      JSAMPROW row = to;
      jpeg_read_scanlines(&info_, &row, 1);
      to += row_bytes;
    }
    // Reads up to the end of the image, and finds damage there.
    if (info_.output_scanline == info_.output_height) jpeg_finish_decompress(&info_);
  }

  template <typename Body>
  void call(Body body) {
    if (call_until_jump(state_.jump, body)) return;
    // It says nothing about the file.
    if (state_.errors.msg_code == JERR_OUT_OF_MEMORY) throw std::bad_alloc();
    throw DataError("JPEG: {}", state_.message);
  }

  JpegErrors state_ = {};
  jpeg_progress_mgr progress_ = {};
  jpeg_decompress_struct info_ = {};
  bool is_cmyk_ = false;
};

// The lowest scale at which the window is at least as large as its result. libjpeg can do all
// eighths, but only these are fast: 5/8 to 7/8 take longer than the whole. A lower scale averages
// pixels, which a window without antialias does not want.
int scale_for(const Window& window) {
  if (!window.antialias || window.interpolation == Interpolation::kNearest) return 8;
  for (const int eighths : {1, 2, 4}) {
    const double scale = eighths / 8.0;
    if (window.height * scale >= static_cast<double>(window.size.height) &&
        window.width * scale >= static_cast<double>(window.size.width)) {
      return eighths;
    }
  }
  return 8;
}

// The pixels of a part that touch the box, and two more on each side: colours are stored at half of
// the size, and at the edge of a part they would be interpolated in another way.
JpegPart part_around(const Box& box, const ImageSize& image) {
  constexpr double kMargin = 2;
  const auto clamped = [](double at, std::int64_t most) {
    return static_cast<std::int64_t>(std::clamp(at, 0.0, static_cast<double>(most)));
  };
  JpegPart part{.top = clamped(std::floor(box.top) - kMargin, image.height - 1),
                .left = clamped(std::floor(box.left) - kMargin, image.width - 1)};
  part.bottom =
      std::max(part.top + 1, clamped(std::ceil(box.top + box.height) + kMargin, image.height));
  part.right =
      std::max(part.left + 1, clamped(std::ceil(box.left + box.width) + kMargin, image.width));
  return part;
}

// Decodes a window of an image with this orientation.
torch::Tensor decode_window(JpegReader& reader, const Window& window, int orientation) {
  const int eighths = scale_for(window);
  const double scale = eighths / 8.0;
  const Box asked{
      .top = window.top, .left = window.left, .height = window.height, .width = window.width};
  Box box = as_stored(asked, reader.size(), orientation);
  for (double* const value : {&box.top, &box.left, &box.height, &box.width}) *value *= scale;
  JpegPart part = part_around(box, reader.scaled_size(eighths));
  const torch::Tensor pixels = reader.decode(part);

  box.top -= static_cast<double>(part.top);
  box.left -= static_cast<double>(part.left);
  const Box turned = upright(box, {.height = pixels.size(0), .width = pixels.size(1)}, orientation);
  Window inside = window;
  inside.top = turned.top;
  inside.left = turned.left;
  inside.height = turned.height;
  inside.width = turned.width;
  return resample(upright(pixels, orientation), inside);
}

}  // namespace

Raster decode_jpeg(ImageBytes bytes, const DecodeOptions& options, const WindowRequest& window) {
  JpegReader reader(bytes);
  check_size(reader.size(), options);
  reader.check_data();
  reader.choose_colors(options.channels);
  const int orientation = options.orient ? reader.orientation() : 1;
  if (window) {
    return {.pixels =
                decode_window(reader, window(upright(reader.size(), orientation)), orientation)};
  }
  const ImageSize size = reader.scaled_size(8);
  JpegPart whole{.bottom = size.height, .right = size.width};
  return {.pixels = reader.decode(whole), .orientation = orientation};
}

}  // namespace lockstep::data
