// Writes image files of every kind that is read, with the libraries that read them.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <jpeglib.h>
#include <png.h>
#include <tiffio.h>
#include <torch/types.h>
#include <webp/encode.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/image/decode.h"
#include "tests/support/damage.h"

namespace lockstep::data::testing {

inline ImageBytes bytes_of(const std::string& file) {
  return {reinterpret_cast<const std::uint8_t*>(file.data()), file.size()};
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
}

// Smooth, and another colour at every place, so that a wrong turn is noticed.
inline torch::Tensor gradient(std::int64_t height, std::int64_t width) {
  const torch::Tensor y = torch::linspace(0, 1, height).view({height, 1}).expand({height, width});
  const torch::Tensor x = torch::linspace(0, 1, width).view({1, width}).expand({height, width});
  return torch::stack({20 + 200 * y, 30 + 180 * x, 60 + 90 * (x + y)}, 2)
      .to(torch::kUInt8)
      .contiguous();
}

// Waves of several lengths, as a photo has them.
inline torch::Tensor waves(std::int64_t height, std::int64_t width) {
  const torch::Tensor y = torch::arange(height, torch::kFloat32).view({height, 1});
  const torch::Tensor x = torch::arange(width, torch::kFloat32).view({1, width});
  const auto wave = [&](double a, double b, double phase) {
    return torch::sin(a * y + b * x + phase);
  };
  const torch::Tensor shape = 50 * wave(0.05, 0.02, 0) + 30 * wave(0.03, -0.11, 1) +
                              15 * wave(0.25, 0.2, 2) + 8 * wave(-0.7, 0.5, 3);
  return torch::stack({shape + 128, 0.7 * shape + 20 * wave(0.02, 0.04, 1) + 120, 128 - shape}, 2)
      .clamp(0, 255)
      .to(torch::kUInt8)
      .contiguous();
}

// EXIF data with an orientation alone.
inline std::string exif(int orientation, bool little = true) {
  const auto number = [little](unsigned value, int size) {
    std::string bytes;
    for (int i = 0; i < size; ++i) {
      bytes += static_cast<char>(value >> (8 * (little ? i : size - 1 - i)));
    }
    return bytes;
  };
  return (little ? "II" : "MM") + number(42, 2) + number(8, 4) + number(1, 2) + number(0x112, 2) +
         number(3, 2) + number(1, 4) + number(static_cast<unsigned>(orientation), 2) +
         number(0, 2) + number(0, 4);
}

struct PngFile {
  int color = PNG_COLOR_TYPE_RGB;
  int bits = 8;
  bool interlaced = false;
  std::vector<png_color> palette = {};
  std::string transparency = {};  // alpha of the palette's colours
  std::string exif = {};
};

// `rows` has the rows one after the other, as libpng wants them.
inline std::string png_file(std::int64_t height, std::int64_t width, std::string rows,
                            PngFile file = {}) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  std::string bytes;
  png_set_write_fn(
      png, &bytes,
      [](png_structp writer, png_bytep data, std::size_t size) {
        static_cast<std::string*>(png_get_io_ptr(writer))
            ->append(reinterpret_cast<const char*>(data), size);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height),
               file.bits, file.color, file.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!file.palette.empty()) {
    png_set_PLTE(png, info, file.palette.data(), static_cast<int>(file.palette.size()));
  }
  if (!file.transparency.empty()) {
    png_set_tRNS(png, info, reinterpret_cast<png_bytep>(file.transparency.data()),
                 static_cast<int>(file.transparency.size()), nullptr);
  }
  if (!file.exif.empty()) {
    png_set_eXIf_1(png, info, static_cast<png_uint_32>(file.exif.size()),
                   reinterpret_cast<png_bytep>(file.exif.data()));
  }
  png_write_info(png, info);
  std::vector<png_bytep> pointers;
  const std::size_t row_bytes = rows.size() / static_cast<std::size_t>(height);
  for (std::int64_t y = 0; y < height; ++y) {
    pointers.push_back(reinterpret_cast<png_bytep>(rows.data()) +
                       static_cast<std::size_t>(y) * row_bytes);
  }
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

// Bytes [H, W, C] of 1 to 4 channels.
inline std::string png_file(const torch::Tensor& image, PngFile file = {}) {
  constexpr int kColors[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                             PNG_COLOR_TYPE_RGB_ALPHA};
  const torch::Tensor packed = image.contiguous();
  file.color = kColors[packed.size(2) - 1];
  return png_file(packed.size(0), packed.size(1),
                  {static_cast<const char*>(packed.data_ptr()), packed.nbytes()}, std::move(file));
}

struct JpegFile {
  int quality = 90;
  J_COLOR_SPACE colors = JCS_RGB;  // of the image; one component: grey
  bool progressive = false;
  bool scan_per_component = false;
  int orientation = 0;  // 0: no EXIF data
};

// Bytes [H, W, C].
inline std::string jpeg_file(const torch::Tensor& image, const JpegFile& file = {}) {
  const torch::Tensor packed = image.contiguous();
  jpeg_compress_struct info = {};
  jpeg_error_mgr errors = {};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_height = static_cast<JDIMENSION>(packed.size(0));
  info.image_width = static_cast<JDIMENSION>(packed.size(1));
  info.input_components = static_cast<int>(packed.size(2));
  info.in_color_space = packed.size(2) == 1 ? JCS_GRAYSCALE : file.colors;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, file.quality, TRUE);
  if (file.progressive) jpeg_simple_progression(&info);
  std::vector<jpeg_scan_info> scans;
  if (file.scan_per_component) {
    for (int component = 0; component < info.num_components; ++component) {
      scans.push_back({.comps_in_scan = 1, .component_index = {component}, .Se = DCTSIZE2 - 1});
    }
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(scans.size());
  }
  jpeg_start_compress(&info, TRUE);
  if (file.orientation != 0) {
    const std::string marker = std::string("Exif\0\0", 6) + exif(file.orientation);
    jpeg_write_marker(&info, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(marker.data()),
                      static_cast<unsigned>(marker.size()));
  }
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = packed.data_ptr<std::uint8_t>() +
                   info.next_scanline * info.image_width * static_cast<unsigned>(packed.size(2));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string bytes(reinterpret_cast<const char*>(memory), size);
  std::free(memory);
  return bytes;
}

