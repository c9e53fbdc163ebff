// Weights that have no place of their own.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/model.h"

namespace millrace::api {

// A directory that goes with its last user.
std::shared_ptr<const std::filesystem::path> temporary_directory();

// Safetensors.
void write_state(const std::filesystem::path& file, const std::vector<NamedTensor>& state,
                 const std::map<std::string, std::string>& metadata);

}  // namespace millrace::api
