#include "data/synth_faces.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/directory.h"
#include "base/output_file.h"
#include "base/random.h"
#include "data/image/jpeg.h"

namespace millrace::data {
namespace {

constexpr uint64_t kIdentityStream = 0x66616365;
constexpr uint64_t kViewStream = 0x76696577;
constexpr uint64_t kPairStream = 0x70616972;
constexpr int kTexture = 128;
constexpr int kWaves = 14;
constexpr int kGround = 7;  // points of the background's grid in each direction

// Draws from a stream one after the other.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream) : random_(seed, stream) {}

  float normal() { return random_.normal(next_++); }
  float between(float low, float high) { return low + (high - low) * random_.uniform(next_++); }

 private:
  Random random_;
  uint64_t next_ = 0;
};

float smooth_step(float x) {
  const float t = std::clamp(x, 0.0f, 1.0f);
  return t * t * (3 - 2 * t);
}

// 1 inside the oval, 0 outside, with a soft edge; x and y from -1 to 1.
float inside_oval(float x, float y) {
  return smooth_step((1 - std::sqrt(x * x / 0.62f + y * y / 0.9f)) / 0.15f);
}

// What changes from view to view.
struct Pose {
  float cosine, sine, scale, shift_x, shift_y;
  float light, light_x, light_y, contrast, grain;
  std::array<float, 3> tint;
  std::array<float, size_t{kGround} * kGround * 3> ground;
};

Pose draw_pose(Draws& draws) {
  Pose pose = {};
  const float angle = draws.between(-0.3f, 0.3f);
  pose.cosine = std::cos(angle);
  pose.sine = std::sin(angle);
  pose.scale = draws.between(0.85f, 1.15f);
  pose.shift_x = draws.between(-0.18f, 0.18f);
  pose.shift_y = draws.between(-0.18f, 0.18f);
  pose.light = draws.between(-35, 35);
  pose.light_x = draws.between(-55, 55);
  pose.light_y = draws.between(-55, 55);
  pose.contrast = draws.between(0.6f, 1.2f);
  pose.grain = draws.between(4, 16);
  for (float& value : pose.tint) value = draws.between(-18, 18);
  for (float& value : pose.ground) value = draws.between(30, 225);
  return pose;
}

// Interpolates a grid of side × side points of three values over -1 to 1.
void interpolate(const float* grid, int side, float x, float y, float* values) {
  const auto place = [&](float at) {
    return std::clamp((at + 1) / 2 * static_cast<float>(side - 1), 0.0f,
                      static_cast<float>(side - 1) - 1e-3f);
  };
  const float column = place(x);
  const float row = place(y);
  const auto left = static_cast<int>(column);
  const auto top = static_cast<int>(row);
  const float part_x = column - static_cast<float>(left);
  const float part_y = row - static_cast<float>(top);
  const float* corner = grid + (static_cast<int64_t>(top) * side + left) * 3;
  for (int c = 0; c < 3; ++c) {
    const float above = corner[c] + (corner[c + 3] - corner[c]) * part_x;
    const float* under = corner + int64_t{3} * side;
    const float below = under[c] + (under[c + 3] - under[c]) * part_x;
    values[c] = above + (below - above) * part_y;
  }
}

std::vector<std::byte> encoded_view(const FaceSynthOptions& options, const Face& face,
                                    int64_t image) {
  return encode_jpeg(face.view(image, options.size).view(), options.quality);
}

}  // namespace

Face::Face(uint64_t seed, int64_t identity)
    : seed_(seed), identity_(identity), texture_(size_t{kTexture} * kTexture * 3) {
  Draws draws(seed, hash_combine(kIdentityStream, static_cast<uint64_t>(identity)));
  for (int wave = 0; wave < kWaves; ++wave) {
    const float across = draws.between(0.3f, 3.0f);
    const float down = draws.between(0.3f, 3.0f);
    const float phase = draws.between(0, 2 * std::numbers::pi_v<float>);
    const float skew = draws.between(-0.25f, 0.25f);
    const float strength = 34.0f / (1 + 0.35f * (across + down));
    std::array<float, 3> colour;
    for (float& value : colour) value = strength * draws.normal();
    float* target = texture_.data();
    for (int row = 0; row < kTexture; ++row) {
      const float y = 2 * static_cast<float>(row) / (kTexture - 1) - 1;
      const float vertical = std::cos(std::numbers::pi_v<float> * down * y + phase);
      for (int column = 0; column < kTexture; ++column, target += 3) {
        const float x = 2 * static_cast<float>(column) / (kTexture - 1) - 1;
        const float value = std::cos(std::numbers::pi_v<float> * across * x + skew) * vertical;
        for (size_t c = 0; c < 3; ++c) target[c] += colour[c] * value;
      }
    }
  }
}

