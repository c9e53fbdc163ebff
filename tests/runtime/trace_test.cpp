#include "runtime/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "runtime/trace_file.h"

namespace millrace::runtime {
namespace {

using testing::HasSubstr;

std::string message_of(std::string_view text) {
  try {
    parse_trace(text, "t.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Trace, DevicesRecordSideBySideAndLaterEventsAreCounted) {
  TraceRecorder recorder({{0, 0, 0}, {0, 1, 1}}, 1000);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&recorder, thread] {
      for (int i = 0; i < 400; ++i) {
        recorder.add(thread % 2, TraceCategory::forward, "work", thread * 1000 + i, i, i + 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const TraceLog log = recorder.log();
  std::set<std::pair<int, int64_t>> seen;
  for (const TraceEvent& event : log.events) {
    EXPECT_EQ(event.device, event.micro_batch / 1000 % 2);
    EXPECT_EQ(event.begin, event.micro_batch % 1000);
    seen.insert({event.device, event.micro_batch});
  }
  EXPECT_EQ(seen.size(), 1600u);
  EXPECT_EQ(log.dropped, 0);
  for (int i = 0; i < 500; ++i) recorder.add(0, TraceCategory::wait, "x", -1, 0, 0);
  EXPECT_EQ(recorder.log().events.size(), 1800u);
  EXPECT_EQ(recorder.log().dropped, 300);
}

TEST(Trace, LongNamesAreCutAndScopesMeasure) {
  TraceRecorder recorder({{0, 0, 0}}, 2);
  const std::string name(100, 'n');
  { TraceScope scope(&recorder, 0, TraceCategory::data, name, 4); }
  { TraceScope nothing(nullptr, 0, TraceCategory::data, "n"); }
  const TraceLog log = recorder.log();
  ASSERT_EQ(log.events.size(), 1u);
  EXPECT_EQ(log.events[0].name, std::string(39, 'n'));
  EXPECT_EQ(log.events[0].micro_batch, 4);
  EXPECT_GE(log.events[0].end, log.events[0].begin);
  EXPECT_GT(log.events[0].begin, 0);
}

TraceLog sample() {
  TraceLog log;
  log.devices = {{0, 0, 0}, {1, 3, 1}};
  log.events = {{0, TraceCategory::forward, "forward", 2, 1000, 5250},
                {1, TraceCategory::wait, "activations", -1, 1000, 6000},
                {1, TraceCategory::communication, "send \"x\"", 2, 5250, 6001}};
  log.dropped = 7;
  return log;
}

TEST(Trace, FileHasWhatPerfettoAsksFor) {
  const Json root = Json::parse(trace_to_json(sample()));
  std::set<std::string> names;
  int complete = 0;
  for (const Json& event : root["traceEvents"]) {
    ASSERT_TRUE(event.contains("pid") && event.contains("tid") && event.contains("ph"));
    if (event["ph"] == "M") names.insert(event["args"]["name"].get<std::string>());
    if (event["ph"] != "X") continue;
    ++complete;
    EXPECT_TRUE(event["ts"].is_number() && event["dur"].is_number());
    EXPECT_GE(event["ts"].get<double>(), 0);
  }
  EXPECT_EQ(complete, 3);
  EXPECT_TRUE(names.contains("node 1"));
  EXPECT_TRUE(names.contains("device 1:3, stage 1"));
}

// Perfetto drops what overlaps on a track without lying within.
TEST(Trace, CommunicationThatOverlapsHasTracksOfItsOwn) {
  TraceLog log;
  log.devices = {{0, 0, 0}};
  const auto add = [&log](const char* name, int64_t begin, int64_t end) {
    log.events.push_back({0, TraceCategory::communication, name, -1, begin, end});
    log.instructions.push_back({0, {name, "send", "", 4, 0, true}, -1, begin + 10, end - 10});
  };
  add("first", 0, 1000);
  add("beside the first", 500, 1500);
  add("behind the first", 1000, 2000);
  const Json root = Json::parse(trace_to_json(log));
  std::map<std::string, std::set<int>> tracks;
  for (const Json& event : root["traceEvents"]) {
    if (event["ph"] == "X")
      tracks[event["name"].get<std::string>()].insert(event["tid"].get<int>());
  }
  EXPECT_EQ(tracks["first"], std::set{kCommunicationTracks});
  EXPECT_EQ(tracks["beside the first"], std::set{2 * kCommunicationTracks});
  EXPECT_EQ(tracks["behind the first"], std::set{kCommunicationTracks});
  const TraceLog again = parse_trace(root.dump(), "t.json");
  EXPECT_EQ(again.devices, log.devices);
  EXPECT_EQ(again.events, log.events);
}

TEST(Trace, FileAndBack) {
  const TraceLog before = sample();
  const TraceLog after = parse_trace(trace_to_json(before), "t.json");
  EXPECT_EQ(after.devices, before.devices);
  EXPECT_EQ(after.dropped, 7);
  ASSERT_EQ(after.events.size(), before.events.size());
  for (size_t i = 0; i < before.events.size(); ++i) {
    TraceEvent expected = before.events[i];
    expected.begin -= 1000;
    expected.end -= 1000;
    EXPECT_EQ(after.events[i], expected) << i;
  }
}

TEST(Trace, FilesSayWhetherTheyAreSimulated) {
  EXPECT_TRUE(parse_trace_file(trace_to_json(sample(), true), "t.json").simulated);
  EXPECT_FALSE(parse_trace_file(trace_to_json(sample()), "t.json").simulated);
}

TEST(Trace, WhatOtherProgramsAddIsPassedOver) {
  const TraceLog log = parse_trace(
      R"({"meta": {"traceEvents": 3, "dropped": 4}, "list": [[1], {"ph": "X"}], "traceEvents": [
          {"args": {"deep": {"micro_batch": 9}, "micro_batch": 5, "dur": 1}, "ph": "X", "pid": 0,
           "extra": [{"ts": 7}], "cat": "forward", "tid": 2, "ts": 1.5, "dur": 2, "name": 8}],
         "dropped": 2, "after": []})",
      "t");
  ASSERT_EQ(log.events.size(), 1u);
  EXPECT_EQ(log.events[0], (TraceEvent{0, TraceCategory::forward, "", 5, 1500, 3500}));
  EXPECT_EQ(log.devices, (std::vector<TraceDevice>{{0, 2, 0}}));
  EXPECT_EQ(log.dropped, 2);
}

TEST(Trace, RanksMergeOntoOneClock) {
  TraceLog other = sample();
  other.devices = {{1, 3, 1}, {1, 4, 1}};
  const TraceLog merged = merge({sample(), other}, {0, -500});
  ASSERT_EQ(merged.devices.size(), 3u);
  ASSERT_EQ(merged.events.size(), 6u);
  EXPECT_EQ(merged.events[3].device, 1);
  EXPECT_EQ(merged.events[4].device, 2);
  EXPECT_EQ(merged.events[3].begin, 500);
  EXPECT_EQ(merged.dropped, 14);
  EXPECT_THROW(merge({sample()}, {1, 2}), std::logic_error);
}

TEST(Trace, InstructionsKeepTheirLabels) {
  const TraceLabel label = {"conv1/convolution_backward", "compute", "conv1", 4096, 1.5e9, false};
  const TraceLabel message = {"x.grad", "send", "x", 64, 0, true};
  TraceRecorder recorder({{0, 0, 0}, {0, 1, 1}}, 2);
  recorder.add(0, TraceCategory::backward, "backward", 3, 2000, 9000);
  recorder.add(0, label, 3, 2500, 4000);
  recorder.add(1, message, -1, 1000, 6000);
  for (int i = 0; i < 3; ++i) recorder.add(1, message, i, 7000, 8000);
  const TraceLog log = recorder.log();
  EXPECT_EQ(log.dropped, 2);
  ASSERT_EQ(log.instructions.size(), 3u);
  EXPECT_EQ(earliest(log), 1000);
  TraceLog expected = log;
  for (TraceEvent& event : expected.events) event.begin -= 1000, event.end -= 1000;
  for (TraceInstruction& one : expected.instructions) one.begin -= 1000, one.end -= 1000;
  const TraceLog read = parse_trace(trace_to_json(log), "t");
  EXPECT_EQ(read.instructions, expected.instructions);
  EXPECT_EQ(read.events, expected.events);
  const TraceLog both = merge({read, read}, {0, 10});
  EXPECT_EQ(both.instructions.size(), 6u);
  EXPECT_EQ(both.instructions.back().begin, read.instructions.back().begin + 10);
}

TEST(Trace, AnyBytesGiveASentence) {
  EXPECT_THAT(message_of(""), HasSubstr("'t.json' is not JSON"));
  EXPECT_THAT(message_of("{}"), HasSubstr("traceEvents"));
  EXPECT_THAT(message_of("3"), HasSubstr("traceEvents"));
  EXPECT_THAT(message_of("[1]"), HasSubstr("event 0 is not an object"));
  EXPECT_THAT(message_of("[{}, [{}]]"), HasSubstr("event 1 is not an object"));
  const std::string head = R"([{"ph":"X","name":"a","cat":"wait",)";
  EXPECT_THAT(message_of(head + R"("pid":0,"tid":0,"ts":0}])"), HasSubstr("no number 'dur'"));
  EXPECT_THAT(message_of(head + R"("pid":0,"tid":0,"ts":0,"dur":-1}])"), HasSubstr("ends before"));
  EXPECT_THAT(message_of(head + R"("pid":0,"tid":0,"ts":1e300,"dur":1}])"), HasSubstr("range"));
  EXPECT_THAT(message_of(head + R"("pid":-1,"tid":0,"ts":0,"dur":1}])"), HasSubstr("range"));
  EXPECT_THAT(message_of(head + R"("pid":18446744073709551615,"tid":0,"ts":0,"dur":1}])"),
              HasSubstr("range"));
  EXPECT_THAT(message_of(head + R"("pid":"a","tid":0,"ts":0,"dur":1}])"), HasSubstr("'pid'"));
  // Events of other programs are passed over.
  EXPECT_TRUE(parse_trace(R"([{"ph":"B","name":"z"},{"ph":"X","cat":"gpu"}])", "t").events.empty());
  std::string valid = trace_to_json(sample());
  for (size_t i = 0; i < valid.size(); i += 3) {
    for (const char byte : {'\0', '"', '9', '{', '\xff'}) {
      std::string broken = valid;
      broken[i] = byte;
      message_of(broken);
    }
    message_of(valid.substr(0, i));
  }
}

}  // namespace
}  // namespace millrace::runtime
