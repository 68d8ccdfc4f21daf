// What host programs call beside kernels: ATen's operators by name, and functions of the runtime's own.
#pragma once

#include "values.h"

#include <ATen/core/Tensor.h>

#include <unordered_set>

namespace tracework {

// An operator, "aten::add", whichever overload takes the arguments, or one of them, "aten::add" and "Tensor". Null where there is none.
Function find_operator(const std::string &name);
Function find_overload(const std::string &name, const std::string &overload);
// A method of tensors.
Function tensor_method(const std::string &name);
// What a path in a host program's text calls: "torch.addmm", "torch.ops.aten.mm.default", "unwritten". Null where only Python has it.
Function find_function(const std::string &path);

// Functions that give functions, which a program calls once.
using Builder = std::function<Function(const std::vector<Part> &, Frame &)>;
const std::unordered_map<std::string, Builder> &builders();

// Where weights lie that nothing writes to: what is made of them alone may be kept. Filled while a program is loaded.
struct Fixed : torch::CustomClassHolder {
    std::unordered_set<const void *> storages;
};
void define_constants(Names &names, const c10::intrusive_ptr<Fixed> &fixed);

c10::ScalarType dtype_of(const std::string &name);
std::string dtype_name(c10::ScalarType dtype);
// A copy with these strides, which may overlap or leave gaps.
at::Tensor restrided(at::Tensor value, at::IntArrayRef strides);

} // namespace tracework
