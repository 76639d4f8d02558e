// TIFF by libtiff. Bytes and 16 bits of grey and RGB are read as they are. All else (palettes,
// fewer bits, CMYK, YCbCr) is converted by libtiff, which gives 8 bits.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include <tiffio.h>

#include "lockstep/base/error.h"
#include "lockstep/image/codec.h"
#include "lockstep/image/pixels.h"

namespace lockstep::data {
namespace {

// The file in memory, and the first error that libtiff reports.
struct TiffState {
  ImageBytes bytes;
  toff_t at = 0;
  char message[256] = {};
};

TiffState& tiff_state(thandle_t handle) {
  return *static_cast<TiffState*>(handle);
}

extern "C" {

static tmsize_t tiff_reads(thandle_t handle, void* to, tmsize_t size) {
  TiffState& state = tiff_state(handle);
  if (size <= 0 || state.at >= state.bytes.size()) return 0;
  const auto left = static_cast<tmsize_t>(state.bytes.size() - state.at);
  const tmsize_t count = std::min(size, left);
  std::memcpy(to, state.bytes.data() + state.at, static_cast<std::size_t>(count));
  state.at += static_cast<toff_t>(count);
  return count;
}

static tmsize_t tiff_writes(thandle_t, void*, tmsize_t) {
  return 0;
}

static toff_t tiff_seeks(thandle_t handle, toff_t offset, int whence) {
  TiffState& state = tiff_state(handle);
  const toff_t base = whence == SEEK_CUR   ? state.at
                      : whence == SEEK_END ? static_cast<toff_t>(state.bytes.size())
                                           : 0;
  state.at = base + offset;
  return state.at;
}

static int tiff_closes(thandle_t) {
  return 0;
}

static toff_t tiff_size(thandle_t handle) {
  return tiff_state(handle).bytes.size();
}

static int tiff_failed(TIFF*, void* user, const char* module, const char* format, va_list values) {
  TiffState& state = *static_cast<TiffState*>(user);
  if (state.message[0] != '\0') return 1;
  const int used =
      module == nullptr ? 0 : std::snprintf(state.message, sizeof state.message, "%s: ", module);
  const auto begin = std::clamp<std::size_t>(static_cast<std::size_t>(std::max(used, 0)), 0,
                                             sizeof state.message - 1);
  std::vsnprintf(state.message + begin, sizeof state.message - begin, format, values);
  return 1;  // nothing is printed
}

// Warnings are about unknown tags and the like.
static int tiff_warned(TIFF*, void*, const char*, const char*, va_list) {
  return 1;
}

}  // extern "C"

struct CloseTiff {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};
using TiffPtr = std::unique_ptr<TIFF, CloseTiff>;

[[noreturn]] void fail_tiff(const TiffState& state) {
  throw DataError("TIFF: {}", state.message[0] == '\0' ? "the data are damaged" : state.message);
}

// No single piece of memory of libtiff may be larger than the pixels that are allowed.
tmsize_t most_memory(const DecodeOptions& options) {
  constexpr tmsize_t kPixelBytes = 8;  // four channels of 16 bits
  constexpr tmsize_t kTables = 1 << 24;
  constexpr std::int64_t kMostPixels = std::int64_t{1} << 40;
  return static_cast<tmsize_t>(std::min(options.most_pixels, kMostPixels)) * kPixelBytes + kTables;
}

TiffPtr open_tiff(TiffState& state, const DecodeOptions& options) {
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> opening(
      TIFFOpenOptionsAlloc(), &TIFFOpenOptionsFree);
  TIFFOpenOptionsSetErrorHandlerExtR(opening.get(), tiff_failed, &state);
  TIFFOpenOptionsSetWarningHandlerExtR(opening.get(), tiff_warned, &state);
  TIFFOpenOptionsSetMaxSingleMemAlloc(opening.get(), most_memory(options));
  // m: the file is not mapped
  TiffPtr tiff(TIFFClientOpenExt("image", "rm", &state, tiff_reads, tiff_writes, tiff_seeks,
                                 tiff_closes, tiff_size, nullptr, nullptr, opening.get()));
  if (tiff == nullptr) fail_tiff(state);
  return tiff;
}

template <typename T>
T tag_or(TIFF* tiff, std::uint32_t tag, T fallback) {
  T value = fallback;
  return TIFFGetFieldDefaulted(tiff, tag, &value) == 1 ? value : fallback;
}

constexpr std::uint16_t kUnknownPhotometric = 0xffff;  // libtiff guesses it

struct TiffHeader {
  ImageSize size;
  std::uint16_t bits = 1;
  std::uint16_t samples = 1;
  std::uint16_t photometric = kUnknownPhotometric;
  std::uint16_t planar = PLANARCONFIG_CONTIG;
  std::uint16_t format = SAMPLEFORMAT_UINT;
  std::uint16_t compression = COMPRESSION_NONE;
  int orientation = 1;
  std::optional<ImageSize> tile = {};  // none: strips
};

TiffHeader tiff_header(TIFF* tiff) {
  TiffHeader header{
      .size = {.height = tag_or<std::uint32_t>(tiff, TIFFTAG_IMAGELENGTH, 0),
               .width = tag_or<std::uint32_t>(tiff, TIFFTAG_IMAGEWIDTH, 0)},
      .bits = tag_or<std::uint16_t>(tiff, TIFFTAG_BITSPERSAMPLE, 1),
      .samples = tag_or<std::uint16_t>(tiff, TIFFTAG_SAMPLESPERPIXEL, 1),
      .photometric = tag_or<std::uint16_t>(tiff, TIFFTAG_PHOTOMETRIC, kUnknownPhotometric),
      .planar = tag_or<std::uint16_t>(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG),
      .format = tag_or<std::uint16_t>(tiff, TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT),
      .compression = tag_or<std::uint16_t>(tiff, TIFFTAG_COMPRESSION, COMPRESSION_NONE)};
  const auto orientation = tag_or<std::uint16_t>(tiff, TIFFTAG_ORIENTATION, 1);
  if (orientation >= 1 && orientation <= 8) header.orientation = orientation;
  if (TIFFIsTiled(tiff) != 0) {
    header.tile = ImageSize{.height = tag_or<std::uint32_t>(tiff, TIFFTAG_TILELENGTH, 0),
                            .width = tag_or<std::uint32_t>(tiff, TIFFTAG_TILEWIDTH, 0)};
  }
  return header;
}

// Memory for a whole tile is taken before it is read. A tile may be larger than the image, but not
// many times: it is padded with zeros.
void check_tile(const ImageSize& tile, const ImageSize& image) {
  constexpr std::int64_t kLargestPadding = 1 << 12;
  if (tile.height >= 1 && tile.width >= 1 && tile.height <= image.height + kLargestPadding &&
      tile.width <= image.width + kLargestPadding) {
    return;
  }
  throw DataError("TIFF: tiles of {} x {} (height x width) for an image of {} x {}", tile.height,
                  tile.width, image.height, image.width);
}

// Whether libtiff gives the samples of pixels as this file reads them.
bool is_plain(const TiffHeader& header) {
  const bool grey = (header.photometric == PHOTOMETRIC_MINISBLACK ||
                     header.photometric == PHOTOMETRIC_MINISWHITE) &&
                    (header.samples == 1 || header.samples == 2);
  const bool rgb =
      header.photometric == PHOTOMETRIC_RGB && (header.samples == 3 || header.samples == 4);
  return (grey || rgb) && (header.bits == 8 || header.bits == 16) &&
         header.format == SAMPLEFORMAT_UINT;
}

// How many times smaller than its pixels a file may be; 0 if there is no limit.
std::int64_t packing_factor(std::uint16_t compression) {
  constexpr std::int64_t kMostPacked = 4096;  // above deflate, LZW and JPEG
  switch (compression) {
    case COMPRESSION_NONE:
    case COMPRESSION_PACKBITS:
    case COMPRESSION_LZW:
    case COMPRESSION_DEFLATE:
    case COMPRESSION_ADOBE_DEFLATE:
    case COMPRESSION_JPEG:
      return kMostPacked;
    default:
      return 0;
  }
}

// Reads samples of 8 or 16 bits, in strips or tiles, with channels together or in separate planes.
class PlainTiff {
 public:
  PlainTiff(TIFF* tiff, const TiffHeader& header)
      : tiff_(tiff), header_(header), value_bytes_(header.bits / 8) {
    pixels_ = torch::empty({header.size.height, header.size.width, header.samples},
                           header.bits == 8 ? torch::kUInt8 : torch::kInt16);
  }

