// CRC-32C (Castagnoli), the checksum of TensorBoard's record files.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

std::uint32_t crc32c(std::string_view bytes);

// The checksum as record files store it, so that checksums of checksummed data stay strong.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lockstep
