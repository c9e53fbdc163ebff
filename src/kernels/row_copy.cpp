#include "kernels/row_copy.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/parallel.h"
#include "kernels/support/conversion.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kRowCopyGrain = int64_t{1} << 18;  // bytes

// Whether rows lie one behind the other, so that some of them are a tensor of their own.
bool is_row_by_row(const graph::Layout& layout) {
  const auto& blocks = layout.inner_blocks();
  return layout.is_plain() ||
         (layout.outer_order().front() == 0 &&
          std::none_of(blocks.begin(), blocks.end(),
                       [](const graph::Layout::Block& block) { return block.axis == 0; }));
}

class RowCopy final : public Kernel {
 public:
  explicit RowCopy(const RowCopyRequest& request)
      : out_(request.out),
        wire_(request.wire),
        converts_(request.wire != request.tensor.type.dtype) {
    TensorSpec spec = request.tensor;
    const int64_t all = spec.type.shape.at(0);
    const RowRange rows = request.rows;
    const bool whole = rows == RowRange{0, all};
    const bool row_by_row = is_row_by_row(spec.layout);
    if (rows.begin < 0 || rows.end > all || (!whole && !row_by_row)) {
      throw std::logic_error("rows of '" + request.name + "' cannot be taken apart");
    }
    if (converts_ && (spec.type.dtype != graph::DataType::f32 || graph::size_of(wire_) != 2)) {
      throw std::logic_error("'" + request.name + "' cannot travel as " +
                             std::string(graph::name_of(wire_)));
    }
    offset_ = whole ? 0 : spec.bytes() / all * rows.begin;
    if (converts_ && row_by_row && !spec.layout.is_plain()) pieces_ = rows.end - rows.begin;
    spec.type.shape[0] = (rows.end - rows.begin) / pieces_;
    piece_bytes_ = spec.bytes();
    piece_elements_ = spec.elements();
    if (spec.layout.is_plain()) return;
    const TensorSpec plain = {spec.type, graph::Layout()};
    const graph::Operator op = {"reorder", request.name + "/rows", {}, {},
                                {},        graph::Phase::forward};
    const KernelOptions options;
    reorder_ = make_kernel({op, {out_ ? spec : plain}, {out_ ? plain : spec}, options});
    workspace_.resize(reorder_->workspace_bytes());
    if (converts_ && !row_by_row) own_scratch_.resize(static_cast<size_t>(plain.bytes()));
  }

  void run(const KernelArguments& arguments) override {
    std::byte* tensor = (out_ ? arguments.inputs[0] : arguments.outputs[0]) + offset_;
    std::byte* plain = out_ ? arguments.outputs[0] : arguments.inputs[0];
    if (!converts_ && reorder_ != nullptr) {
      reorder(tensor, plain);
    } else if (!converts_) {
      std::byte* source = out_ ? tensor : plain;
      std::byte* target = out_ ? plain : tensor;
      parallel_ranges(piece_bytes_, kRowCopyGrain, [=](int, int64_t begin, int64_t end) {
        std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
      });
    } else if (reorder_ == nullptr) {
      convert(tensor, plain);
    } else {
      run_in_pieces(tensor, plain,
                    own_scratch_.empty() ? arguments.workspace : own_scratch_.data());
    }
  }

 private:
  void run_in_pieces(std::byte* tensor, std::byte* plain, std::byte* scratch) {
    for (int64_t i = 0; i < pieces_; ++i, tensor += piece_bytes_) {
      std::byte* halves = plain + i * piece_elements_ * graph::size_of(wire_);
      if (out_) reorder(tensor, scratch);
      convert(scratch, halves);
      if (!out_) reorder(tensor, scratch);
    }
  }

  void convert(std::byte* floats, std::byte* halves) const {
    auto* wide = reinterpret_cast<float*>(floats);
    if (out_) {
      narrow(wire_, wide, piece_elements_, halves);
    } else {
      widen(wire_, halves, piece_elements_, wide);
    }
  }

  void reorder(std::byte* tensor, std::byte* plain) {
    if (!out_) std::swap(tensor, plain);
    reorder_->run({{&tensor, 1}, {&plain, 1}, workspace_.data(), nullptr});
  }

  bool out_;
  graph::DataType wire_;
  bool converts_;
  int64_t offset_ = 0;                  // of the rows in the tensor, bytes
  int64_t pieces_ = 1;                  // that are moved one after the other
  int64_t piece_bytes_ = 0;             // in the tensor
  int64_t piece_elements_ = 0;          // without padding
  std::unique_ptr<Kernel> reorder_;     // of a piece; null where the tensor is plain too
  std::vector<std::byte> workspace_;    // of the reorder
  std::vector<std::byte> own_scratch_;  // for a tensor whose rows do not lie apart
};

}  // namespace

std::unique_ptr<Kernel> make_row_copy(const RowCopyRequest& request) {
  return std::make_unique<RowCopy>(request);
}

}  // namespace millrace::kernels
