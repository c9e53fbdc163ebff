#include "train/event_writer.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "data/image/png.h"

namespace millrace::train {
namespace {

// ---- Protobuf's wire format: fields of a number each, as varints, fixed words or lengths and
// bytes.

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

template <typename Word>
void put_word(std::string& to, Word value) {
  for (size_t i = 0; i < sizeof(Word); ++i) to += static_cast<char>(value >> (8 * i));
}

void put_key(std::string& to, uint32_t field, WireType type) { put_varint(to, field << 3 | type); }

void put_integer(std::string& to, uint32_t field, int64_t value) {
  put_key(to, field, kVarint);
  put_varint(to, static_cast<uint64_t>(value));
}

void put_double(std::string& to, uint32_t field, double value) {
  put_key(to, field, kFixed64);
  put_word(to, std::bit_cast<uint64_t>(value));
}

void put_float(std::string& to, uint32_t field, float value) {
  put_key(to, field, kFixed32);
  put_word(to, std::bit_cast<uint32_t>(value));
}

void put_bytes(std::string& to, uint32_t field, std::string_view bytes) {
  put_key(to, field, kBytes);
  put_varint(to, bytes.size());
  to += bytes;
}

// ---- tensorflow.Event and what is in it, by the numbers of their fields.

std::string event_at(double time, int64_t step) {
  std::string event;
  put_double(event, 1, time);
  if (step > 0) put_integer(event, 2, step);
  return event;
}

std::string with_summary(std::string event, const std::string& summary) {
  put_bytes(event, 5, summary);
  return event;
}

// Length, its checksum, the bytes, theirs.
std::string record_of(const std::string& event) {
  const auto masked = [](std::string_view bytes) {
    const uint32_t sum = crc32c(bytes);
    return std::rotr(sum, 15) + 0xA282EAD8u;
  };
  std::string record;
  put_word(record, uint64_t{event.size()});
  put_word(record, masked(record));
  record += event;
  put_word(record, masked(event));
  return record;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string name_of_host() {
  std::array<char, 256> name = {};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

// A cell of a table in Markdown.
std::string cell(std::string_view text) {
  std::string safe;
  for (const char letter : printable(text)) {
    if (std::string_view("|\\`*_[]<>&").find(letter) != std::string_view::npos) safe += '\\';
    safe += letter == '\n' || letter == '\r' ? ' ' : letter;
  }
  return safe;
}

std::string table_of(const std::vector<WorstSample>& samples) {
  std::string text =
      "| picture | class | taken for | share | share of its class | from |\n"
      "|---|---|---|---|---|---|\n";
  for (size_t i = 0; i < samples.size(); ++i) {
    const WorstSample& sample = samples[i];
    text += fmt::format("| {} | {} | {} | {:.1f} % | {:.1f} % | {} |\n", i + 1, cell(sample.name),
                        cell(sample.told), 100 * sample.share, 100 * sample.own_share(),
                        cell(sample.place));
  }
  return text;
}

// As Markdown shows it unchanged.
std::string as_code(std::string_view text) {
  std::string code;
  for (const std::string& line : split(std::string(text), '\n')) code += "    " + line + "\n";
  return code;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  constexpr uint32_t kReversed = 0x82F63B78;
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table = {};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? kReversed : 0);
      table[i] = value;
    }
    return table;
  }();
  uint32_t sum = ~0u;
  for (const char byte : bytes) sum = sum >> 8 ^ kTable[(sum ^ static_cast<uint8_t>(byte)) & 0xFF];
  return ~sum;
}

std::string version_record(double time) {
  std::string event = event_at(time, 0);
  put_bytes(event, 3, "brain.Event:2");
  return record_of(event);
}

std::string start_record(double time, int64_t step) {
  std::string session;
  put_integer(session, 1, 1);  // SessionLog.START
  std::string event = event_at(time, step);
  put_bytes(event, 7, session);
  return record_of(event);
}

std::string scalar_record(double time, int64_t step, const std::vector<EventScalar>& scalars) {
  std::string summary;
  for (const EventScalar& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.tag);
    put_float(value, 2, static_cast<float>(scalar.value));
    put_bytes(summary, 1, value);
  }
  return record_of(with_summary(event_at(time, step), summary));
}

std::string text_record(double time, int64_t step, std::string_view tag, std::string_view text) {
  constexpr int64_t kString = 7;  // DT_STRING
  std::string extent, shape, tensor, plugin, metadata, value, summary;
  put_integer(extent, 1, 1);
  put_bytes(shape, 2, extent);
  put_integer(tensor, 1, kString);
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, text);
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_bytes(value, 1, tag);
  put_bytes(value, 8, tensor);
  put_bytes(value, 9, metadata);
  put_bytes(summary, 1, value);
  return record_of(with_summary(event_at(time, step), summary));
}

std::string image_record(double time, int64_t step, std::string_view tag,
                         const data::Image& image) {
  const std::vector<std::byte> png = data::encode_png(image.view());
  std::string picture, value, summary;
  put_integer(picture, 1, image.height);
  put_integer(picture, 2, image.width);
  put_integer(picture, 3, image.channels);
  put_bytes(picture, 4, {reinterpret_cast<const char*>(png.data()), png.size()});
  put_bytes(value, 1, tag);
  put_bytes(value, 4, picture);
  put_bytes(summary, 1, value);
  return record_of(with_summary(event_at(time, step), summary));
}

void EventWriter::on_start(const JobStart& start) {
  const double time = now();
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  file_ = std::make_unique<LineFile>(
      directory_ / fmt::format("events.out.tfevents.{}.{}.{}", static_cast<int64_t>(time),
                               name_of_host(), ::getpid()),
      version_record(time));
  const int64_t next = start.first_step + 1;
  file_->add_piece(start_record(time, next));
  file_->add_piece(text_record(time, next, "configuration", as_code(configuration_)));
}

void EventWriter::on_step(const StepReport& report) {
  std::vector<EventScalar> scalars = {{"train/loss", report.loss},
                                      {"train/learning_rate", report.learning_rate},
                                      {"train/samples_per_second", report.samples_per_second},
                                      {"train/wait_seconds", report.wait_seconds}};
  for (const Measured& figure : report.figures) {
    scalars.push_back({"train/" + figure.metric, figure.value});
  }
  if (report.loss_scale != 1) scalars.push_back({"train/loss_scale", report.loss_scale});
  file_->add_piece(scalar_record(now(), report.step, scalars));
}

void EventWriter::on_evaluation(const EvaluationReport& report) {
  std::vector<EventScalar> scalars;
  for (const Measured& figure : report.figures) {
    scalars.push_back({"valid/" + figure.metric, figure.value});
  }
  const double time = now();
  file_->add_piece(scalar_record(time, report.step, scalars));
  if (report.worst.empty()) return;
  file_->add_piece(text_record(time, report.step, "predictions", table_of(report.worst)));
  for (size_t i = 0; i < report.worst.size(); ++i) {
    file_->add_piece(image_record(time, report.step, fmt::format("predictions/{}", i + 1),
                                  report.worst[i].image));
  }
}

std::string EventWriter::failure() const {
  if (!file_ || file_->failure().empty()) return {};
  return fmt::format("‹tensorboard›: the events end early: {}", file_->failure());
}

}  // namespace millrace::train
