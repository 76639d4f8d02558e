#include "lockstep/exporting/onnx_model.h"

#include <array>
#include <cstring>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/log/proto.h"
#include "lockstep/log/proto_reader.h"

namespace lockstep::exporting {
namespace {

// ModelProto
constexpr int kIrVersion = 1, kProducer = 2, kProducerVersion = 3, kGraph = 7, kOpsetImport = 8;
constexpr int kOpsetVersion = 2;
// GraphProto
constexpr int kNode = 1, kGraphName = 2, kInitializer = 5, kGraphInput = 11, kGraphOutput = 12;
// NodeProto
constexpr int kNodeInput = 1, kNodeOutput = 2, kNodeName = 3, kOpType = 4, kNodeAttribute = 5;
// AttributeProto
constexpr int kAttributeName = 1, kFloat = 2, kInt = 3, kString = 4, kTensor = 5, kFloats = 7,
              kInts = 8, kAttributeType = 20;
enum AttributeType {
  kIsFloat = 1,
  kIsInt = 2,
  kIsString = 3,
  kIsTensor = 4,
  kIsFloats = 6,
  kIsInts = 7
};
// TensorProto
constexpr int kDims = 1, kDataType = 2, kTensorName = 8, kRawData = 9;
// ValueInfoProto, TypeProto, TypeProto.Tensor, TensorShapeProto, TensorShapeProto.Dimension
constexpr int kPortName = 1, kPortType = 2, kTensorType = 1, kElementType = 1, kShape = 2, kDim = 1,
              kDimValue = 1, kDimParam = 2;

constexpr std::array<std::pair<torch::ScalarType, std::int64_t>, 9> kTypes = {
    {{torch::kFloat32, 1},
     {torch::kUInt8, 2},
     {torch::kInt8, 3},
     {torch::kInt16, 5},
     {torch::kInt32, 6},
     {torch::kInt64, 7},
     {torch::kBool, 9},
     {torch::kFloat16, 10},
     {torch::kFloat64, 11}}};

torch::ScalarType torch_type(std::int64_t type) {
  for (const auto& [own, number] : kTypes) {
    if (number == type) return own;
  }
  throw DataError("ONNX: a tensor has the unknown type {}", type);
}

// The version of the file format that came with an operator set.
std::int64_t ir_version(std::int64_t opset) {
  if (opset <= 14) return 7;
  if (opset <= 18) return 8;
  return opset <= 20 ? 9 : 10;
}

ProtoMessage encode_tensor(const std::string& name, const torch::Tensor& tensor) {
  const torch::Tensor own = tensor.detach().contiguous();
  ProtoMessage message;
  for (const std::int64_t size : own.sizes()) message.integer(kDims, size);
  message.integer(kDataType, onnx_type(own.scalar_type()));
  if (!name.empty()) message.bytes(kTensorName, name);
  return message.bytes(kRawData, {static_cast<const char*>(own.data_ptr()), own.nbytes()});
}

ProtoMessage encode_attribute(const std::string& name, const OnnxAttribute& attribute) {
  ProtoMessage message;
  message.bytes(kAttributeName, name);
  struct Write {
    ProtoMessage& to;
    AttributeType operator()(std::int64_t value) const { return to.integer(kInt, value), kIsInt; }
    AttributeType operator()(double value) const {
      return to.float32(kFloat, static_cast<float>(value)), kIsFloat;
    }
    AttributeType operator()(const std::string& value) const {
      return to.bytes(kString, value), kIsString;
    }
    AttributeType operator()(const std::vector<std::int64_t>& values) const {
      for (const std::int64_t value : values) to.integer(kInts, value);
      return kIsInts;
    }
    AttributeType operator()(const std::vector<double>& values) const {
      for (const double value : values) to.float32(kFloats, static_cast<float>(value));
      return kIsFloats;
    }
    AttributeType operator()(const torch::Tensor& value) const {
      return to.message(kTensor, encode_tensor("", value)), kIsTensor;
    }
  };
  return message.integer(kAttributeType, std::visit(Write{message}, attribute));
}

ProtoMessage encode_node(const OnnxNode& node) {
  ProtoMessage message;
  for (const std::string& input : node.inputs) message.bytes(kNodeInput, input);
  for (const std::string& output : node.outputs) message.bytes(kNodeOutput, output);
  message.bytes(kNodeName, node.name).bytes(kOpType, node.op);
  for (const auto& [name, attribute] : node.attributes) {
    message.message(kNodeAttribute, encode_attribute(name, attribute));
  }
  return message;
}

ProtoMessage encode_port(const Port& port) {
  ProtoMessage shape;
  for (const PortSize& size : port.sizes) {
    ProtoMessage dimension;
    if (const auto* const number = std::get_if<std::int64_t>(&size)) {
      dimension.integer(kDimValue, *number);
    } else {
      dimension.bytes(kDimParam, std::get<std::string>(size));
    }
    shape.message(kDim, dimension);
  }
  ProtoMessage tensor;
  tensor.integer(kElementType, onnx_type(port.type)).message(kShape, shape);
  ProtoMessage message;
  return message.bytes(kPortName, port.name)
      .message(kPortType, ProtoMessage().message(kTensorType, tensor));
}

template <typename Function>
void each_field(std::string_view message, const Function& function) {
  ProtoReader reader(message);
  while (const auto field = reader.next()) function(*field);
}

std::pair<std::string, torch::Tensor> decode_tensor(std::string_view message) {
  std::string name;
  std::vector<std::int64_t> sizes;
  std::int64_t type = 0;
  std::string_view raw;
  each_field(message, [&](const ProtoField& field) {
    if (field.number == kDims) sizes.push_back(field.integer());
    if (field.number == kDataType) type = field.integer();
    if (field.number == kTensorName) name = field.bytes;
    if (field.number == kRawData) raw = field.bytes;
  });
  torch::Tensor tensor = torch::empty(sizes, torch_type(type));
  if (tensor.nbytes() != raw.size()) {
    throw DataError("ONNX: tensor '{}': expected {} bytes, got {}", name, tensor.nbytes(),
                    raw.size());
  }
  if (!raw.empty()) std::memcpy(tensor.data_ptr(), raw.data(), raw.size());
  return {std::move(name), std::move(tensor)};
}

std::pair<std::string, OnnxAttribute> decode_attribute(std::string_view message) {
  std::string name, text;
  std::int64_t type = 0, integer = 0;
  double number = 0;
  std::vector<std::int64_t> integers;
  std::vector<double> numbers;
  torch::Tensor tensor;
  each_field(message, [&](const ProtoField& field) {
    if (field.number == kAttributeName) name = field.bytes;
    if (field.number == kAttributeType) type = field.integer();
    if (field.number == kFloat) number = field.float32();
    if (field.number == kInt) integer = field.integer();
    if (field.number == kString) text = field.bytes;
    if (field.number == kFloats) numbers.push_back(field.float32());
    if (field.number == kInts) integers.push_back(field.integer());
    if (field.number == kTensor) tensor = decode_tensor(field.bytes).second;
  });
  switch (type) {
    case kIsFloat:
      return {name, number};
    case kIsInt:
      return {name, integer};
    case kIsString:
      return {name, text};
    case kIsTensor:
      return {name, tensor};
    case kIsFloats:
      return {name, numbers};
    case kIsInts:
      return {name, integers};
    default:
      throw DataError("ONNX: attribute '{}' has the unknown type {}", name, type);
  }
}

OnnxNode decode_node(std::string_view message) {
  OnnxNode node;
  each_field(message, [&](const ProtoField& field) {
    if (field.number == kNodeInput) node.inputs.emplace_back(field.bytes);
    if (field.number == kNodeOutput) node.outputs.emplace_back(field.bytes);
    if (field.number == kNodeName) node.name = field.bytes;
    if (field.number == kOpType) node.op = field.bytes;
    if (field.number == kNodeAttribute) node.attributes.insert(decode_attribute(field.bytes));
  });
  return node;
}

std::vector<PortSize> decode_shape(std::string_view message) {
  std::vector<PortSize> sizes;
  each_field(message, [&](const ProtoField& dimension) {
    if (dimension.number != kDim) return;
    PortSize size;
    each_field(dimension.bytes, [&](const ProtoField& field) {
      if (field.number == kDimValue) size = field.integer();
      if (field.number == kDimParam) size = std::string(field.bytes);
    });
    sizes.push_back(std::move(size));
  });
  return sizes;
}

Port decode_port(std::string_view message) {
  Port port;
  each_field(message, [&](const ProtoField& field) {
    if (field.number == kPortName) port.name = field.bytes;
    if (field.number != kPortType) return;
    each_field(field.bytes, [&](const ProtoField& type) {
      if (type.number != kTensorType) return;
      each_field(type.bytes, [&](const ProtoField& part) {
        if (part.number == kElementType) port.type = torch_type(part.integer());
        if (part.number == kShape) port.sizes = decode_shape(part.bytes);
      });
    });
  });
  return port;
}

void decode_graph(std::string_view message, OnnxModel& model) {
  each_field(message, [&](const ProtoField& field) {
    if (field.number == kNode) model.nodes.push_back(decode_node(field.bytes));
    if (field.number == kGraphName) model.name = field.bytes;
    if (field.number == kInitializer) model.initializers.push_back(decode_tensor(field.bytes));
    if (field.number == kGraphInput) model.inputs.push_back(decode_port(field.bytes));
    if (field.number == kGraphOutput) model.outputs.push_back(decode_port(field.bytes));
  });
}

}  // namespace

std::int64_t onnx_type(torch::ScalarType type) {
  for (const auto& [own, number] : kTypes) {
    if (own == type) return number;
  }
  throw ConfigError("export: ONNX files have no tensors of type {}; convert the model to float",
                    c10::toString(type));
}

std::string encode(const OnnxModel& model) {
  std::size_t weights = 0;
  for (const auto& [name, tensor] : model.initializers) weights += tensor.nbytes();
  if (weights >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw ConfigError(
        "export: the weights have {} bytes, but an ONNX file must be smaller than 2 GiB; export "
        "the model as TorchScript or safetensors",
        weights);
  }
  ProtoMessage graph;
  for (const OnnxNode& node : model.nodes) graph.message(kNode, encode_node(node));
  graph.bytes(kGraphName, model.name);
  for (const auto& [name, tensor] : model.initializers) {
    graph.message(kInitializer, encode_tensor(name, tensor));
  }
  for (const Port& port : model.inputs) graph.message(kGraphInput, encode_port(port));
  for (const Port& port : model.outputs) graph.message(kGraphOutput, encode_port(port));
  ProtoMessage message;
  message.integer(kIrVersion, ir_version(model.opset))
      .bytes(kProducer, "lockstep")
      .bytes(kProducerVersion, LOCKSTEP_VERSION)
      .message(kOpsetImport, ProtoMessage().integer(kOpsetVersion, model.opset))
      .message(kGraph, graph);
  return message.encoded();
}

OnnxModel decode(std::string_view bytes) {
  OnnxModel model;
  each_field(bytes, [&](const ProtoField& field) {
    if (field.number == kGraph) decode_graph(field.bytes, model);
    if (field.number != kOpsetImport) return;
    each_field(field.bytes, [&](const ProtoField& part) {
      if (part.number == kOpsetVersion) model.opset = part.integer();
    });
  });
  if (model.opset == 0) throw DataError("ONNX: the file does not say which operator set it uses");
  return model;
}

}  // namespace lockstep::exporting
