// Synthetic people: an identity is a pattern, its images are views of it.
//
// The pattern is smooth, nearly symmetric and coloured, within an oval. A view shifts, turns and
// scales it, lights it from a side, and adds noise and a background, so that pixels of two views of
// one person are no more alike than those of two people, while a network tells them apart.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "data/formats/face_pairs.h"
#include "data/image/image.h"
#include "data/record_writer.h"

namespace millrace::data {

struct FaceSynthOptions {
  int64_t identities = 100;
  int64_t images = 20;  // of each identity
  int size = 112;       // height and width
  int quality = 90;     // of the JPEG
  uint64_t seed = 0;    // decides what everyone looks like
  int64_t pairs = 600;  // of the verification set, half of them of one person; 0: no set
  // Pairs show people who are not in the training set, rather than new images of those who are.
  bool new_people = false;
};

// What is the same in all images of an identity.
class Face {
 public:
  Face(uint64_t seed, int64_t identity);

  // A function of the arguments alone.
  Image view(int64_t image, int size) const;

 private:
  void sample(float x, float y, float* colour) const;

  uint64_t seed_;
  int64_t identity_;
  std::vector<float> texture_;  // kTexture × kTexture × 3, of values about 0
};

// Throws InputError naming the flag that is out of range.
void check(const FaceSynthOptions& options);

// Writes identities × images samples in the order of their identities, labels from 0. `as_pixels`
// gives the writer pixels rather than JPEGs.
void synthesise_faces(const FaceSynthOptions& options, RecordWriter& writer, bool as_pixels);

// Writes pairs of images that are not among the samples, of one person and of two in turn.
void write_face_pairs(const FaceSynthOptions& options, const std::filesystem::path& path);

}  // namespace millrace::data
