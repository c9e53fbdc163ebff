// The module _millrace, which the package millrace shows.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "api/job.h"
#include "api/keywords.h"
#include "base/error.h"
#include "base/text.h"
#include "base/version.h"
#include "models/models.h"
#include "python/arrays.h"
#include "python/data.h"
#include "python/teams.h"
#include "python/training.h"

namespace millrace::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

// Its sentences name settings by their keywords.
template <typename Error>
void bind_error(nb::module_& module, const char* name, PyObject* base, const char* description) {
  const nb::exception<Error> type(module, name, base);
  type.attr("__doc__") = description;
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* raised) {
        try {
          std::rethrow_exception(thrown);
        } catch (const Error& error) {
          const std::string sentence = api::with_keywords(error.marked());
          const nb::object text = nb::steal(PyUnicode_DecodeUTF8(
              sentence.data(), static_cast<Py_ssize_t>(sentence.size()), "backslashreplace"));
          PyErr_SetObject(static_cast<PyObject*>(raised), text.ptr());
        }
      },
      type.ptr());
}

// Bytes as a number, or as text such as "4GiB".
int64_t to_bytes(const std::variant<int64_t, std::string>& given) {
  if (const auto* number = std::get_if<int64_t>(&given)) {
    if (*number < 0) fail_input("‹device_memory› is {}; give 0 bytes or more.", *number);
    return *number;
  }
  return static_cast<int64_t>(parse_bytes(std::get<std::string>(given), "device_memory"));
}

struct Timeline {
  std::string svg;
};

constexpr char kLoss[] = "loss", kTop1[] = "top1", kTop5[] = "top5";

template <const char* metric>
double figure(const train::EvaluationReport& report) {
  return report.figure(metric).value;
}

nb::dict to_dict(const std::vector<train::Measured>& figures) {
  nb::dict named;
  for (const train::Measured& one : figures) named[one.metric.c_str()] = one.value;
  return named;
}

void bind_reports(nb::module_& module) {
  nb::class_<train::StepReport>(module, "StepReport", "A finished step.")
      .def_ro("step", &train::StepReport::step, "Finished steps of the whole job.")
      .def_ro("total_steps", &train::StepReport::total_steps, "That the job has.")
      .def_ro("epoch", &train::StepReport::epoch, "That the step belonged to, from 0.")
      .def_ro("loss", &train::StepReport::loss, "Of the batch.")
      .def_ro("lr", &train::StepReport::learning_rate, "The learning rate.")
      .def_prop_ro(
          "figures", [](const train::StepReport& report) { return to_dict(report.figures); },
          nb::sig("def figures(self) -> dict[str, float]"), "Of the batch, by metric.")
      .def_ro("seconds", &train::StepReport::seconds, "Of this step, waiting for data included.")
      .def_ro("samples_per_second", &train::StepReport::samples_per_second, "The speed.");
  nb::class_<train::EvaluationReport>(module, "EvaluationReport",
                                      "Exact figures over a whole data set.")
      .def_ro("step", &train::EvaluationReport::step, "Finished steps of the job.")
      .def_ro("samples", &train::EvaluationReport::samples, "That were measured.")
      .def_prop_ro("loss", figure<kLoss>, "Mean cross-entropy.")
      .def_prop_ro("top1", figure<kTop1>, "Share whose class is the first told.")
      .def_prop_ro("top5", figure<kTop5>, "Share whose class is among the first five.")
      .def_prop_ro(
          "figures", [](const train::EvaluationReport& report) { return to_dict(report.figures); },
          nb::sig("def figures(self) -> dict[str, float]"),
          "Every figure by the name of its metric.")
      .def_ro("seconds", &train::EvaluationReport::seconds, "That measuring took.")
      .def("__repr__", [](const train::EvaluationReport& report) {
        return fmt::format("<{} samples: {}>", report.samples, report.text());
      });
  nb::class_<api::Plan>(module, "Plan", "The memory and time of a job, known beforehand.")
      .def_prop_ro("fits", &api::Plan::fits, "Whether it needs no more memory than there may be.")
      .def_prop_ro("peak_bytes", &api::Plan::peak_bytes, "Of the device that needs the most.")
      .def_prop_ro("seconds_per_step", &api::Plan::seconds_per_step, "Predicted.")
      .def_prop_ro("samples_per_second", &api::Plan::samples_per_second, "Predicted.")
      .def("json", &api::Plan::json, "As `millrace plan --json` prints it.")
      .def("__str__", &api::Plan::text)
      .def("__repr__", &api::Plan::text)
      .def("__getstate__", &api::Plan::json)
      .def("__setstate__", [](api::Plan& plan, const std::string& text) {
        new (&plan) api::Plan(api::Plan::parse(text));
      });
  nb::class_<api::Report>(module, "Report",
                          "What runs wrote, side by side; shows itself in notebooks.")
      .def(nb::new_([](const std::vector<std::filesystem::path>& paths) {
             return without_lock([&] { return api::Report(paths); });
           }),
           "paths"_a,
           "Of directories of runs, or of files of summaries, metrics, traces and plans.")
      .def_prop_ro("page", &api::Report::page, "A page of HTML that needs no other file.")
      .def("__str__", &api::Report::text);
  nb::class_<Timeline>(module, "Timeline", "What each device did when; shows itself in notebooks.")
      .def(nb::new_([](const std::filesystem::path& trace, int64_t steps) {
             return without_lock([&] { return Timeline{api::timeline_of(trace, steps)}; });
           }),
           "trace"_a, "steps"_a = 2, "Of some steps of a trace, the file that a job's trace names.")
      .def_ro("svg", &Timeline::svg, "The picture.")
      .def("_repr_svg_", [](const Timeline& timeline) { return timeline.svg; });
}

