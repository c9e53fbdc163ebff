#include <fmt/format.h>

#include "base/text.h"
#include "train/plan.h"

namespace millrace::train {

std::string plan_text(const Json& plan) {
  std::string text;
  const auto add = [&]<typename... Parts>(fmt::format_string<Parts...> format, Parts&&... parts) {
    text += fmt::format(format, std::forward<Parts>(parts)...);
  };
  add("{}, batch {}, {}: {}, {} threads each, {}\n\n", plan["model"].get<std::string>(),
      plan["global_batch"].get<int64_t>(), plan["schedule"].get<std::string>(),
      plan["plan"]["placement"].get<std::string>(), plan["threads_per_device"].get<int>(),
      plan["arithmetic"].get<std::string>());
  // Devices of a stage mostly need the same; those that do stand in one line.
  const Json& devices = plan["devices"];
  for (size_t i = 0; i < devices.size();) {
    size_t end = i + 1;
    while (end < devices.size() && devices[end]["stage"] == devices[i]["stage"] &&
           devices[end]["breakdown"] == devices[i]["breakdown"]) {
      ++end;
    }
    const auto first = devices[i]["id"].get<std::string>();
    const auto last = devices[end - 1]["id"].get<std::string>();
    add("stage {}, device{}\n", devices[i]["stage"].get<int>(),
        end == i + 1 ? " " + first : "s " + first + " to " + last);
    for (const auto& [name, bytes] : devices[i]["breakdown"].items()) {
      add("  {:<14}{:>12}\n", name, format_bytes(bytes.get<uint64_t>()));
    }
    add("  {:<14}{:>12}\n\n", "peak", format_bytes(devices[i]["peak_bytes"].get<uint64_t>()));
    i = end;
  }
  add("About {:.2f} s per step, {:.1f} samples/s, by formula; `plan --predict` measures first.\n",
      plan["predicted_seconds_per_step"].get<double>(),
      plan["predicted_samples_per_second"].get<double>());
  if (plan.contains("device_memory_bytes")) {
    add("{} the limit of {}.\n", plan["fits"].get<bool>() ? "Fits" : "Does not fit",
        format_bytes(plan["device_memory_bytes"].get<uint64_t>()));
  }
  const auto needed = plan["host_needs_bytes"].get<uint64_t>();
  const auto there = plan["host_memory_bytes"].get<uint64_t>();
  add("{} on a host, of {} that this one has{}.\n", format_bytes(needed), format_bytes(there),
      needed > there ? ": the job does not fit here" : "");
  if (plan["recomputed_costly"].get<int>() > 0) {
    add("{} operators run again in the backward pass, with up to {:.0f} % more arithmetic.\n",
        plan["recomputed"].get<int>(), 100 * plan["recomputed_share"].get<double>());
  }
  if (plan.contains("reason")) add("{}\n", plan["reason"].get<std::string>());
  if (plan.contains("advice")) add("{}\n", plan["advice"].get<std::string>());
  return text;
}

}  // namespace millrace::train
