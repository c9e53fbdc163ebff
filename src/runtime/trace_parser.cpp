#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "runtime/trace_file.h"

namespace millrace::runtime {
namespace {

constexpr double kMostMicroseconds = 9e12;
constexpr double kMostAmount = 1e18;  // of bytes or arithmetic

// A value of an event that is no array and no object.
struct Value {
  enum class Kind : uint8_t { absent, other, text, whole, fraction };
  Kind kind = Kind::absent;
  int64_t whole = 0;
  double number = 0;
  std::string text;
};

enum Field {
  phase,
  name,
  category,
  process,
  track,
  begin,
  length,
  micro_batch,
  stage,
  kind,
  layer,
  bytes,
  arithmetic
};
constexpr std::array<const char*, 13> kKeys = {"ph",    "name",  "cat",         "pid",   "tid",
                                               "ts",    "dur",   "micro_batch", "stage", "kind",
                                               "layer", "bytes", "arithmetic"};
constexpr size_t kFirstArgument = micro_batch;  // and later ones are found in "args"

// Takes a trace while it is parsed, so that a large one is never in memory as JSON. Keeps which
// event it is at, for errors.
class Reader final : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  TraceFile take() {
    if (!has_events_) fail_input("'{}' is not a trace: it has no array 'traceEvents'.", source_);
    for (TraceDevice& device : log_.devices) {
      const auto known = stages_.find({device.node, device.device});
      if (known != stages_.end()) device.stage = known->second;
    }
    return {std::move(log_), simulated_};
  }

  bool null() override { return take_other(); }
  bool binary(Json::binary_t&) override { return take_other(); }
  bool boolean(bool flag) override {
    if (depth_ == 1 && !has_bare_events_ && key_ == "simulated") simulated_ = flag;
    return take_other();
  }
  bool number_integer(int64_t number) override {
    return take_number(Value::Kind::whole, number, static_cast<double>(number));
  }
  bool number_unsigned(uint64_t number) override {
    const bool huge = number > static_cast<uint64_t>(INT64_MAX);
    return take_number(Value::Kind::whole, huge ? -1 : static_cast<int64_t>(number),
                       static_cast<double>(number));
  }
  bool number_float(double number, const std::string&) override {
    return take_number(Value::Kind::fraction, 0, number);
  }
  bool string(std::string& text) override {
    Value* value = place();
    if (value == nullptr) return true;
    value->kind = Value::Kind::text;
    value->text.swap(text);
    return true;
  }
  bool key(std::string& text) override {
    key_.swap(text);
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ + 1 == event_depth_) {
      for (Value& value : values_) value.kind = Value::Kind::absent;
    } else if (depth_ == event_depth_ && event_depth_ > 0) {
      in_arguments_ = key_ == "args";
    }
    ++depth_;
    return true;
  }

