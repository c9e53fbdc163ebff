// Sizes that the operators of the margin head share with their kernels and with whoever plans
// memory. Everything here is a function of the attributes and of the shapes alone.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "graph/attributes.h"
#include "graph/types.h"

namespace millrace::graph {

// A head's part of the classes: [class_begin, class_begin + local_classes) of `classes`.
struct ClassRange {
  int64_t classes = 0;
  int64_t begin = 0;
  int64_t local = 0;
};

// How a head lies on several devices: every device has all centres; the centres are divided by
// class; or they are, and a step uses a sample of them. On one device dp and mp are the same.
enum class HeadParallel : uint8_t { dp, mp, pfc };

// What becomes of the momentum of a centre in a step that does not use it. `lazy`: it moves the
// centre and fades as in an optimizer that sees all centres, which is made up for when a step next
// uses it; `none`: there is no momentum, and steps are as large as it would make them in the end;
// `frozen`: it waits as it is.
enum class HeadMomentum : uint8_t { lazy, none, frozen };

// Where a sample's margin comes from. `fixed`: it is the same for all. `quality` (AdaFace): it
// follows from the length of its embedding beside those of other samples. `magnitude` (MagFace): it
// grows with that length, which is pulled up by a penalty. `curriculum` (CurricularFace): it is
// fixed, and classes that are nearer than the target with its margin count more as training goes
// on.
enum class HeadMargin : uint8_t { fixed, quality, magnitude, curriculum };

// What a user decides about a head. ArcFace is addend 0.5, CosFace subtrahend 0.4; a plain
// softmax over cosines has no margin at all.
struct MarginHeadOptions {
  int64_t classes = 0;
  int64_t class_begin = 0;    // this part's first class
  int64_t local_classes = 0;  // in this part; 0: all
  double multiplier = 1;      // of the target's angle
  double addend = 0;          // to the target's angle
  double subtrahend = 0;      // from the target's cosine
  HeadMargin margin = HeadMargin::fixed;
  double strength = 0;  // quality: h of AdaFace; magnitude: the margin of the longest embeddings
  double filter = 0;  // other classes with a cosine above this count as at right angles; 0: none do
  double scale = 64;
  bool exact_gradient = true;  // false: the target's gradient is that of the plain cosine
  HeadParallel parallel = HeadParallel::mp;
  double sample_rate = 1;                      // of pfc; 1 uses every class in every step
  HeadMomentum momentum = HeadMomentum::lazy;  // matters where a step leaves centres out
  DataType storage = DataType::f32;            // of the centres and their state
  int64_t cache_bytes = int64_t{256} << 20;
};

// Names of the parameters of a face network's head, linear or with a margin, start with this; the
// network can do without it.
inline constexpr std::string_view kHeadPrefix = "head.";

// The attributes that the head's operators share.
Attributes attributes_of(const MarginHeadOptions& options);

ClassRange class_range_of(const Attributes& attributes);

// Classes that a step uses when the batch has few of them: floor(rate * local).
int64_t sampled_classes(double sample_rate, int64_t local_classes);

// The tensor "sample" is s32: the number of classes in use, how many of them the labels have, two
// words of a key, then for each row of the batch the position of its class (-1: in another part),
// then the classes of the labels in order, counted from the part's first. kernels/head/sampling.h
// makes and reads it. The labels are those of the batch, or of a step of which it is a part.
int64_t sample_elements(int64_t batch, int64_t labels);

// The second input of margin_head_sample where a step has several micro-batches and uses a sample
// of the classes: the labels of all of them, some perhaps several times.
inline constexpr std::string_view kStepLabels = "step_labels";

// What is a sample's own: its margin, and what its loss has beside the cross-entropy. With
// HeadMargin::curriculum the first two are the logit above which other classes count more, and by
// how much. A tensor of rows like this is an input of margin_head_statistics where the margin is
// not fixed.
struct SampleMargin {
  float addend;
  float subtrahend;
  float penalty;
};
inline constexpr int64_t kSampleMargins = 3;

// What a part says of each sample, in this order: the largest logit of the classes that are not its
// own, the sum of e^(logit - largest) over them (0 and 0 if the part has none), the logit of its
// own class with the margin and without (kElsewhere if the class is in another part), and its
// margin. The own class stands apart so that neither its loss nor its gradient is a difference of
// nearly equal numbers.
struct HeadStatistics {
  float maximum;
  float sum;
  float target;
  float plain;
  SampleMargin margin;
};
inline constexpr int64_t kHeadStatistics = 4 + kSampleMargins;
// Of an operator's attributes.
HeadMargin head_margin_of(const Attributes& attributes);
// Smaller than any logit, and finite: values that are not are a sign of a broken job.
inline constexpr float kElsewhere = std::numeric_limits<float>::lowest();

// The attribute "lazy" says that centres which a step does not use are brought up to date when one
// next does. Behind the centres the operators then read their states, for each centre the update up
// to which it is current ("head.centres.current", s32), and "head.rates" (f32): the number of
// updates so far, those that the optimizer had made before the first of them, and the learning
// rates of the last kHeadHistory. A centre that no step uses for longer waits: its momentum is
// gone, and only its length would change. kernels/head/row_clock.h reads and writes them.
inline constexpr int64_t kHeadHistory = 4096;
inline constexpr int64_t kHeadRates = 2 + kHeadHistory;
inline constexpr std::string_view kHeadRatesName = "head.rates";
inline constexpr std::string_view kHeadCurrentSuffix = ".current";

// Whether the optimizer makes the head of these attributes lazy.
bool wants_lazy_updates(const Attributes& attributes);

// Classes are worked on in blocks of this many rows, so that a block and what is made of it
// stay in a core's cache.
int64_t head_block_rows(int64_t batch, int64_t dimension);

// The products of embeddings and centres that fit into the attribute "cache_bytes" are kept from
// the forward to the backward half, as whole blocks; at least one.
int64_t head_cache_blocks(int64_t cache_bytes, int64_t classes_in_use, int64_t batch,
                          int64_t dimension);

}  // namespace millrace::graph
