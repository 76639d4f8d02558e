#include "lockstep/launcher/node_messages.h"

#include "lockstep/base/text.h"

namespace lockstep::launcher {
namespace {

using rendezvous::FieldReader;
using rendezvous::FieldWriter;

int small(FieldReader& fields) {
  return static_cast<int>(fields.integer());
}

// Texts of another host are shown to the user.
std::string shown(FieldReader& fields) {
  return printable_lines(fields.text());
}

void write(FieldWriter& fields, const Generation& generation) {
  fields.integer(generation.number).integer(static_cast<std::int64_t>(generation.nodes.size()));
  for (const std::string& node : generation.nodes) fields.text(node);
}

Generation read_generation(FieldReader& fields) {
  Generation generation{.number = small(fields)};
  const std::int64_t count = fields.integer();
  // One by one, so that a wrong count runs out of fields, not of memory.
  for (std::int64_t i = 0; i < count; ++i) generation.nodes.push_back(fields.text());
  return generation;
}

void write(FieldWriter& fields, const std::optional<AttemptFailure>& failure) {
  fields.integer(failure ? 1 : 0);
  if (failure) write_failure(fields, *failure);
}

std::optional<AttemptFailure> read_optional_failure(FieldReader& fields) {
  if (fields.integer() == 0) return std::nullopt;
  return read_failure(fields);
}

void write(FieldWriter& fields, const RunState& state) {
  fields.integer(state.shards).integer(state.threads);
  fields.integer(static_cast<std::int64_t>(state.failures.size()));
  for (const AttemptFailure& failure : state.failures) write_failure(fields, failure);
}

RunState read_state(FieldReader& fields) {
  RunState state;
  state.shards = small(fields);
  state.threads = small(fields);
  const std::int64_t count = fields.integer();
  for (std::int64_t i = 0; i < count; ++i) state.failures.push_back(read_failure(fields));
  return state;
}

}  // namespace

void write_failure(FieldWriter& fields, const AttemptFailure& failure) {
  fields.integer(failure.attempt)
      .integer(failure.rank)
      .integer(static_cast<int>(failure.kind))
      .integer(failure.epoch)
      .integer(failure.batch)
      .integer(failure.shell_code)
      .integer(static_cast<int>(failure.blame))
      .text(failure.how);
}

AttemptFailure read_failure(FieldReader& fields) {
  AttemptFailure failure;
  failure.attempt = small(fields);
  failure.rank = small(fields);
  failure.kind = static_cast<process::FailureKind>(fields.integer());
  failure.epoch = fields.integer();
  failure.batch = fields.integer();
  failure.shell_code = small(fields);
  failure.blame = static_cast<Blame>(fields.integer());
  failure.how = shown(fields);
  return failure;
}

std::string encode(const NodeDescription& node) {
  FieldWriter fields;
  fields.text(node.id).text(node.host).integer(node.ranks).integer(node.cores);
  write(fields, node.agreed);
  write(fields, node.begun);
  write(fields, node.state);
  return fields.integer(node.saw_end ? 1 : 0).payload();
}

NodeDescription decode_node(std::string_view payload) {
  FieldReader fields(payload);
  NodeDescription node;
  node.id = fields.text();
  node.host = shown(fields);
  node.ranks = small(fields);
  node.cores = small(fields);
  node.agreed = read_generation(fields);
  node.begun = read_generation(fields);
  node.state = read_state(fields);
  node.saw_end = fields.integer() != 0;
  return node;
}

std::string encode(const GenerationPart& part) {
  FieldWriter fields;
  write(fields, part.generation);
  write(fields, part.state);
  fields.integer(part.node_rank)
      .integer(part.first_rank)
      .integer(part.world_size)
      .integer(part.port)
      .text(part.run_id)
      .text(part.why);
  write(fields, part.cause);
  return fields.payload();
}

GenerationPart decode_part(std::string_view payload) {
  FieldReader fields(payload);
  GenerationPart part;
  part.generation = read_generation(fields);
  part.state = read_state(fields);
  part.node_rank = small(fields);
  part.first_rank = small(fields);
  part.world_size = small(fields);
  part.port = small(fields);
  part.run_id = fields.text();
  part.why = shown(fields);
  part.cause = read_optional_failure(fields);
  return part;
}

std::string encode(const GenerationOutcome& outcome) {
  FieldWriter fields;
  fields.integer(outcome.generation).integer(outcome.well ? 1 : 0);
  write(fields, outcome.failure);
  return fields.payload();
}

GenerationOutcome decode_outcome(std::string_view payload) {
  FieldReader fields(payload);
  GenerationOutcome outcome{.generation = small(fields)};
  outcome.well = fields.integer() != 0;
  outcome.failure = read_optional_failure(fields);
  return outcome;
}

std::string encode(const StopOrder& order) {
  return FieldWriter().integer(order.generation).text(order.why).payload();
}

StopOrder decode_stop(std::string_view payload) {
  FieldReader fields(payload);
  StopOrder order{.generation = small(fields)};
  order.why = shown(fields);
  return order;
}

std::string encode(const RunEnd& end) {
  return FieldWriter().integer(end.code).text(end.text).payload();
}

RunEnd decode_end(std::string_view payload) {
  FieldReader fields(payload);
  RunEnd end{.code = small(fields)};
  end.text = shown(fields);
  return end;
}

std::string encode(const CoordinatorStatus& status) {
  return FieldWriter().integer(status.generation).integer(status.active ? 1 : 0).payload();
}

CoordinatorStatus decode_status(std::string_view payload) {
  FieldReader fields(payload);
  CoordinatorStatus status{.generation = small(fields)};
  status.active = fields.integer() != 0;
  return status;
}

}  // namespace lockstep::launcher