nb::dict state_of(const api::Model& model) {
  nb::dict state;
  for (api::NamedTensor& tensor : without_lock([&] { return model.state(); })) {
    const std::string name = tensor.name;
    state[name.c_str()] = to_numpy(std::move(tensor));
  }
  return state;
}

void freeze(api::Model& model, std::vector<std::string> layers,
            std::vector<std::string> train_only) {
  if (layers.empty() == train_only.empty()) {
    fail_input("Give the layers to freeze, or train_only= those that are trained.");
  }
  if (train_only.empty()) return model.freeze(std::move(layers));
  model.train_only(std::move(train_only));
}

// A few pictures are seen at once, here; many on a thread of their own, for signals.
template <typename Look>
api::Rows looked(const api::Pictures& pictures, Look&& look) {
  constexpr int64_t kFew = 8;
  end_teams();
  if (pictures.count <= kFew) return without_lock([&] { return look(nullptr); });
  return attended([&](std::atomic<bool>& stop) { return look(&stop); });
}

void bind_model(nb::module_& module) {
  nb::class_<api::Model>(module, "Model", "A network, with weights or without.")
      .def_prop_ro("name", &api::Model::name, "As model() takes it.")
      .def_prop_ro("classes", &api::Model::classes, "That it tells apart.")
      .def_prop_ro("image", &api::Model::image, "Height and width of its images.")
      .def_prop_ro("class_names", &api::Model::class_names, "If it knows them.")
      .def("__repr__",
           [](const api::Model& model) {
             return fmt::format("<{}: {} classes, images of {} x {}>", model.name(),
                                model.classes(), model.image(), model.image());
           })
      .def("freeze", &freeze, "layers"_a = std::vector<std::string>(), nb::kw_only(),
           "train_only"_a = std::vector<std::string>(),
           "Leaves layers untrained, by patterns such as \"layer4.*\": these, or all but those.")
      .def("evaluate", &evaluate, "data"_a, nb::kw_only(), "metrics"_a = nb::dict(),
           nb::sig("def evaluate(self, data: DataPart | None, *, metrics: dict[str, "
                   "collections.abc.Callable[[numpy.ndarray, numpy.ndarray], float]] = {}) -> "
                   "EvaluationReport"),
           "Loss and accuracy over all of the data, and figures of one's own: functions of the\n"
           "scores (samples x classes) and labels, by name.")
      .def(
          "predict",
          [](api::Model& model, const Array& images) {
            const api::Pictures pictures = to_pictures(images);
            return to_numpy(looked(pictures, [&](const std::atomic<bool>* stop) {
              return model.predict(pictures, stop);
            }));
          },
          nb::arg("images").noconvert(),
          nb::sig("def predict(self, images: object) -> numpy.ndarray"),
          "The scores of each class (logits, float32) for pictures: uint8,\n"
          "count x height x width x channels, of any size.")
      .def(
          "embed",
          [](api::Model& model, const Array& images) {
            const api::Pictures pictures = to_pictures(images);
            return to_numpy(looked(pictures, [&](const std::atomic<bool>* stop) {
              return model.embed(pictures, stop);
            }));
          },
          nb::arg("images").noconvert(),
          nb::sig("def embed(self, images: object) -> numpy.ndarray"),
          "Embeddings of faces, of unit length.")
      .def_prop_ro("state", &state_of, nb::sig("def state(self) -> dict[str, numpy.ndarray]"),
                   "Parameters and statistics by name, as numpy arrays.")
      .def(
          "save",
          [](const api::Model& model, const std::filesystem::path& file) {
            without_lock([&] { model.save(file); });
          },
          "file"_a, "Writes safetensors with class names and recipe.")
      .def(
          "export",
          [](const api::Model& model, const std::filesystem::path& file, bool fold, int64_t opset) {
            without_lock([&] { model.export_onnx(file, {.fold = fold, .opset = opset}); });
          },
          "file"_a, nb::kw_only(), "fold"_a = false, "opset"_a = 17, "Writes an ONNX file.");
  module.def(
      "model",
      [](const std::string& name, int64_t classes, int64_t image, int64_t channels,
         const std::optional<std::filesystem::path>& weights, bool best, bool dropout, int threads,
         const std::optional<nb::dict>& state) {
        api::ModelSettings settings = {.classes = classes,
                                       .image = image,
                                       .channels = channels,
                                       .weights = weights.value_or(""),
                                       .best = best,
                                       .dropout = dropout,
                                       .threads = threads};
        if (!state) return without_lock([&] { return api::Model(name, settings); });
        if (weights) fail_input("Give weights= or state=, not both.");
        const std::vector<api::NamedTensor> tensors = to_state(*state);
        return without_lock([&] { return api::Model::from_state(tensors, name, settings); });
      },
      "name"_a = "", nb::kw_only(), "classes"_a = 0, "image"_a = 0, "channels"_a = 0,
      "weights"_a = nb::none(), "best"_a = false, "dropout"_a = true, "threads"_a = 0,
      "state"_a = nb::none(),
      "A network by name or \"onnx:FILE\", with weights of a file, a run's directory or a\n"
      "checkpoint, or of arrays of float32 by name (state); without a name it is the one that the\n"
      "weights are of.");
  module.def("models", &models::model_names, "The names of all models.");
}