  // False if libtiff reported an error.
  bool read() {
    const int planes = header_.planar == PLANARCONFIG_SEPARATE ? header_.samples : 1;
    for (int plane = 0; plane < planes; ++plane) {
      if (!(header_.tile ? read_tiles(*header_.tile, plane) : read_rows(plane))) return false;
    }
    return true;
  }

  const torch::Tensor& pixels() const { return pixels_; }

 private:
  struct Span {
    const std::uint8_t* from;
    std::int64_t row;
    std::int64_t column;
    std::int64_t count;  // pixels
    int plane;
  };

  bool separate() const { return header_.planar == PLANARCONFIG_SEPARATE; }
  std::int64_t samples_together() const { return separate() ? 1 : header_.samples; }

  void put(const Span& span) {
    const std::int64_t pixel_bytes = header_.samples * value_bytes_;
    auto* to = static_cast<std::uint8_t*>(pixels_.data_ptr()) +
               (span.row * header_.size.width + span.column) * pixel_bytes;
    if (!separate()) {
      std::memcpy(to, span.from, static_cast<std::size_t>(span.count * pixel_bytes));
      return;
    }
    to += span.plane * value_bytes_;
    for (std::int64_t i = 0; i < span.count; ++i) {
      std::memcpy(to + i * pixel_bytes, span.from + i * value_bytes_,
                  static_cast<std::size_t>(value_bytes_));
    }
  }

