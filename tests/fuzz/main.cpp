// Gives damaged inputs to every reader of data that may come from outside: checkpoints, pickles,
// configs, overrides, IDX files, images, arrays of NumPy, safetensors, vocabularies, CSV tables,
// archives and frames of the network. A reader must return or throw lockstep::Error; any other
// exception, a crash or a hang is a finding.
//
// usage: FUZZ_SECONDS=60 fuzz [SEED [READER]]
//
// The time is divided among all readers. The current input is always in the file fuzz-input in the
// current folder, so it is there after a crash.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/unpickler.h"
#include "lockstep/config/override.h"
#include "lockstep/config/yaml.h"
#include "lockstep/image/decode.h"
#include "lockstep/image/encode.h"
#include "lockstep/image/image_list.h"
#include "lockstep/log/csv_table.h"
#include "lockstep/plot/image.h"
#include "lockstep/rendezvous/frame.h"
#include "lockstep/source/array_pickle.h"
#include "lockstep/source/csv.h"
#include "lockstep/source/idx.h"
#include "lockstep/source/npy.h"
#include "lockstep/source/npy_reader.h"
#include "lockstep/source/safetensors.h"
#include "lockstep/source/table_schema.h"
#include "lockstep/source/tar.h"
#include "lockstep/source/text_dataset.h"
#include "tests/checkpoint/zip.h"
#include "tests/source/cifar_files.h"
#include "tests/source/safetensors_files.h"
#include "tests/source/zip_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInput = "fuzz-input";
constexpr unsigned kLongest = 10;         // seconds for one input
constexpr rlim_t kMostMemory = 8L << 30;  // bytes of address space, without sanitizers

struct Reader {
  std::string name;
  std::vector<std::string> seeds;  // valid inputs
  std::function<void(const std::string& input)> read;
};

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string checkpoint_file() {
  const fs::path path = "fuzz-seed.pth";
  const StateDict model = {{"weight", torch::arange(24, torch::kFloat32).reshape({2, 3, 4})},
                           {"count", torch::tensor(7)}};
  checkpoint::save(path, {{"model", model},
                          {"epoch", std::int64_t{3}},
                          {"loss", 0.25},
                          {"name", std::string("fuzz")},
                          {"list", StateList{true, std::int64_t{1}}}});
  std::string bytes = content_of(path);
  fs::remove(path);
  return bytes;
}

// The archive's entries are not compressed, so its pickle is a part of the file.
std::string pickle_in(const std::string& archive) {
  const auto begin = archive.find("\x80\x02");
  return archive.substr(begin, archive.find("PK", begin) - begin);
}

torch::Tensor storage(const std::string&, torch::ScalarType type, std::int64_t size) {
  if (size < 0 || size > 4096) throw CheckpointError("a storage of {} numbers", size);
  return torch::zeros({size}, type);
}

std::string idx_file() {
  std::string bytes("\0\0\x08\x03\0\0\0\x02\0\0\0\x03\0\0\0\x04", 16);
  for (char value = 0; value < 24; ++value) bytes += value;
  return bytes;
}

std::string npy_file() {
  return data::npy_header(torch::kFloat32, {3, 4}) + std::string(48, '\x3f');
}

void read_npz(const std::string&) {
  const data::NpzFile file(kInput);
  for (const std::string& name : file.names()) file.read(name);
}

void read_safetensors(const std::string&) {
  const data::SafetensorsFile file(kInput);
  for (const std::string& name : file.names()) file.read(name);
}

// The input is both the vocabulary and the text.
void read_text(const std::string&) {
  data::text_dataset({.path = kInput, .vocabulary = kInput, .window = 2})->sample(0);
}

std::string table_schema() {
  const fs::path path = "fuzz-schema.json";
  data::write_table_schema({.features = {{.name = "age", .mean = 0.5, .std = 2},
                                         {.name = "city",
                                          .type = data::ColumnType::kCategory,
                                          .categories = {"Bonn", "Oslo"},
                                          .most_frequent = "Oslo"}}},
                           path);
  std::string bytes = content_of(path);
  fs::remove(path);
  return bytes;
}

void read_frames(const std::string& input) {
  rendezvous::FrameReader reader;
  // In two pieces, as a network may cut it.
  for (const std::string_view piece : {std::string_view(input).substr(0, input.size() / 2),
                                       std::string_view(input).substr(input.size() / 2)}) {
    reader.append(piece);
    while (const auto frame = reader.next(rendezvous::kLargestHello)) {
      rendezvous::FieldReader fields(frame->payload);
      fields.integer();
      fields.text();
    }
  }
}

std::string frame() {
  return rendezvous::encode_frame(
      rendezvous::FrameKind::kSet,
      rendezvous::FieldWriter().integer(1).text("a key").text("a value").payload());
}