api::Job make_job(const api::Model& model, const api::DataPart& data,
                  const std::optional<api::DataPart>& valid, int64_t batch, int64_t epochs,
                  int64_t steps, const std::string& optimizer, std::optional<double> rate,
                  const std::string& schedule, const std::vector<int64_t>& milestones,
                  std::optional<double> decay, double momentum, double smoothing, uint64_t seed,
                  int devices, int threads, const std::variant<int64_t, std::string>& memory,
                  const std::string& precision,
                  const std::optional<std::filesystem::path>& checkpoint, bool resume,
                  const std::optional<std::filesystem::path>& trace, const std::string& metric,
                  int64_t patience) {
  if (patience < 0) fail_input("‹patience› is {}; give 0 or more.", patience);
  const api::JobOptions options = {.batch = batch,
                                   .epochs = epochs,
                                   .steps = steps,
                                   .optimizer = optimizer,
                                   .learning_rate = rate,
                                   .schedule = schedule,
                                   .milestones = milestones,
                                   .weight_decay = decay,
                                   .momentum = momentum,
                                   .label_smoothing = smoothing,
                                   .seed = seed,
                                   .devices = devices,
                                   .threads = threads,
                                   .device_memory = to_bytes(memory),
                                   .precision = precision,
                                   .checkpoint = checkpoint.value_or(""),
                                   .resume = resume,
                                   .trace = trace.value_or(""),
                                   .metric = metric,
                                   .patience = patience};
  return without_lock([&] { return api::Job(model, data, valid, options); });
}