  bool read_rows(int plane) {
    const std::int64_t row_bytes = header_.size.width * samples_together() * value_bytes_;
    if (TIFFScanlineSize64(tiff_) != static_cast<std::uint64_t>(row_bytes)) return false;
    const auto row =
        std::make_unique_for_overwrite<std::uint8_t[]>(static_cast<std::size_t>(row_bytes));
    for (std::int64_t y = 0; y < header_.size.height; ++y) {
      if (TIFFReadScanline(tiff_, row.get(), static_cast<std::uint32_t>(y),
                           static_cast<std::uint16_t>(plane)) != 1) {
        return false;
      }
      put({.from = row.get(), .row = y, .column = 0, .count = header_.size.width, .plane = plane});
    }
    return true;
  }

  bool read_tiles(const ImageSize& size, int plane) {
    const auto [height, width] = size;
    const std::int64_t row_bytes = width * samples_together() * value_bytes_;
    if (TIFFTileSize64(tiff_) != static_cast<std::uint64_t>(row_bytes * height)) return false;
    const auto tile = std::make_unique_for_overwrite<std::uint8_t[]>(
        static_cast<std::size_t>(row_bytes * height));
    for (std::int64_t top = 0; top < header_.size.height; top += height) {
      for (std::int64_t left = 0; left < header_.size.width; left += width) {
        if (TIFFReadTile(tiff_, tile.get(), static_cast<std::uint32_t>(left),
                         static_cast<std::uint32_t>(top), 0,
                         static_cast<std::uint16_t>(plane)) < 0) {
          return false;
        }
        const std::int64_t rows = std::min(height, header_.size.height - top);
        for (std::int64_t y = 0; y < rows; ++y) {
          put({.from = tile.get() + y * row_bytes,
               .row = top + y,
               .column = left,
               .count = std::min(width, header_.size.width - left),
               .plane = plane});
        }
      }
    }
    return true;
  }

  TIFF* tiff_;
  const TiffHeader& header_;
  std::int64_t value_bytes_;
  torch::Tensor pixels_;
};

torch::Tensor read_plain(TIFF* tiff, const TiffHeader& header, const DecodeOptions& options,
                         const TiffState& state) {
  PlainTiff reader(tiff, header);
  if (!reader.read()) fail_tiff(state);
  torch::Tensor pixels = reader.pixels();
  if (header.bits == 16) {
    pixels = from_16_bits(pixels);
    if (!options.floats) pixels = pixels.div(256, "floor").to(torch::kUInt8);
  }
  if (header.photometric != PHOTOMETRIC_MINISWHITE) return pixels;
  const std::int64_t white = pixels.scalar_type() == torch::kUInt8 ? 0xff : 0xffff;
  torch::Tensor inverted = pixels.clone();
  inverted.select(2, 0).neg_().add_(white);
  return inverted;
}

// Palettes, fewer than 8 bits, CMYK and YCbCr.
torch::Tensor read_converted(TIFF* tiff, const TiffHeader& header, const TiffState& state) {
  torch::Tensor rgba = torch::empty({header.size.height, header.size.width, 4}, torch::kUInt8);
  // An image that is asked for in its own orientation is not turned.
  if (TIFFReadRGBAImageOriented(tiff, static_cast<std::uint32_t>(header.size.width),
                                static_cast<std::uint32_t>(header.size.height),
                                reinterpret_cast<std::uint32_t*>(rgba.data_ptr<std::uint8_t>()),
                                header.orientation, /*stop_on_error=*/1) != 1) {
    fail_tiff(state);
  }
  const bool grey =
      header.photometric == PHOTOMETRIC_MINISBLACK || header.photometric == PHOTOMETRIC_MINISWHITE;
  return rgba.narrow(2, 0, grey ? 1 : 3).contiguous();
}

}  // namespace

Raster decode_tiff(ImageBytes bytes, const DecodeOptions& options) {
  TiffState state{.bytes = bytes};
  const TiffPtr tiff = open_tiff(state, options);
  const TiffHeader header = tiff_header(tiff.get());
  check_size(header.size, options);
  if (header.tile) check_tile(*header.tile, header.size);
  if (const std::int64_t factor = packing_factor(header.compression)) {
    const std::int64_t bits = header.size.height * header.size.width *
                              std::min<std::int64_t>(header.samples, 4) * header.bits;
    check_packed_size(
        {.values = bits / 8, .bytes = static_cast<std::int64_t>(bytes.size()), .factor = factor});
  }
  torch::Tensor pixels = is_plain(header) ? read_plain(tiff.get(), header, options, state)
                                          : read_converted(tiff.get(), header, state);
  // libtiff reports some damage and returns what it could read.
  if (state.message[0] != '\0') fail_tiff(state);
  return {.pixels = std::move(pixels), .orientation = header.orientation};
}

}  // namespace lockstep::data