// Files of WebP and TIFF are small enough to be written here.
std::vector<std::string> image_files() {
  const torch::Tensor pixels = torch::arange(24 * 20 * 3).remainder(251).to(torch::kUInt8);
  const torch::Tensor image = pixels.view({24, 20, 3});
  const Image drawing = make_image({.width = 9, .height = 7}, {.red = 1, .green = 2, .blue = 3});
  const auto bytes = [](std::initializer_list<int> values) {
    std::string text;
    for (const int value : values) text += static_cast<char>(value);
    return text;
  };
  // Grey, 2 x 2 pixels, not packed: the header, four pixels, then the directory.
  const std::string tiff =
      bytes({'I', 'I', 42, 0, 12, 0, 0, 0, 10, 20, 30, 40, 8, 0}) +
      bytes({0x00, 1, 3, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0x01, 1, 3, 0, 1, 0, 0, 0, 2, 0, 0, 0}) +
      bytes({0x02, 1, 3, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0x03, 1, 3, 0, 1, 0, 0, 0, 1, 0, 0, 0}) +
      bytes({0x06, 1, 3, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0x11, 1, 4, 0, 1, 0, 0, 0, 8, 0, 0, 0}) +
      bytes({0x16, 1, 3, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0x17, 1, 4, 0, 1, 0, 0, 0, 4, 0, 0, 0}) +
      bytes({0, 0, 0, 0});
  // The same with one tile of 16 x 16 pixels.
  const std::string tiled =
      bytes({'I', 'I', 42, 0, 8, 1, 0, 0}) + std::string(256, '\x40') + bytes({9, 0}) +
      bytes({0x00, 1, 3, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0x01, 1, 3, 0, 1, 0, 0, 0, 2, 0, 0, 0}) +
      bytes({0x02, 1, 3, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0x03, 1, 3, 0, 1, 0, 0, 0, 1, 0, 0, 0}) +
      bytes({0x06, 1, 3, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0x42, 1, 3, 0, 1, 0, 0, 0, 16, 0, 0, 0}) +
      bytes({0x43, 1, 3, 0, 1, 0, 0, 0, 16, 0, 0, 0, 0x44, 1, 4, 0, 1, 0, 0, 0, 8, 0, 0, 0}) +
      bytes({0x45, 1, 4, 0, 1, 0, 0, 0, 0, 1, 0, 0}) + bytes({0, 0, 0, 0});
  // One pixel, without loss.
  const std::string webp =
      "RIFF" + bytes({26, 0, 0, 0}) + "WEBPVP8L" +
      bytes({13, 0, 0, 0, 0x2f, 0, 0, 0, 0x10, 7, 0x10, 0x11, 0x11, 0x88, 0x88, 0xfe, 7, 0});
  return {data::encode_jpeg(image), encode_png(drawing), tiff, tiled, webp};
}

data::ImageBytes bytes_of(const std::string& input) {
  return {reinterpret_cast<const std::uint8_t*>(input.data()), input.size()};
}

// Damage may make an image large, which is slow, but not wrong.
const data::DecodeOptions kSmallImage = {.channels = data::Channels::kStored,
                                         .most_pixels = 1 << 20};

void read_image(const std::string& input) {
  data::decode(bytes_of(input), kSmallImage);
}

// The lower half, at a fourth of its size.
void read_image_part(const std::string& input) {
  data::decode(bytes_of(input), kSmallImage, [](const data::ImageSize& size) {
    const std::int64_t top = size.height / 2;
    return data::Window{.top = static_cast<double>(top),
                        .height = static_cast<double>(size.height - top),
                        .width = static_cast<double>(size.width),
                        .size = {1 + (size.height - top) / 5, 1 + size.width / 5}};
  });
}