void bind_job(nb::module_& module) {
  nb::class_<api::Run>(module, "Run", "A finished run.")
      .def("__repr__",
           [](const api::Run& run) {
             const int64_t steps = run.result().step;
             return fmt::format("<run of {} step{}>", steps, steps == 1 ? "" : "s");
           })
      .def_prop_ro("best", &api::Run::best, "The model with the weights that were measured best.")
      .def_prop_ro("last", &api::Run::last, "The model with the weights of the end.")
      .def_prop_ro(
          "losses", [](const api::Run& run) { return run.result().losses; }, "Of each step.")
      .def_prop_ro(
          "steps", [](const api::Run& run) { return run.result().step; }, "Finished in all.")
      .def_prop_ro(
          "stopped", [](const api::Run& run) { return run.result().interrupted; },
          "Whether a callback or Ctrl-C ended it.")
      .def_prop_ro(
          "evaluation", [](const api::Run& run) { return run.result().evaluation; },
          "The last, or None.")
      .def_prop_ro(
          "timeline",
          [](const api::Run& run) {
            return without_lock([&] { return Timeline{run.timeline()}; });
          },
          "Of two steps; the job needs a trace.");
  nb::class_<api::Job>(module, "Job", "A model, data, and how to train.")
      .def(
          nb::new_(&make_job), "model"_a, "data"_a, nb::kw_only(), "valid"_a = nb::none(),
          "batch"_a = 32, "epochs"_a = 0, "steps"_a = 0, "optimizer"_a = "sgd", "lr"_a = nb::none(),
          "schedule"_a = "constant", "milestones"_a = std::vector<int64_t>{},
          "weight_decay"_a = nb::none(), "momentum"_a = 0.9, "label_smoothing"_a = 0.0,
          "seed"_a = 0, "devices"_a = 1, "threads"_a = 0, "device_memory"_a = int64_t{0},
          "precision"_a = "fp32", "checkpoint"_a = nb::none(), "resume"_a = false,
          "trace"_a = nb::none(), "metric"_a = "top1", "patience"_a = 0,
          "batch is of each device; one of epochs and steps is given; lr and weight_decay are the\n"
          "optimizer's usual unless given; milestones are the steps at which the schedule "
          "\"step\"\n"
          "lowers lr; checkpoint is the run's directory, trace a file for "
          "what\n"
          "every device did when.")
      .def(
          "plan",
          [](const api::Job& job, const std::variant<int64_t, std::string>& memory) {
            const int64_t bytes = to_bytes(memory);
            return attended([&](std::atomic<bool>&) { return job.plan(bytes); });
          },
          nb::kw_only(), "device_memory"_a = int64_t{0},
          "What the job will cost: exact memory, predicted time.")
      .def("train", &train, nb::kw_only(), "on_step"_a = nb::none(), "on_evaluation"_a = nb::none(),
           "on_message"_a = nb::none(),
           nb::sig(
               "def train(self, *, on_step: collections.abc.Callable[[StepReport], object] | None "
               "= None, on_evaluation: collections.abc.Callable[[EvaluationReport], object] | "
               "None = None, on_message: collections.abc.Callable[[str], object] | None = None) "
               "-> Run"),
           "Trains to the end. on_step(report) ends the run after this step by False; what a\n"
           "callback raises ends it too and is raised here, and so is KeyboardInterrupt.");
}

}  // namespace
}  // namespace millrace::python

NB_MODULE(_millrace, module) {
  using namespace millrace;
  using namespace millrace::python;
  module.attr("__version__") = kVersion.data();
  bind_error<InputError>(module, "InputError", PyExc_ValueError,
                         "A mistake in what was asked for or in a file, with one sentence.");
  bind_error<JobError>(module, "JobError", PyExc_RuntimeError,
                       "A job that failed, with one sentence.");
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&stop_attended));
  bind_data(module);
  bind_reports(module);
  bind_model(module);
  bind_job(module);
}