// Bytes [H, W, 3] or [H, W, 4]. WebP forgets colours that are transparent, so alpha must not be 0.
inline std::string webp_file(const torch::Tensor& image, bool lossless = true) {
  const torch::Tensor packed = image.contiguous();
  const auto* const pixels = packed.data_ptr<std::uint8_t>();
  const int height = static_cast<int>(packed.size(0)), width = static_cast<int>(packed.size(1));
  const bool alpha = packed.size(2) == 4;
  std::uint8_t* memory = nullptr;
  std::size_t size = 0;
  if (lossless) {
    size = (alpha ? WebPEncodeLosslessRGBA : WebPEncodeLosslessRGB)(
        pixels, width, height, width * static_cast<int>(packed.size(2)), &memory);
  } else {
    size = (alpha ? WebPEncodeRGBA : WebPEncodeRGB)(
        pixels, width, height, width * static_cast<int>(packed.size(2)), 90, &memory);
  }
  std::string bytes(reinterpret_cast<const char*>(memory), size);
  WebPFree(memory);
  return bytes;
}

// Adds EXIF data to a file that has nothing but an image.
inline std::string webp_with_exif(const std::string& file, const std::string& exif_data,
                                  ImageSize size) {
  const auto number = [](std::size_t value, int count) {
    std::string bytes;
    for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
    return bytes;
  };
  constexpr std::size_t kExifFlag = 8;
  const std::string extended = "VP8X" + number(10, 4) + number(kExifFlag, 4) +
                               number(static_cast<std::size_t>(size.width - 1), 3) +
                               number(static_cast<std::size_t>(size.height - 1), 3);
  const std::string chunk =
      "EXIF" + number(exif_data.size(), 4) + exif_data + std::string(exif_data.size() % 2, '\0');
  const std::string content = "WEBP" + extended + file.substr(12) + chunk;
  return "RIFF" + number(content.size(), 4) + content;
}

