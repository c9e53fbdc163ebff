// The way up of a photograph, which cameras note in its EXIF data instead of turning the pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/image/image.h"

namespace millrace::data {

// How the stored pixels become the picture that is seen: EXIF's values 1 to 8.
class Orientation {
 public:
  // Of a JPEG, PNG or WebP image; upright if it says nothing, or nothing that can be read.
  static Orientation of(std::span<const std::byte> encoded);

  explicit Orientation(int value = 1) : value_(value) {}

  int value() const { return value_; }
  bool upright() const { return value_ == 1; }
  // Whether width and height change places.
  bool turned() const { return value_ >= 5; }

  // The region of the stored image, width × height pixels, that a region of the seen one shows.
  PixelRegion stored_region(const PixelRegion& seen, int width, int height) const;

  // The part of the seen image that a part of the stored one, width × height pixels, shows; its
  // pixels are written to `storage`, which the part must not point into.
  DecodedPart seen_part(const DecodedPart& stored, int width, int height,
                        std::vector<uint8_t>& storage) const;

 private:
  bool mirrors_columns() const;
  bool mirrors_rows() const;

  int value_;
};

}  // namespace millrace::data
