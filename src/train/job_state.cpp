#include "train/job_state.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "base/parts.h"
#include "comm/texts.h"

namespace millrace::train {
namespace {

constexpr int kRowsTag = 2;

graph::Shape whole_shape(graph::Shape shape, const graph::Slice& slice) {
  if (slice.axis != graph::kNone) shape.at(static_cast<size_t>(slice.axis)) = slice.whole;
  return shape;
}

// Copies between a tensor and the piece of it that the slice cuts out.
template <typename Copy>
void for_each_run(const graph::Shape& piece, const graph::Slice& slice, Copy&& copy) {
  const auto axis = static_cast<size_t>(slice.axis);
  int64_t outer = 1;
  int64_t inner = 1;
  for (size_t i = 0; i < axis; ++i) outer *= piece[i];
  for (size_t i = axis + 1; i < piece.size(); ++i) inner *= piece[i];
  const int64_t run = piece[axis] * inner;
  for (int64_t i = 0; i < outer; ++i) {
    copy(i * run, (i * slice.whole + slice.begin) * inner, run);
  }
}

std::string describe_slots(const Engine& engine) {
  Json list = Json::array();
  for (size_t w = 0; w < engine.workers().size(); ++w) {
    const Worker& worker = *engine.workers()[w];
    const std::vector<compile::Slot>& slots = worker.session->state();
    for (size_t i = 0; i < slots.size(); ++i) {
      const compile::Slot& slot = slots[i];
      if (slot.role == graph::Role::accumulator) continue;
      list.push_back({worker.stage, worker.member, w, i, slot.name, static_cast<int>(slot.role),
                      slot.type.shape, slot.layout.tag(), slot.slice.axis, slot.slice.begin,
                      slot.slice.whole, slot.part.index, slot.part.count,
                      static_cast<int>(slot.type.dtype)});
    }
  }
  return list.dump();
}

}  // namespace

bool JobTensor::in_rows() const {
  constexpr std::string_view kCentres = "head.centres";
  return name.starts_with(kCentres) &&
         (name.size() == kCentres.size() || name[kCentres.size()] == '.');
}

JobState::JobState(Engine& engine) : engine_(engine) {
  std::vector<std::string> texts = {describe_slots(engine)};
  if (engine.rank_group() != nullptr) texts = comm::gather_texts(*engine.rank_group(), texts[0]);
  // By stage, member and place in the program.
  std::map<std::vector<int>, std::pair<int, Json>> sorted;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    for (const Json& entry : Json::parse(texts[rank])) {
      const std::vector<int> key = {entry[0].get<int>(), entry[1].get<int>(), entry[3].get<int>()};
      sorted[key] = {static_cast<int>(rank), entry};
    }
  }
  std::map<std::string, size_t> known;
  for (const auto& [key, value] : sorted) {
    const auto& [rank, entry] = value;
    const auto name = entry[4].get<std::string>();
    Piece piece;
    piece.rank = rank;
    piece.worker = entry[2].get<int>();
    piece.slot = entry[3].get<int>();
    piece.shape = entry[6].get<graph::Shape>();
    piece.layout = entry[7].get<std::string>();
    piece.slice = {entry[8].get<int>(), entry[9].get<int64_t>(), entry[10].get<int64_t>()};
    piece.part = {entry[11].get<int>(), entry[12].get<int>()};
    const auto [found, is_new] = known.emplace(name, tensors_.size());
    if (is_new) {
      tensors_.push_back({name, static_cast<graph::Role>(entry[5].get<int>()),
                          whole_shape(piece.shape, piece.slice),
                          static_cast<graph::DataType>(entry[13].get<int>())});
      pieces_.emplace_back();
    }
    pieces_[found->second].push_back(std::move(piece));
  }
}

bool JobState::holds_values() const { return engine_.rank() == 0; }

std::string JobState::agree(const std::string& text) const {
  comm::Group* ranks = engine_.rank_group();
  return ranks == nullptr ? text : comm::broadcast_text(*ranks, text, 0);
}

const compile::Slot& JobState::slot_of(const Piece& piece) const {
  const Worker& worker = *engine_.workers()[static_cast<size_t>(piece.worker)];
  return worker.session->state()[static_cast<size_t>(piece.slot)];
}

std::vector<float> JobState::fetch(const Piece& piece) const {
  const bool own = piece.rank == engine_.rank();
  const graph::Layout layout = piece.layout.empty() ? graph::Layout() : graph::Layout(piece.layout);
  const int64_t physical = layout.physical_elements(piece.shape);
  const int64_t count = piece.part.count > 1
                            ? part_size(physical, piece.part.index, piece.part.count)
                            : graph::elements_of(piece.shape);
  std::vector<float> values(static_cast<size_t>(count));
  if (own) {
    const runtime::Session& session =
        *engine_.workers()[static_cast<size_t>(piece.worker)]->session;
    const compile::Slot& slot = slot_of(piece);
    if (piece.part.count > 1) {
      session.read_part(slot, values);
    } else {
      session.read_state(slot, values);
    }
  }
  if (piece.rank == 0) return values;
  constexpr int kTag = 1;
  if (own) engine_.rank_group()->send(0, std::span<const float>(values), kTag);
  if (engine_.rank() == 0) {
    engine_.rank_group()->receive(piece.rank, std::span<float>(values), kTag);
  }
  return values;
}