struct TiffFile {
  std::uint16_t bits = 8;
  std::uint16_t photometric = PHOTOMETRIC_RGB;
  std::uint16_t compression = COMPRESSION_LZW;
  std::uint16_t planar = PLANARCONFIG_CONTIG;
  std::uint16_t orientation = ORIENTATION_TOPLEFT;
  std::uint32_t tile = 0;                   // its side; 0: strips
  std::vector<std::uint16_t> palette = {};  // red, green and blue, one after the other
  const char* mode = "w";                   // "wb": big endian
};

// `rows` has the samples of all rows; with separate planes, those of the first plane first.
inline std::string tiff_file(ImageSize size, std::uint16_t samples, const std::string& rows,
                             const TiffFile& file = {}) {
  const TemporaryDirectory folder;
  const std::string path = (folder / "image.tif").string();
  TIFF* const tiff = TIFFOpen(path.c_str(), file.mode);
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, static_cast<std::uint32_t>(size.width));
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, static_cast<std::uint32_t>(size.height));
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, file.bits);
  TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, samples);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, file.photometric);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, file.compression);
  TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, file.planar);
  TIFFSetField(tiff, TIFFTAG_ORIENTATION, file.orientation);
  const bool has_alpha = (file.photometric == PHOTOMETRIC_RGB && samples == 4) ||
                         (file.photometric == PHOTOMETRIC_MINISBLACK && samples == 2);
  if (has_alpha) {
    const std::uint16_t kind = EXTRASAMPLE_UNASSALPHA;
    TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &kind);
  }
  if (!file.palette.empty()) {
    const std::uint16_t* const colors = file.palette.data();
    const std::size_t count = file.palette.size() / 3;
    TIFFSetField(tiff, TIFFTAG_COLORMAP, colors, colors + count, colors + 2 * count);
  }
  std::string data = rows;
  if (file.tile != 0) {
    TIFFSetField(tiff, TIFFTAG_TILEWIDTH, file.tile);
    TIFFSetField(tiff, TIFFTAG_TILELENGTH, file.tile);
    const auto pixel = static_cast<std::size_t>(samples) * file.bits / 8;
    const auto row_bytes = static_cast<std::size_t>(size.width) * pixel;
    std::string tile(static_cast<std::size_t>(TIFFTileSize(tiff)), '\0');
    for (std::uint32_t top = 0; top < size.height; top += file.tile) {
      for (std::uint32_t left = 0; left < size.width; left += file.tile) {
        for (std::uint32_t y = top; y < std::min<std::int64_t>(top + file.tile, size.height); ++y) {
          const auto count = std::min<std::size_t>(file.tile, size.width - left) * pixel;
          tile.replace((y - top) * file.tile * pixel, count, data, y * row_bytes + left * pixel,
                       count);
        }
        TIFFWriteTile(tiff, tile.data(), left, top, 0, 0);
      }
    }
  } else {
    TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, 5U);
    const std::uint16_t planes = file.planar == PLANARCONFIG_SEPARATE ? samples : 1;
    const auto row_bytes = data.size() / planes / static_cast<std::size_t>(size.height);
    for (std::uint16_t plane = 0; plane < planes; ++plane) {
      for (std::uint32_t y = 0; y < size.height; ++y) {
        const std::size_t row = plane * static_cast<std::size_t>(size.height) + y;
        TIFFWriteScanline(tiff, data.data() + row * row_bytes, y, plane);
      }
    }
  }
  TIFFClose(tiff);
  return read_file(path);
}

