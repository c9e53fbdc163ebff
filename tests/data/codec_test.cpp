#include "data/image/codec.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "base/random.h"
#include "data/image/png.h"
#include "images.h"
#include "support.h"

namespace millrace::data {
namespace {

using ::testing::HasSubstr;

double mean_difference(const ImageView& a, const ImageView& b, int left, int top) {
  double sum = 0;
  for (int y = 0; y < b.height; ++y) {
    for (int x = 0; x < b.width * b.channels; ++x) {
      sum += std::abs(a.row(y + top)[x + left * a.channels] - b.row(y)[x]);
    }
  }
  return sum / (b.height * b.width * b.channels);
}

TEST(Jpeg, RoundTripIsClose) {
  for (const int channels : {1, 3}) {
    const Image image = smooth_image(75, 101, channels);
    const Image decoded = decode_image(sample_of(encode_jpeg(image.view(), 95), 0));
    ASSERT_EQ(decoded.height, 75);
    ASSERT_EQ(decoded.width, 101);
    ASSERT_EQ(decoded.channels, channels);
    EXPECT_LT(mean_difference(image.view(), decoded.view(), 0, 0), 2.0);
  }
}

TEST(Jpeg, DecodesOnlyTheRegionUnlessExactAndTheSamePixels) {
  const Image image = smooth_image(375, 500, 3);
  const auto encoded = encode_jpeg(image.view(), 95);
  const Image whole = decode_image(sample_of(encoded, 0));
  const std::vector<PixelRegion> regions = {
      {0, 0, 500, 375}, {200, 100, 224, 224}, {499, 374, 1, 1}, {17, 333, 300, 42}, {0, 371, 9, 4}};
  for (const PixelRegion& region : regions) {
    for (const bool exact : {true, false}) {
      std::vector<uint8_t> storage;
      JpegReader reader(encoded);
      const DecodedPart part = reader.decode(region, 224, 224, 3, exact, storage);
      EXPECT_EQ(part.scale, 1);
      EXPECT_LE(part.left, region.left);
      EXPECT_LE(part.top, region.top);
      EXPECT_GE(part.left + part.view.width, region.left + region.width);
      EXPECT_GE(part.top + part.view.height, region.top + region.height);
      const double off = mean_difference(whole.view(), part.view, static_cast<int>(part.left),
                                         static_cast<int>(part.top));
      if (exact) {
        EXPECT_EQ(part.view.width, 500);
        EXPECT_EQ(off, 0);
      } else {
        EXPECT_LT(part.view.width, region.width + 48);
        EXPECT_LT(off, 2.0);
      }
    }
  }
}

TEST(Jpeg, UsesTheSmallestScaleThatServes) {
  const Image image = smooth_image(800, 1200, 3);
  const auto encoded = encode_jpeg(image.view(), 90);
  const PixelRegion region = {100, 200, 800, 500};
  for (const auto& [target, scale] : {std::pair(50, 0.125), {100, 0.25}, {250, 0.5}, {251, 1.0}}) {
    std::vector<uint8_t> storage;
    JpegReader reader(encoded);
    const DecodedPart part = reader.decode(region, target, target, 3, false, storage);
    EXPECT_EQ(part.scale, scale);
    const int step = static_cast<int>(1 / scale);
    double sum = 0;
    for (int y = 0; y < part.view.height; ++y) {
      for (int x = 0; x < part.view.width; ++x) {
        const int full_x = (static_cast<int>(part.left) + x) * step + step / 2;
        const int full_y = (static_cast<int>(part.top) + y) * step + step / 2;
        sum += std::abs(part.view.row(y)[3 * x] - image.view().row(full_y)[3 * full_x]);
      }
    }
    EXPECT_LT(sum / (part.view.height * part.view.width), 3.0) << scale;
  }
}

TEST(Jpeg, DamageIsReportedNeverACrash) {
  const Image image = smooth_image(64, 64, 3);
  const auto good = encode_jpeg(image.view(), 90);
  auto cut = good;
  cut.resize(good.size() / 2);
  EXPECT_THAT(input_error_of([&] { decode_image(sample_of(cut, 0)); }), HasSubstr("JPEG"));
  EXPECT_THAT(input_error_of([&] { decode_image(sample_of(std::vector<std::byte>(9), 0)); }),
              HasSubstr("neither"));
  EXPECT_THAT(input_error_of([&] { decode_image(sample_of(std::vector<std::byte>(), 0)); }),
              HasSubstr("empty"));
  auto huge = good;
  for (size_t i = 0; i + 9 < huge.size(); ++i) {
    if (huge[i] != std::byte{0xFF} || huge[i + 1] != std::byte{0xC0}) continue;
    for (size_t k = 5; k < 9; ++k) huge[i + k] = std::byte{0xF0};
    break;
  }
  EXPECT_THAT(input_error_of([&] { decode_image(sample_of(huge, 0)); }),
              HasSubstr("61680 × 61680 pixels, more than the 134 million"));
  const Random random(1, 1);
  for (uint64_t i = 0; i < 2000; ++i) {
    auto bytes = good;
    for (uint64_t k = 0; k < 3; ++k) {
      bytes[random.below(6 * i + 2 * k, bytes.size())] =
          static_cast<std::byte>(random.below(6 * i + 2 * k + 1, 256));
    }
    input_error_of([&] { decode_image(sample_of(bytes, 0)); });
  }
}

TEST(Png, RoundTripIsExactAndDamageIsReported) {
  for (const int channels : {1, 3}) {
    const Image image = smooth_image(31, 17, channels);
    auto encoded = encode_png(image.view());
    const Image decoded = decode_image(sample_of(encoded, 0));
    EXPECT_EQ(decoded.pixels, image.pixels);
    EXPECT_EQ(decoded.channels, channels);
    auto flipped = encoded;
    flipped[flipped.size() / 2] ^= std::byte{1};
    EXPECT_THAT(input_error_of([&] { decode_image(sample_of(flipped, 0)); }), HasSubstr("PNG"));
    encoded.resize(encoded.size() / 2);
    EXPECT_THAT(input_error_of([&] { decode_image(sample_of(encoded, 0)); }), HasSubstr("PNG"));
  }
}

class PythonPng : public DirectoryTest {};

TEST_F(PythonPng, PythonReadsOursAndWeReadItsTransparentOne) {
  const Image image = smooth_image(3, 2, 3);
  const auto encoded = encode_png(image.view());
  write_text(directory_ / "ours.png",
             {reinterpret_cast<const char*>(encoded.data()), encoded.size()});
  std::string expected;
  for (const uint8_t value : image.pixels) expected += fmt::format("{} ", value);
  EXPECT_EQ(python(R"(
import struct, zlib
b = open('ours.png', 'rb').read()[8:]
data = b''
while b:
    n, kind = struct.unpack('>I4s', b[:8])
    assert zlib.crc32(b[4:8 + n]) == struct.unpack('>I', b[8 + n:12 + n])[0]
    if kind == b'IHDR': w, h, depth, colour = struct.unpack('>IIBB', b[8:18])
    if kind == b'IDAT': data += b[8:8 + n]
    b = b[12 + n:]
data = zlib.decompress(data)
stride, rows, last = 3 * w, [], bytes(3 * w)
for y in range(h):
    kind, row = data[y * (stride + 1)], bytearray(data[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
    for i in range(stride):
        a = row[i - 3] if i > 2 else 0; u = last[i]; c = last[i - 3] if i > 2 else 0
        p = a + u - c
        paeth = min((abs(p - a), 0, a), (abs(p - u), 1, u), (abs(p - c), 2, c))[2]
        row[i] = row[i] + [0, a, u, (a + u) // 2, paeth][kind] & 255
    last = row; rows += row
print(*rows, end=' ')
def chunk(kind, body): return struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
open('theirs.png', 'wb').write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 2, 1, 8, 6, 0, 0, 0))
    + chunk(b'IDAT', zlib.compress(bytes([0, 10, 20, 30, 255, 40, 50, 60, 128]))) + chunk(b'IEND', b''))
)"),
            expected);
  const std::string theirs = read_text(directory_ / "theirs.png");
  const auto bytes = std::as_bytes(std::span(theirs));
  const Image decoded = decode_image(sample_of(std::vector(bytes.begin(), bytes.end()), 0));
  EXPECT_EQ(decoded.pixels, (std::vector<uint8_t>{10, 20, 30, 40, 50, 60}));
}

}  // namespace
}  // namespace millrace::data