std::vector<Reader> readers() {
  const std::string archive = checkpoint_file();
  return {
      {"checkpoint", {archive}, [](const std::string&) { checkpoint::read(kInput); }},
      {"pickle",
       {pickle_in(archive)},
       [](const std::string& input) {
         checkpoint::unpickle(input, {.read_storage = storage, .bytes = input.size()});
       }},
      {"yaml",
       {"a: 1\nb: [1, 2.5, {c: text}]\nbase: &x {lr: 0.1}\nd:\n  <<: *x\n  e: |\n    lines\n",
        "{\"a\": [true, null, \"\\u00e9\"]}"},
       [](const std::string& input) { config::parse_yaml(input, "fuzz"); }},
      {"override",
       {"optimizer/lr=0.01", "a.0.b={c: [1, 2]}"},
       [](const std::string& input) {
         config::Node document = config::parse_yaml("optimizer: {lr: 1}\na: [{b: 1}]\n", "fuzz");
         config::apply_override(document, input);
       }},
      {"idx", {idx_file()}, [](const std::string&) { data::read_idx(kInput); }},
      {"npy", {npy_file()}, [](const std::string&) { data::read_npy(kInput); }},
      {"npz",
       {checkpoint::zip({{.name = "x.npy", .content = npy_file()}}),
        checkpoint::zip({data::deflated_entry("x.npy", npy_file())})},
       read_npz},
      {"safetensors", {data::small_safetensors()}, read_safetensors},
      {"text", {"the\ncat\nsat\n<unk>\n"}, read_text},
      {"csv",
       {"step,accuracy,\"a \"\"b\"\"\"\n1,0.5,2\n2,,3\n"},
       [](const std::string&) { CsvTable(kInput, {.keep_until = 1}); }},
      {"table",
       {"a,\"b \"\"c\"\"\",d\n1,\"x,\ny\",2.5\n2,z,\"3\"\n", "x\ty\r\n1\t\r\n-2e5\tNA\r\n"},
       [](const std::string&) {
         data::csv_dataset({.path = kInput, .missing = data::Missing::kValue, .one_hot = true});
       }},
      {"schema", {table_schema()}, [](const std::string&) { data::read_table_schema(kInput); }},
      {"array pickle",
       {cifar_pickle("labels", {1, 2}, std::string(6144, 'x'))},
       [](const std::string& input) { data::read_array_pickle(input); }},
      {"tar",
       {tar_archive({{"a", "one"}, {"b", std::string(600, 'x')}})},
       [](const std::string&) { data::read_tar(kInput, {.names = {"b"}, .max_bytes = 1 << 20}); }},
      {"image", image_files(), read_image},
      {"image part", image_files(), read_image_part},
      {"image table",
       {"path,label\na.jpg,rose\n\"b, c.jpg\",tulip\n", "a.jpg,0\nb.jpg,1\n"},
       [](const std::string&) { data::list_image_table({.csv = kInput}); }},
      {"frames", {frame() + frame()}, read_frames},
  };
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  std::string damage(std::string bytes) {
    for (std::size_t changes = 1 + below(6); changes > 0; --changes) change(bytes);
    return bytes;
  }

 private:
  void change(std::string& bytes) {
    static constexpr std::string_view kSpecial("\0\x01\x7f\x80\xff{}[]:&*<>!|%@`\"'\n\t ,-", 27);
    const std::size_t at = below(bytes.size());
    const std::size_t size = std::min(below(32) + 1, bytes.size() - at);
    switch (below(7)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = static_cast<char>(below(256));
        break;
      case 2:
        bytes.insert(at, 1, kSpecial[below(kSpecial.size())]);
        break;
      case 3:
        bytes.erase(at, size);
        break;
      case 4:
        bytes.insert(at, bytes.substr(below(bytes.size()), size));
        break;
      case 5:
        bytes.replace(at, size, size, below(2) == 0 ? '\0' : '\xff');
        break;
      default:
        bytes.resize(at);
        break;
    }
  }

  std::mt19937_64 random_;
};

// False if the reader threw anything but lockstep::Error, or if it threw for a valid input.
bool holds(const Reader& reader, const std::string& input, bool is_right = false) {
  std::ofstream(kInput, std::ios::binary).write(input.data(), static_cast<long>(input.size()));
  ::alarm(kLongest);  // its signal ends the program
  try {
    reader.read(input);
  } catch (const Error& error) {
    if (is_right) {
      std::fprintf(stderr, "fuzz: %s: refuses a valid input: %s\n", reader.name.c_str(),
                   error.what());
      return false;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz: %s: not a lockstep::Error: %s\n", reader.name.c_str(),
                 error.what());
    return false;
  }
  ::alarm(0);
  return true;
}

void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlimit limit = {.rlim_cur = kMostMemory, .rlim_max = kMostMemory};
  ::setrlimit(RLIMIT_AS, &limit);
#endif
}

int fuzz(std::chrono::seconds time, std::uint64_t seed, const std::string& wanted) {
  limit_memory();
  Mutator mutator(seed);
  std::vector<Reader> all = readers();
  if (!wanted.empty()) std::erase_if(all, [&](const Reader& r) { return r.name != wanted; });
  if (all.empty()) {
    std::fprintf(stderr, "fuzz: there is no reader '%s'\n", wanted.c_str());
    return 2;
  }
  for (const Reader& reader : all) {
    // Valid inputs must be accepted. Otherwise damaged ones would fail in the first check, and no
    // other code would be tested.
    for (const std::string& right : reader.seeds) {
      if (!holds(reader, right, true)) return 1;
    }
    const auto end = std::chrono::steady_clock::now() + time / all.size();
    long inputs = 0;
    for (; std::chrono::steady_clock::now() < end; ++inputs) {
      if (!holds(reader, mutator.damage(reader.seeds[mutator.below(reader.seeds.size())]))) {
        std::fprintf(stderr, "fuzz: the input is in %s; seed %ju\n", kInput, std::uintmax_t{seed});
        return 1;
      }
    }
    std::printf("fuzz: %s: %ld inputs in order\n", reader.name.c_str(), inputs);
    std::fflush(stdout);
  }
  fs::remove(kInput);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const char* const seconds = std::getenv("FUZZ_SECONDS");
  const std::uint64_t seed = argc > 1 ? std::stoull(argv[1]) : std::random_device()();
  return lockstep::fuzz(std::chrono::seconds(seconds ? std::atol(seconds) : 60), seed,
                        argc > 2 ? argv[2] : "");
}