// Bytes [H, W, C].
inline std::string tiff_file(const torch::Tensor& image, const TiffFile& file = {}) {
  const bool separate = file.planar == PLANARCONFIG_SEPARATE;
  const torch::Tensor packed = (separate ? image.permute({2, 0, 1}) : image).contiguous();
  return tiff_file({.height = image.size(0), .width = image.size(1)},
                   static_cast<std::uint16_t>(image.size(2)),
                   {static_cast<const char*>(packed.data_ptr()), packed.nbytes()}, file);
}

// Replaces the value of a TIFF tag that has one number.
inline std::string with_tiff_tag(std::string file, std::uint32_t tag, std::uint32_t value) {
  const auto number = [](std::uint32_t from, int size) {
    std::string bytes;
    for (int i = 0; i < size; ++i) bytes += static_cast<char>(from >> (8 * i));
    return bytes;
  };
  constexpr std::uint32_t kShort = 3, kLong = 4;
  for (const std::uint32_t type : {kShort, kLong}) {
    const std::size_t at = file.find(number(tag, 2) + number(type, 2) + number(1, 4));
    if (at == std::string::npos) continue;
    return file.replace(at + 2, 10, number(kLong, 2) + number(1, 4) + number(value, 4));
  }
  throw Error("the file has no tag {}", tag);
}

// The stored pixels of an image that is `upright` after it was turned.
inline torch::Tensor turned_back(const torch::Tensor& upright, int orientation) {
  const bool transposed = orientation >= 5;
  const std::int64_t height = upright.size(transposed ? 1 : 0);
  const std::int64_t width = upright.size(transposed ? 0 : 1);
  torch::Tensor stored = torch::empty({height, width, upright.size(2)}, upright.options());
  for (std::int64_t y = 0; y < upright.size(0); ++y) {
    for (std::int64_t x = 0; x < upright.size(1); ++x) {
      const std::int64_t last_y = height - 1, last_x = width - 1;
      const std::vector<std::vector<std::int64_t>> places = {
          {y, x}, {y, last_x - x}, {last_y - y, last_x - x}, {last_y - y, x},
          {x, y}, {last_y - x, y}, {last_y - x, last_x - y}, {x, last_x - y}};
      const auto& place = places[static_cast<std::size_t>(orientation - 1)];
      stored.select(0, place[0]).select(0, place[1]).copy_(upright.select(0, y).select(0, x));
    }
  }
  return stored;
}

inline double mean_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.to(torch::kFloat64) - b.to(torch::kFloat64)).abs().mean().item<double>();
}

// Reads damaged variants of a file: as a whole, a part of it in its own size, and all of it at a
// quarter of its size. Each must be an image or a DataError. Returns the smallest number of
// DataErrors.
inline int refused_images(const std::string& file,
                          DecodeOptions options = {.channels = Channels::kStored}) {
  options.most_pixels = 1 << 22;  // damage may make an image large, which is slow, but not wrong
  const auto half = [](std::int64_t side) { return std::max<std::int64_t>(1, side / 2); };
  const WindowRequest part = [&](const ImageSize& size) {
    return Window{.top = static_cast<double>(size.height / 4),
                  .left = static_cast<double>(size.width / 4),
                  .height = static_cast<double>(half(size.height)),
                  .width = static_cast<double>(half(size.width)),
                  .size = {half(size.height), half(size.width)}};
  };
  const WindowRequest quarter = [&](const ImageSize& size) {
    return Window{.height = static_cast<double>(size.height),
                  .width = static_cast<double>(size.width),
                  .size = {half(half(size.height)), half(half(size.width))}};
  };
  const auto refused = [&](const WindowRequest& window) {
    return refused_if_damaged<DataError>(file, [&](const std::string& bytes) {
      window ? decode(bytes_of(bytes), options, window) : decode(bytes_of(bytes), options);
    });
  };
  return std::min({refused({}), refused(part), refused(quarter)});
}

// How many damaged files are cut short, which no format may accept, with some tolerance: the last
// bytes of a file may not be needed.
inline int cut_files() {
  return damaged_files() / 8;
}

}  // namespace lockstep::data::testing
