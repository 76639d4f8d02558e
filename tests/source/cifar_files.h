// Makes the files of CIFAR for the tests.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

// A dictionary of labels and images, as the files of CIFAR have it: Python 2, protocol 2.
inline std::string cifar_pickle(const std::string& key, const std::vector<std::uint8_t>& labels,
                                const std::string& pixels) {
  using namespace std::string_literals;  // they keep zero bytes
  const auto text = [](const std::string& content) {
    return std::string("U") + static_cast<char>(content.size()) + content;
  };
  const auto little_endian = [](std::uint64_t number, int bytes) {
    std::string raw;
    for (int i = 0; i < bytes; ++i) raw += static_cast<char>(number >> (8 * i) & 0xff);
    return raw;
  };
  std::string pickle = "\x80\x02}q\x01("s + text("batch_label") + "q\x02" + text("some images") +
                       "q\x03" + text(key) + "q\x04]q\x05(";
  for (const std::uint8_t label : labels) pickle += std::string("K") + static_cast<char>(label);
  pickle += "e" + text("data") + "q\x06";
  pickle += "cnumpy.core.multiarray\n_reconstruct\nq\x07"s;
  pickle += "cnumpy\nndarray\nq\x08"s;
  pickle += "K\0\x85U\x01"s;
  pickle += "b\x87Rq\x09(K\x01"s;
  pickle += "M" + little_endian(labels.size(), 2) + "M" + little_endian(3072, 2) + "\x86";
  pickle += "cnumpy\ndtype\nq\x0aU\x02u1K\0K\x01\x87Rq\x0b(K\x03U\x01|NNN"s;
  pickle += "J\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89"s;
  pickle += "T" + little_endian(pixels.size(), 4) + pixels + "tb";
  pickle += text("filenames") + "q\x0c]q\x0d(" + text("a.png") + text("b.png") + "eu.";
  return pickle;
}

// A header of a file in a tar archive. `size` may be wrong on purpose.
inline std::string tar_header(const std::string& name, std::uint64_t size, char type = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 7, "0000644");
  header.replace(124, 11, fmt::format("{:011o}", size));
  header.replace(148, 8, 8, ' ');
  header[156] = type;
  header.replace(257, 6, std::string("ustar\0", 6));
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  header.replace(148, 7, fmt::format("{:06o}", sum) + std::string(1, '\0'));
  return header;
}

inline std::string tar_archive(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string archive;
  for (const auto& [name, bytes] : files) {
    archive += tar_header(name, bytes.size()) + bytes;
    archive.resize((archive.size() + 511) / 512 * 512);
  }
  return archive + std::string(1024, '\0');
}
