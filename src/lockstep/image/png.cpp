// PNG by libpng. Its errors jump out of the calls, see jump.h.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include <png.h>

#include "lockstep/base/error.h"
#include "lockstep/image/codec.h"
#include "lockstep/image/exif.h"
#include "lockstep/image/jump.h"
#include "lockstep/image/pixels.h"

namespace lockstep::data {
namespace {

// Deflate makes data at most this many times smaller.
constexpr std::int64_t kDeflateFactor = 1032;

struct PngState {
  ImageBytes left;  // bytes that were not read yet
  std::jmp_buf jump;
  char message[256];
  bool lacks_memory = false;
};

PngState& png_state(void* pointer) {
  return *static_cast<PngState*>(pointer);
}

extern "C" {

[[noreturn]] static void png_failed(png_structp png, png_const_charp message) {
  PngState& state = png_state(png_get_error_ptr(png));
  std::snprintf(state.message, sizeof state.message, "%s", message);
  std::longjmp(state.jump, 1);
}

// Warnings are about parts that do not change pixels, such as a colour profile.
static void png_warned(png_structp, png_const_charp) {}

// libpng reports a lack of memory as it reports damage.
static png_voidp png_allocates(png_structp png, png_alloc_size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) png_state(png_get_mem_ptr(png)).lacks_memory = true;
  return memory;
}

static void png_frees(png_structp, png_voidp memory) {
  std::free(memory);
}

static void png_reads(png_structp png, png_bytep to, std::size_t size) {
  PngState& state = png_state(png_get_io_ptr(png));
  if (size > state.left.size()) png_error(png, "the file ends too early");
  std::memcpy(to, state.left.data(), size);
  state.left = state.left.subspan(size);
}

}  // extern "C"

class PngReader {
 public:
  explicit PngReader(ImageBytes bytes) {
    state_.left = bytes;
    call([this] {
      png_ = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &state_, png_failed, png_warned,
                                      &state_, png_allocates, png_frees);
      if (png_ != nullptr) info_ = png_create_info_struct(png_);
    });
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw std::bad_alloc();
    }
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  ImageSize read_header() {
    call([this] {
      png_set_read_fn(png_, &state_, png_reads);
      png_read_info(png_, info_);
    });
    return {.height = png_get_image_height(png_, info_), .width = png_get_image_width(png_, info_)};
  }

  std::int64_t packed_row_bytes() const {
    return static_cast<std::int64_t>(png_get_rowbytes(png_, info_));
  }

  torch::Tensor read_pixels(const DecodeOptions& options) {
    const bool wide = options.floats && png_get_bit_depth(png_, info_) == 16;
    const bool drop_alpha =
        options.channels == Channels::kRgb || options.channels == Channels::kGrey;
    call([this, wide, drop_alpha] {
      png_set_expand(png_);  // palettes to colours, fewer bits to 8, transparency to alpha
      if (drop_alpha) png_set_strip_alpha(png_);
      if (wide) {
        png_set_swap(png_);  // to little endian
      } else {
        png_set_strip_16(png_);
      }
      png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
    const auto height = static_cast<std::int64_t>(png_get_image_height(png_, info_));
    const auto width = static_cast<std::int64_t>(png_get_image_width(png_, info_));
    const std::int64_t channels = png_get_channels(png_, info_);
    torch::Tensor pixels =
        torch::empty({height, width, channels}, wide ? torch::kInt16 : torch::kUInt8);
    const auto row_bytes = static_cast<std::size_t>(packed_row_bytes());
    if (row_bytes * static_cast<std::size_t>(height) != pixels.nbytes()) {
      throw DataError("PNG: rows of {} bytes, expected {}", row_bytes,
                      pixels.nbytes() / static_cast<std::size_t>(height));
    }
    std::vector<png_bytep> rows;
    rows.reserve(static_cast<std::size_t>(height));
    for (std::int64_t y = 0; y < height; ++y) {
      rows.push_back(static_cast<png_bytep>(pixels.data_ptr()) +
                     static_cast<std::size_t>(y) * row_bytes);
    }
    call([this, &rows] {
      png_read_image(png_, rows.data());
      png_read_end(png_, info_);
    });
    return wide ? from_16_bits(pixels) : pixels;
  }

  int orientation() const {
    png_bytep exif = nullptr;
    png_uint_32 size = 0;
    if (png_get_eXIf_1(png_, info_, &size, &exif) == 0 || exif == nullptr) return 1;
    return exif_orientation({exif, size});
  }

 private:
  template <typename Body>
  void call(Body body) {
    if (call_until_jump(state_.jump, body)) return;
    if (state_.lacks_memory) throw std::bad_alloc();
    throw DataError("PNG: {}", state_.message);
  }

  PngState state_ = {};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

Raster decode_png(ImageBytes bytes, const DecodeOptions& options) {
  PngReader reader(bytes);
  const ImageSize size = reader.read_header();
  check_size(size, options);
  check_packed_size({.values = reader.packed_row_bytes() * size.height,
                     .bytes = static_cast<std::int64_t>(bytes.size()),
                     .factor = kDeflateFactor});
  torch::Tensor pixels = reader.read_pixels(options);
  return {.pixels = std::move(pixels), .orientation = reader.orientation()};
}

}  // namespace lockstep::data
