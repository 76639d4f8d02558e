#include "lockstep/science/parameters.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::science {
namespace {

nlohmann::ordered_json to_json(const data::ChannelScaling& scaling) {
  return {
      {"kind", data::name_of(scaling.kind)}, {"shift", scaling.shift}, {"scale", scaling.scale}};
}

data::ChannelScaling scaling_from(const nlohmann::json& json) {
  data::ChannelScaling scaling{.kind = data::normalization_of(json.at("kind").get<std::string>()),
                               .shift = json.at("shift").get<std::vector<double>>(),
                               .scale = json.at("scale").get<std::vector<double>>()};
  scaling.check();
  return scaling;
}

}  // namespace

void save_parameters(const std::filesystem::path& folder, const SavedParameters& saved) {
  nlohmann::ordered_json json;
  json["estimator"] = saved.estimator;
  json["parameters"] = nlohmann::json::object();
  for (const auto& [name, value] : saved.parameters) {
    std::visit([&, key = name](const auto& held) { json["parameters"][key] = held; }, value);
  }
  if (saved.shape) {
    json["shape"] = {{"channels", saved.shape->channels},
                     {"size", saved.shape->size},
                     {"outputs", saved.shape->outputs}};
  }
  if (!saved.scaling.is_none()) {
    json["scaling"] = {{"features", to_json(saved.scaling.features)},
                       {"targets", to_json(saved.scaling.targets)}};
  }
  write_file_atomically(folder / "params.json", json.dump(2) + "\n");
}

SavedParameters load_parameters(const std::filesystem::path& folder, const std::string& estimator) {
  const std::filesystem::path path = folder / "params.json";
  return reading<CheckpointError>({.path = path}, [&] {
    const auto json = nlohmann::json::parse(read_file(path));
    SavedParameters saved{.estimator = json.at("estimator"), .parameters = {}, .shape = {}};
    if (saved.estimator != estimator) {
      throw CheckpointError("expected parameters of {}, got those of {}", estimator,
                            saved.estimator);
    }
    for (const auto& [name, value] : json.at("parameters").items()) {
      if (value.is_boolean()) saved.parameters[name] = value.get<bool>();
      if (value.is_number_integer()) saved.parameters[name] = value.get<std::int64_t>();
      if (value.is_number_float()) saved.parameters[name] = value.get<double>();
      if (value.is_string()) saved.parameters[name] = value.get<std::string>();
    }
    if (json.contains("shape")) {
      const auto& shape = json["shape"];
      saved.shape = FieldShape{.channels = shape.at("channels"),
                               .size = shape.at("size").get<Sizes>(),
                               .outputs = shape.at("outputs")};
    }
    if (json.contains("scaling")) {
      saved.scaling = {.features = scaling_from(json["scaling"].at("features")),
                       .targets = scaling_from(json["scaling"].at("targets"))};
    }
    return saved;
  });
}

}  // namespace lockstep::science
