#include "data/image/jpeg.h"

#include <setjmp.h>
#include <stdio.h>
// libjpeg needs <stdio.h> before it and its messages after it; the comments keep that order.
#include <jpeglib.h>
// Codes of the warnings below.
#include <jerror.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "data/image/colour.h"
#include "data/sample.h"

namespace millrace::data {
namespace {

constexpr int kMaxScans = 100;
constexpr int kLinesAtOnce = 8;
constexpr long kMaxCodecMemory = 1L << 30;
// Even the emptiest image spends a bit on every block of 64 pixels.
constexpr int64_t kMaxJpegPixelsPerByte = 2048;

struct ErrorState {
  jpeg_error_mgr manager;
  jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void on_error(j_common_ptr codec) {
  auto* errors = reinterpret_cast<ErrorState*>(codec->err);
  codec->err->format_message(codec, errors->message);
  longjmp(errors->jump, 1);
}

void on_message(j_common_ptr codec, int level) {
  if (level >= 0) return;
  switch (codec->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_ARITH_BAD_CODE:
      on_error(codec);
    default:
      return;
  }
}

void on_progress(j_common_ptr codec) {
  const auto* decoder = reinterpret_cast<j_decompress_ptr>(codec);
  if (decoder->input_scan_number <= kMaxScans) return;
  auto* errors = reinterpret_cast<ErrorState*>(codec->err);
  snprintf(errors->message, sizeof(errors->message), "more than %d scans", kMaxScans);
  longjmp(errors->jump, 1);
}

void prepare_errors(ErrorState& errors) {
  jpeg_std_error(&errors.manager);
  errors.manager.error_exit = on_error;
  errors.manager.emit_message = on_message;
}

// Runs calls into libjpeg, which leave by longjmp when they fail. `body` must own nothing: no
// destructor may be needed between here and the failure.
template <typename Body>
__attribute__((noinline)) void protect(ErrorState& errors, const Body& body) {
  if (setjmp(errors.jump) != 0) fail_data("its JPEG image is broken ({})", errors.message);
  body();
}

int smallest_scale(const PixelRegion& region, int target_height, int target_width) {
  for (const int eighths : {1, 2, 4}) {
    if (region.width * eighths / 8 >= target_width &&
        region.height * eighths / 8 >= target_height) {
      return eighths;
    }
  }
  return 8;
}

// Red, green and blue, or CMYK as Adobe programs store it, inverted, to 1 or 3 channels.
void convert_line(const uint8_t* from, int components, uint8_t* to, int width, int channels) {
  for (int x = 0; x < width; ++x, from += components, to += channels) {
    int rgb[3];
    for (int c = 0; c < 3; ++c) {
      rgb[c] = components == 4 ? (from[c] * from[3] + 127) / 255 : from[c];
    }
    if (channels == 1) {
      *to = grey_of(rgb[0], rgb[1], rgb[2]);
    } else {
      for (int c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(rgb[c]);
    }
  }
}

J_COLOR_SPACE decoded_space(J_COLOR_SPACE stored, int channels) {
  if (stored == JCS_CMYK || stored == JCS_YCCK) return JCS_CMYK;
  return channels == 1 && stored == JCS_GRAYSCALE ? JCS_GRAYSCALE : JCS_RGB;
}

}  // namespace

struct JpegReader::State {
  ErrorState errors;
  jpeg_decompress_struct codec;
  jpeg_progress_mgr progress;
};

JpegReader::JpegReader(std::span<const std::byte> bytes) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.codec = {};
  state.progress = {};
  prepare_errors(state.errors);
  state.codec.err = &state.errors.manager;
  try {
    protect(state.errors, [&state, bytes] {
      jpeg_create_decompress(&state.codec);
      state.codec.mem->max_memory_to_use = kMaxCodecMemory;
      state.progress.progress_monitor = on_progress;
      state.codec.progress = &state.progress;
      jpeg_mem_src(&state.codec, reinterpret_cast<const unsigned char*>(bytes.data()),
                   bytes.size());
      jpeg_read_header(&state.codec, TRUE);
    });
    require_pixels("JPEG", height(), width());
    const int64_t pixels = int64_t{height()} * width();
    const int64_t plausible = kMaxJpegPixelsPerByte * static_cast<int64_t>(bytes.size());
    if (pixels > plausible) {
      fail_data("its JPEG image claims {} × {} pixels in {} bytes", width(), height(),
                bytes.size());
    }
  } catch (...) {
    jpeg_destroy_decompress(&state.codec);
    throw;
  }
}

JpegReader::~JpegReader() { jpeg_destroy_decompress(&state_->codec); }

int JpegReader::height() const { return static_cast<int>(state_->codec.image_height); }
int JpegReader::width() const { return static_cast<int>(state_->codec.image_width); }
int JpegReader::channels() const { return state_->codec.num_components == 1 ? 1 : 3; }

DecodedPart JpegReader::decode(const PixelRegion& region, int target_height, int target_width,
                               int channels, bool exact, std::vector<uint8_t>& storage) {
  State& state = *state_;
  jpeg_decompress_struct& codec = state.codec;
  const int eighths = exact ? 8 : smallest_scale(region, target_height, target_width);
  codec.scale_num = static_cast<unsigned>(eighths);
  codec.scale_denom = 8;
  codec.do_fancy_upsampling = exact ? TRUE : FALSE;
  codec.dct_method = JDCT_ISLOW;
  codec.out_color_space = decoded_space(codec.jpeg_color_space, channels);
  protect(state.errors, [&codec] { jpeg_start_decompress(&codec); });

  DecodedPart part;
  part.scale = eighths / 8.0;
  const auto clamp = [](double value, unsigned limit) {
    return static_cast<unsigned>(std::clamp(value, 0.0, static_cast<double>(limit)));
  };
  const unsigned full_width = codec.output_width;
  const unsigned full_height = codec.output_height;
  const PixelRegion wanted =
      exact ? PixelRegion{0, 0, static_cast<double>(full_width), static_cast<double>(full_height)}
            : region;
  unsigned left = std::min(clamp(std::floor(wanted.left * part.scale), full_width), full_width - 1);
  const unsigned right =
      std::max(left + 1, clamp(std::ceil((wanted.left + wanted.width) * part.scale), full_width));
  const unsigned top =
      std::min(clamp(std::floor(wanted.top * part.scale), full_height), full_height - 1);
  const unsigned bottom =
      std::max(top + 1, clamp(std::ceil((wanted.top + wanted.height) * part.scale), full_height));
  unsigned columns = right - left;
  if (columns < full_width) {
    protect(state.errors, [&] { jpeg_crop_scanline(&codec, &left, &columns); });
  }
  const int rows = static_cast<int>(bottom - top);
  part.left = left;
  part.top = top;
  part.view = {nullptr, rows, static_cast<int>(columns), channels,
               static_cast<int64_t>(columns) * channels};
  const size_t line_bytes = size_t{codec.output_width} * codec.output_components;
  const size_t image_bytes = static_cast<size_t>(part.view.stride * rows);
  storage.resize(image_bytes + line_bytes);
  uint8_t* pixels = storage.data();
  const bool converts = codec.output_components != channels;
  protect(state.errors, [&codec, &part, pixels, image_bytes, rows, top, converts, channels] {
    if (top > 0) jpeg_skip_scanlines(&codec, top);
    for (int y = 0; y < rows;) {
      // Several lines at a time spare libjpeg a copy of every second one.
      JSAMPROW lines[kLinesAtOnce];
      const int most = converts ? 1 : std::min(kLinesAtOnce, rows - y);
      for (int i = 0; i < most; ++i) lines[i] = pixels + (y + i) * part.view.stride;
      uint8_t* target = lines[0];
      if (converts) lines[0] = pixels + image_bytes;
      const unsigned count = jpeg_read_scanlines(&codec, lines, static_cast<unsigned>(most));
      if (count == 0) return;
      if (converts) {
        convert_line(lines[0], codec.output_components, target, part.view.width, channels);
      }
      y += static_cast<int>(count);
    }
  });
  part.view.pixels = pixels;
  return part;
}

bool is_jpeg(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0xFF} && bytes[1] == std::byte{0xD8};
}

std::vector<std::byte> encode_jpeg(const ImageView& image, int quality) {
  ErrorState errors;
  prepare_errors(errors);
  jpeg_compress_struct codec = {};
  codec.err = &errors.manager;
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  struct Cleanup {
    jpeg_compress_struct& codec;
    unsigned char*& buffer;
    ~Cleanup() {
      jpeg_destroy_compress(&codec);
      std::free(buffer);
    }
  } cleanup{codec, buffer};
  protect(errors, [&] {
    jpeg_create_compress(&codec);
    jpeg_mem_dest(&codec, &buffer, &size);
    codec.image_width = static_cast<unsigned>(image.width);
    codec.image_height = static_cast<unsigned>(image.height);
    codec.input_components = image.channels;
    codec.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&codec);
    jpeg_set_quality(&codec, quality, TRUE);
    jpeg_start_compress(&codec, TRUE);
    for (int y = 0; y < image.height; ++y) {
      JSAMPROW line = const_cast<JSAMPROW>(image.row(y));
      jpeg_write_scanlines(&codec, &line, 1);
    }
    jpeg_finish_compress(&codec);
  });
  const auto* bytes = reinterpret_cast<const std::byte*>(buffer);
  return {bytes, bytes + size};
}

}  // namespace millrace::data
