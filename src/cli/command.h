// The subcommands of `millrace`. Each adds its flags to the program and, when chosen by the
// user, sets the action that runs after parsing; an action returns the exit status.
#pragma once

#include <CLI/App.hpp>
#include <functional>

namespace millrace::comm {
class MpiSession;
}  // namespace millrace::comm

namespace millrace::cli {

class Interruption;

using Action = std::function<int()>;

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitJobFailed = 1;
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitInterrupted = 130;

// `session` joins this process with the other ranks of its job; null if it is alone. Commands that
// leave something behind tell `interruption` what; the others may be ended anywhere.
void add_train_command(CLI::App& program, Action& chosen, comm::MpiSession* session,
                       Interruption& interruption);
void add_plan_command(CLI::App& program, Action& chosen, comm::MpiSession* session);
void add_profile_command(CLI::App& program, Action& chosen, comm::MpiSession* session);
void add_tune_command(CLI::App& program, Action& chosen, Interruption& interruption);
void add_eval_command(CLI::App& program, Action& chosen);
void add_predict_command(CLI::App& program, Action& chosen);
void add_embed_command(CLI::App& program, Action& chosen);
void add_verify_command(CLI::App& program, Action& chosen);
void add_export_command(CLI::App& program, Action& chosen);
void add_data_command(CLI::App& program, Action& chosen, Interruption& interruption);
void add_ckpt_command(CLI::App& program, Action& chosen);
void add_bench_command(CLI::App& program, Action& chosen, comm::MpiSession* session,
                       Interruption& interruption);
void add_report_command(CLI::App& program, Action& chosen);
void add_demo_command(CLI::App& program, Action& chosen, Interruption& interruption);

}  // namespace millrace::cli