void Face::sample(float x, float y, float* colour) const {
  interpolate(texture_.data(), kTexture, x, y, colour);
}

Image Face::view(int64_t image, int size) const {
  const uint64_t stream = hash_combine(hash_combine(kViewStream, static_cast<uint64_t>(identity_)),
                                       static_cast<uint64_t>(image));
  Draws draws(seed_, stream);
  const Pose pose = draw_pose(draws);
  const uint64_t key = hash_combine(seed_, stream);
  Image result{size, size, 3, {}};
  result.pixels.reserve(static_cast<size_t>(size) * size * 3);
  for (int row = 0; row < size; ++row) {
    for (int column = 0; column < size; ++column) {
      const float x = (2 * static_cast<float>(column) + 1) / static_cast<float>(size) - 1;
      const float y = (2 * static_cast<float>(row) + 1) / static_cast<float>(size) - 1;
      const float from_x = (x - pose.shift_x) / pose.scale;
      const float from_y = (y - pose.shift_y) / pose.scale;
      const float face_x = pose.cosine * from_x + pose.sine * from_y;
      const float face_y = pose.cosine * from_y - pose.sine * from_x;
      std::array<float, 3> skin = {}, ground = {};
      sample(face_x, face_y, skin.data());
      interpolate(pose.ground.data(), kGround, x, y, ground.data());
      const float part = inside_oval(face_x, face_y);
      const float light = pose.light + pose.light_x * from_x + pose.light_y * from_y;
      const uint64_t noise = hash_combine(key, static_cast<uint64_t>(row) * size + column);
      for (size_t c = 0; c < 3; ++c) {
        const float lit = 128 + pose.contrast * skin[c] + pose.tint[c] + light;
        const float grain = static_cast<float>(noise >> (16 * c) & 0xFFFF) / 32768.0f - 1;
        const float value = ground[c] + part * (lit - ground[c]) + pose.grain * grain;
        result.pixels.push_back(static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f)));
      }
    }
  }
  return result;
}

void check(const FaceSynthOptions& options) {
  const auto require = [](const char* flag, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most) {
      fail_input("{} is {}; with ‹faces› it must lie between {} and {}.", flag, value, least, most);
    }
  };
  require("‹identities›", options.identities, 1, int64_t{1} << 24);
  require("‹images›", options.images, 1, int64_t{1} << 24);
  require("‹size›", options.size, 16, 4096);
  require("‹quality›", options.quality, 1, 100);
  require("‹pairs›", options.pairs, 0, int64_t{1} << 24);
  if (options.pairs > 0 && options.identities < 2) {
    fail_input("‹identities› is 1; pairs of different people need 2, or give ‹pairs› 0.");
  }
}

void synthesise_faces(const FaceSynthOptions& options, RecordWriter& writer, bool as_pixels) {
  check(options);
  for (int64_t identity = 0; identity < options.identities; ++identity) {
    const Face face(options.seed, identity);
    for (int64_t i = 0; i < options.images; ++i) {
      Sample sample;
      sample.label = identity;
      Image image;
      if (as_pixels) {
        image = face.view(i, options.size);
        sample.bytes = std::as_bytes(std::span(image.pixels));
        sample.height = sample.width = options.size;
        sample.channels = image.channels;
      } else {
        sample.storage = encoded_view(options, face, i);
        sample.bytes = sample.storage;
      }
      writer.add(sample);
    }
  }
  writer.finish();
}

void write_face_pairs(const FaceSynthOptions& options, const std::filesystem::path& path) {
  check(options);
  make_directory_of(path, "‹verification›");
  const Random random(options.seed, kPairStream);
  const int64_t first = options.new_people ? options.identities : 0;
  const auto people = static_cast<uint64_t>(options.identities);
  std::vector<std::vector<std::byte>> images;
  FacePairs pairs;
  for (int64_t i = 0; i < options.pairs; ++i) {
    const bool same = i % 2 == 0;
    const auto draw = static_cast<uint64_t>(2 * i);
    const uint64_t one = random.below(draw, people);
    const uint64_t other = same ? one : (one + 1 + random.below(draw + 1, people - 1)) % people;
    // Views beyond those of the training set; no view is used twice.
    const int64_t view = options.images + 2 * i;
    const Face face(options.seed, first + static_cast<int64_t>(one));
    images.push_back(encoded_view(options, face, view));
    images.push_back(
        encoded_view(options, Face(options.seed, first + static_cast<int64_t>(other)), view + 1));
    pairs.same.push_back(same);
  }
  for (const std::vector<std::byte>& image : images) pairs.images.emplace_back(image);
  OutputFile file(path);
  file.write(encode_face_pairs(pairs));
  file.commit();
}

}  // namespace millrace::data