  bool end_object() override {
    if (depth_ == event_depth_) {
      read();
      ++index_;
    }
    --depth_;
    if (depth_ == event_depth_) in_arguments_ = false;
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ + 1 == event_depth_) fail("is not an object");
    ++depth_;
    const bool bare = depth_ == 1;
    if (bare || (depth_ == 2 && !has_bare_events_ && key_ == "traceEvents")) {
      has_bare_events_ = bare;
      has_events_ = true;
      event_depth_ = depth_ + 1;
    }
    return true;
  }

  bool end_array() override {
    if (depth_ + 1 == event_depth_) event_depth_ = 0;
    --depth_;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fail_input("'{}' is not JSON: mistake at byte {}.", source_, position);
  }

 private:
  // Where a value that was just read belongs; null where nobody asks for it.
  Value* place() {
    if (event_depth_ == 0) return nullptr;
    if (depth_ + 1 == event_depth_) fail("is not an object");
    const bool argument = depth_ == event_depth_ + 1 && in_arguments_;
    if (depth_ != event_depth_ && !argument) return nullptr;
    const size_t end = argument ? kKeys.size() : kFirstArgument;
    for (size_t i = argument ? kFirstArgument : 0; i < end; ++i) {
      if (key_ == kKeys[i]) return &values_[i];
    }
    return nullptr;
  }

  bool take_other() {
    if (Value* value = place()) value->kind = Value::Kind::other;
    return true;
  }

  bool take_number(Value::Kind kind, int64_t whole, double number) {
    if (depth_ == 1 && !has_bare_events_ && key_ == "dropped" && kind == Value::Kind::whole) {
      log_.dropped = std::max<int64_t>(0, whole);
    }
    Value* value = place();
    if (value == nullptr) return true;
    value->kind = kind;
    value->whole = whole;
    value->number = number;
    return true;
  }

  void read() {
    if (is(phase, "M") && is(name, "thread_name")) return read_stage();
    const auto known = category_of_event();
    if (is(phase, "X") && is(category, kInstructionCategory)) return read_instruction();
    if (!is(phase, "X") || !known) return;
    const double from = microseconds(begin);
    const double lasting = microseconds(length);
    if (lasting < 0) fail("ends before it begins");
    TraceEvent made;
    made.device = device(integer(process), integer(track) % kCommunicationTracks);
    made.category = *known;
    if (values_[name].kind == Value::Kind::text) made.name = values_[name].text;
    made.begin = std::llround(from * 1000);
    made.end = std::llround((from + lasting) * 1000);
    if (values_[micro_batch].kind != Value::Kind::absent) made.micro_batch = integer(micro_batch);
    log_.events.push_back(std::move(made));
  }

  void read_instruction() {
    const double from = microseconds(begin);
    const double lasting = microseconds(length);
    if (lasting < 0) fail("ends before it begins");
    TraceInstruction made;
    made.device = device(integer(process), integer(track) % kCommunicationTracks);
    made.label = {.name = text(name),
                  .kind = text(kind),
                  .layer = text(layer),
                  .bytes = std::llround(std::clamp(number(bytes), 0.0, kMostAmount)),
                  .arithmetic = std::clamp(number(arithmetic), 0.0, kMostAmount),
                  .communicates = integer(track) >= kCommunicationTracks};
    made.begin = std::llround(from * 1000);
    made.end = std::llround((from + lasting) * 1000);
    if (values_[micro_batch].kind != Value::Kind::absent) made.micro_batch = integer(micro_batch);
    log_.instructions.push_back(std::move(made));
  }

  std::string text(Field field) const {
    return values_[field].kind == Value::Kind::text ? values_[field].text : "";
  }

  // 0 where there is none.
  double number(Field field) const {
    const Value& value = values_[field];
    const bool is_number = value.kind == Value::Kind::whole || value.kind == Value::Kind::fraction;
    return is_number && value.number == value.number ? value.number : 0;
  }

  void read_stage() {
    if (values_[stage].kind == Value::Kind::absent) return;
    stages_[{integer(process), integer(track) % kCommunicationTracks}] = integer(stage);
  }

  int device(int node, int number) {
    const auto [entry, added] =
        places_.insert({{node, number}, static_cast<int>(log_.devices.size())});
    if (added) log_.devices.push_back({node, number, 0});
    return entry->second;
  }

  bool is(Field field, std::string_view text) const {
    return values_[field].kind == Value::Kind::text && values_[field].text == text;
  }

  std::optional<TraceCategory> category_of_event() const {
    for (int i = 0; i < kTraceCategories; ++i) {
      if (is(category, name_of(static_cast<TraceCategory>(i))))
        return static_cast<TraceCategory>(i);
    }
    return std::nullopt;
  }

  int integer(Field field) const {
    const Value& value = values_[field];
    if (value.kind != Value::Kind::whole)
      fail(fmt::format("has no whole number '{}'", kKeys[field]));
    if (value.whole < 0 || value.whole > INT32_MAX) {
      fail(fmt::format("has a '{}' out of range", kKeys[field]));
    }
    return static_cast<int>(value.whole);
  }

  double microseconds(Field field) const {
    const Value& value = values_[field];
    if (value.kind != Value::Kind::whole && value.kind != Value::Kind::fraction) {
      fail(fmt::format("has no number '{}'", kKeys[field]));
    }
    if (!(std::abs(value.number) <= kMostMicroseconds)) {
      fail(fmt::format("has a '{}' out of range", kKeys[field]));
    }
    return value.number;
  }

  [[noreturn]] void fail(const std::string& what) const {
    fail_input("'{}' is not a trace that can be read: event {} {}.", source_, index_, what);
  }

  const std::string& source_;
  TraceLog log_;
  std::map<std::pair<int, int>, int> places_;
  std::map<std::pair<int, int>, int> stages_;
  std::array<Value, kKeys.size()> values_;
  std::string key_;
  int64_t index_ = 0;
  int depth_ = 0;
  int event_depth_ = 0;  // inside of an event; 0: not among events
  bool has_events_ = false;
  bool has_bare_events_ = false;  // the whole file is their array
  bool in_arguments_ = false;
  bool simulated_ = false;
};

}  // namespace

TraceFile parse_trace_file(std::string_view text, const std::string& source) {
  Reader reader(source);
  Json::sax_parse(text, &reader);
  return reader.take();
}

TraceLog parse_trace(std::string_view text, const std::string& source) {
  return parse_trace_file(text, source).log;
}

}  // namespace millrace::runtime
