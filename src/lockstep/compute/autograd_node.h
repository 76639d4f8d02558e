// Nodes of the autograd graph. Older versions of LibTorch hold them by std::shared_ptr, newer ones
// by c10::intrusive_ptr.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

namespace lockstep::compute {

using NodePointer = decltype(torch::autograd::Edge::function);

// Makes a node as LibTorch would. The result converts to NodePointer.
template <std::derived_from<torch::autograd::Node> N, typename... Arguments>
auto make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<torch::autograd::Node>>) {
    // deleteNode() is found by the type of its argument. Newer versions do not have it.
    return std::shared_ptr<N>(new N(std::forward<Arguments>(arguments)...),
                              [](N* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<N>(std::forward<Arguments>(arguments)...);
  }
}

}  // namespace lockstep::compute
