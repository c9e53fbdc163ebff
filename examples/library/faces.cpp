// faces WEIGHTS MODEL: embeds pictures of noise, each twice, and tells which are of the same face.
#include <millrace/millrace.h>

#include <cstdio>
#include <random>

using namespace millrace;

int main(int count, char** arguments) {
  if (count != 3) return std::fputs("usage: faces WEIGHTS MODEL\n", stderr), 2;
  constexpr int64_t kFaces = 3, kSize = 112, kPixels = kSize * kSize * 3;
  std::mt19937 random(1);
  std::vector<uint8_t> pixels;
  for (int64_t face = 0; face < kFaces; ++face) {
    for (int64_t i = 0; i < kPixels; ++i) pixels.push_back(static_cast<uint8_t>(random() % 256));
  }
  pixels.insert(pixels.end(), pixels.begin(), pixels.begin() + kFaces * kPixels);
  api::Model net(arguments[2], {.weights = arguments[1]});
  const api::Rows rows = net.embed(
      {.pixels = pixels, .count = 2 * kFaces, .height = kSize, .width = kSize, .channels = 3});
  for (int64_t a = 0; a < kFaces; ++a) {
    for (int64_t b = kFaces; b < 2 * kFaces; ++b) {
      double cosine = 0;
      for (int64_t i = 0; i < rows.width; ++i) {
        cosine += rows.values[size_t(a * rows.width + i)] * rows.values[size_t(b * rows.width + i)];
      }
      std::printf("%ld %ld: %.3f%s\n", long(a), long(b - kFaces), cosine,
                  cosine > 0.999 ? " same" : "");
    }
  }
}