void JobState::settle() const {
  for (const auto& worker : engine_.workers()) worker->session->settle();
}

void JobState::read(size_t tensor, std::vector<float>& values) const {
  const std::vector<Piece>& pieces = pieces_[tensor];
  const Piece& first = pieces.front();
  const bool mine = holds_values();
  if (mine) values.resize(static_cast<size_t>(graph::elements_of(tensors_[tensor].shape)));
  const auto take = [&](const Piece& piece) -> std::vector<float> {
    const bool involved = mine || piece.rank == engine_.rank();
    return involved ? fetch(piece) : std::vector<float>();
  };
  if (first.part.count > 1) {
    const graph::Layout layout =
        first.layout.empty() ? graph::Layout() : graph::Layout(first.layout);
    std::vector<float> memory;
    for (const Piece& piece : pieces) {
      const std::vector<float> part = take(piece);
      memory.insert(memory.end(), part.begin(), part.end());
    }
    if (!mine) return;
    const graph::TensorType type = {first.shape, graph::DataType::f32};
    kernels::copy_between_layouts({type, layout}, reinterpret_cast<const std::byte*>(memory.data()),
                                  {type, graph::Layout()},
                                  reinterpret_cast<std::byte*>(values.data()));
    return;
  }
  if (first.slice.axis == graph::kNone) {
    const std::vector<float> whole = take(first);
    if (mine) values = whole;
    return;
  }
  for (const Piece& piece : pieces) {
    const std::vector<float> part = take(piece);
    if (!mine) continue;
    for_each_run(piece.shape, piece.slice, [&](int64_t from, int64_t to, int64_t count) {
      std::copy_n(part.begin() + from, count, values.begin() + to);
    });
  }
}

void JobState::write(size_t tensor, std::span<const float> values) {
  std::vector<float> whole(values.begin(), values.end());
  if (comm::Group* ranks = engine_.rank_group()) {
    whole.resize(static_cast<size_t>(graph::elements_of(tensors_[tensor].shape)));
    ranks->broadcast(std::span(whole), 0);
  }
  for (const Piece& piece : pieces_[tensor]) {
    if (piece.rank != engine_.rank()) continue;
    runtime::Session& session = *engine_.workers()[static_cast<size_t>(piece.worker)]->session;
    if (piece.slice.axis == graph::kNone) {
      session.write_state(slot_of(piece), whole);
      continue;
    }
    std::vector<float> part(static_cast<size_t>(graph::elements_of(piece.shape)));
    for_each_run(piece.shape, piece.slice, [&](int64_t to, int64_t from, int64_t count) {
      std::copy_n(whole.begin() + from, count, part.begin() + to);
    });
    session.write_state(slot_of(piece), part);
  }
}

JobState::SharedRows JobState::shared_rows(const JobTensor& tensor, const Piece& piece,
                                           int64_t first, std::span<std::byte> bytes) {
  const int64_t row = tensor.row_bytes();
  const int64_t begin = piece.slice.axis == graph::kNone ? 0 : piece.slice.begin;
  const int64_t last = first + static_cast<int64_t>(bytes.size()) / row;
  const int64_t from = std::max(first, begin);
  const int64_t to = std::min(last, begin + piece.shape.at(0));
  if (from >= to) return {};
  return {(from - begin) * row, bytes.subspan(static_cast<size_t>((from - first) * row),
                                              static_cast<size_t>((to - from) * row))};
}

runtime::Session& JobState::session_of(const Piece& piece) const {
  return *engine_.workers()[static_cast<size_t>(piece.worker)]->session;
}

void JobState::read_rows(size_t tensor, int64_t first, std::span<std::byte> bytes) const {
  for (const Piece& piece : pieces_[tensor]) {
    const SharedRows rows = shared_rows(tensors_[tensor], piece, first, bytes);
    const bool own = piece.rank == engine_.rank();
    if (!rows.host.empty() && own) {
      session_of(piece).read_bytes(slot_of(piece), rows.begin, rows.host);
    }
    if (!rows.host.empty() && piece.rank != 0 && own) {
      engine_.rank_group()->send(0, std::span<const std::byte>(rows.host), kRowsTag);
    }
    if (!rows.host.empty() && piece.rank != 0 && holds_values()) {
      engine_.rank_group()->receive(piece.rank, rows.host, kRowsTag);
    }
    if (piece.slice.axis == graph::kNone) return;  // the others have the same
  }
}

void JobState::write_rows(size_t tensor, int64_t first, std::span<std::byte> bytes) {
  if (comm::Group* ranks = engine_.rank_group()) ranks->broadcast(bytes, 0);
  for (const Piece& piece : pieces_[tensor]) {
    if (piece.rank != engine_.rank()) continue;
    const SharedRows rows = shared_rows(tensors_[tensor], piece, first, bytes);
    if (!rows.host.empty()) session_of(piece).write_bytes(slot_of(piece), rows.begin, rows.host);
  }
}

std::vector<int64_t> JobState::row_bounds(size_t tensor) const {
  std::set<int64_t> bounds = {0, tensors_[tensor].shape.at(0)};
  for (const Piece& piece : pieces_[tensor]) {
    if (piece.slice.axis != graph::kNone) bounds.insert(piece.slice.begin);
  }
  return {bounds.begin(), bounds.end()};
}

}  // namespace millrace::train
