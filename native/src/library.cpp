#include "library.h"

#include "archive.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>

namespace tracework {
namespace {

using c10::TypeKind;

// Arguments as a schema wants them

bool fit(IValue &value, const c10::Type &type, std::optional<int32_t> count);

template <class Item> bool fit_list(IValue &value, const c10::Type &element, std::optional<int32_t> count) {
    c10::List<Item> made;
    std::vector<IValue> items;
    if (value.isTuple()) {
        items = value.toTupleRef().elements().vec();
    } else if (value.isList()) {
        items = value.toListRef().vec();
    } else if (count) { // a number stands for so many
        items.assign(static_cast<size_t>(*count), value);
    } else {
        return false;
    }
    for (IValue &item : items) {
        if (!fit(item, element, std::nullopt)) {
            return false;
        }
        made.push_back(item.to<Item>());
    }
    value = std::move(made);
    return true;
}

bool fit_list_of(IValue &value, const c10::Type &element, std::optional<int32_t> count) {
    switch (element.kind()) {
    case TypeKind::IntType:
    case TypeKind::SymIntType:
        return fit_list<int64_t>(value, element, count);
    case TypeKind::FloatType:
        return fit_list<double>(value, element, count);
    case TypeKind::BoolType:
        return fit_list<bool>(value, element, count);
    case TypeKind::TensorType:
        return fit_list<at::Tensor>(value, element, std::nullopt);
    case TypeKind::OptionalType:
        return element.containedType(0)->kind() == TypeKind::TensorType ? fit_list<std::optional<at::Tensor>>(value, element, std::nullopt)
                                                                       : element.containedType(0)->kind() == TypeKind::NumberType &&
                                                                             fit_list<std::optional<at::Scalar>>(value, element, std::nullopt);
    default:
        return false;
    }
}

bool fit(IValue &value, const c10::Type &type, std::optional<int32_t> count) {
    switch (type.kind()) {
    case TypeKind::OptionalType:
        return value.isNone() || fit(value, *type.containedType(0), count);
    case TypeKind::TensorType:
        return value.isTensor();
    case TypeKind::IntType:
    case TypeKind::SymIntType:
        return value.isInt();
    case TypeKind::FloatType:
        if (value.isInt()) {
            value = static_cast<double>(value.toInt());
        }
        return value.isDouble();
    case TypeKind::BoolType:
        return value.isBool();
    case TypeKind::NumberType:
        return value.isScalar();
    case TypeKind::StringType:
        return value.isString();
    case TypeKind::DeviceObjType:
        return value.isDevice();
    case TypeKind::ListType:
        return fit_list_of(value, *type.containedType(0), count);
    default:
        return false;
    }
}

// The stack for a schema, or nothing where the arguments are none of its.
std::optional<std::vector<IValue>> stack_for(const c10::FunctionSchema &schema, const Arguments &given) {
    std::vector<IValue> stack;
    size_t place = 0, used = 0;
    for (const c10::Argument &argument : schema.arguments()) {
        std::optional<IValue> value;
        if (place < given.args.size() && !argument.kwarg_only()) {
            value = given.args[place++];
        } else {
            for (const auto &[name, item] : given.named) {
                if (name == argument.name()) {
                    value = item;
                    used++;
                }
            }
            value = value ? value : argument.default_value();
        }
        if (!value || !fit(*value, *argument.type(), argument.N())) {
            return std::nullopt;
        }
        stack.push_back(std::move(*value));
    }
    return place == given.args.size() && used == given.named.size() ? std::optional(std::move(stack)) : std::nullopt;
}

IValue called(const c10::OperatorHandle &handle, std::vector<IValue> stack) {
    handle.callBoxed(stack);
    return stack.empty() ? IValue() : stack.size() == 1 ? stack[0] : tuple_of(std::move(stack));
}

// Overloads by operator: first those without a name, then those of tensors.
const std::map<std::string, std::vector<c10::OperatorHandle>> &operators() {
    static const auto known = [] {
        auto &dispatcher = c10::Dispatcher::singleton();
        std::vector<c10::OperatorName> names = dispatcher.getAllOpNames();
        const auto rank = [](const c10::OperatorName &n) { return std::make_pair(n.overload_name.empty() ? 0 : n.overload_name == "Tensor" ? 1 : 2, n.overload_name); };
        std::sort(names.begin(), names.end(), [&](const auto &a, const auto &b) { return rank(a) < rank(b); });
        std::map<std::string, std::vector<c10::OperatorHandle>> made;
        for (const c10::OperatorName &name : names) {
            if (const auto found = dispatcher.findSchema(name)) {
                made[name.name].push_back(*found);
            }
        }
        return made;
    }();
    return known;
}

std::string joined(const std::vector<int64_t> &numbers) { // as Python shows a tuple
    std::string made;
    for (const int64_t number : numbers) {
        made += (made.empty() ? "" : ", ") + std::to_string(number);
    }
    return '(' + made + (numbers.size() == 1 ? ",)" : ")");
}

// What a host program asks of a library's result (tracework_runtime.results.expected).
Function expected(const std::vector<Part> &parts, Frame &frame) {
    const auto dtype = static_cast<c10::ScalarType>(parts.at(0).value(frame).toInt());
    const std::string name = parts.at(2).value(frame).toStringRef();
    return [=](Arguments &&given) -> IValue {
        at::Tensor value = given.args.at(0).toTensor();
        const std::vector<int64_t> sizes = integers_of(given.args.at(1)), strides = integers_of(given.args.at(2));
        const bool of_any_size = sizes.size() == 1 && sizes[0] == 0;
        const auto differs = [&](const char *what, const std::string &wanted, const std::string &found) {
            throw Failure(name + " gave a tensor of " + what + " " + found + " where the graph was compiled for " + wanted,
                          "make the file again with the torch that runs it");
        };
        if (value.scalar_type() != dtype) {
            differs("dtype", dtype_name(dtype), dtype_name(value.scalar_type()));
        }
        if (value.sizes() != at::IntArrayRef(sizes) && !of_any_size) {
            differs("size", joined(sizes), joined(value.sizes().vec()));
        }
        if (value.numel() == 0 || of_any_size || (value.storage_offset() == 0 && value.strides() == at::IntArrayRef(strides) && !value.is_conj() && !value.is_neg())) {
            return value;
        }
        bool same = value.storage_offset() == 0 && !value.is_conj() && !value.is_neg();
        for (size_t n = 0; n < sizes.size(); n++) {
            same = same && (sizes[n] == 1 || value.strides()[n] == strides[n]);
        }
        return same ? value.as_strided(sizes, strides).detach() : restrided(value, strides);
    };
}

// Packed weights (tracework_runtime.packed)

struct Calls {
    Function pack_convolution = find_operator("mkldnn::_reorder_convolution_weight");
    Function convolution_then = find_overload("mkldnn::_convolution_pointwise", "");
    Function convolution_plus = find_overload("mkldnn::_convolution_pointwise", "binary");
    Function pack_linear = find_operator("mkldnn::_reorder_linear_weight");
    Function linear_then = find_overload("mkldnn::_linear_pointwise", "");
    Function mm = find_operator("aten::mm"), addmm = find_operator("aten::addmm"), mul = find_operator("aten::mul");

    static const Calls &get() {
        static const Calls calls;
        if (!calls.pack_convolution || !calls.convolution_plus || !calls.pack_linear) {
            throw std::runtime_error("the program calls convolutions of a library (oneDNN) that this libtorch was built without");
        }
        return calls;
    }
};

constexpr int64_t LINEAR_ROWS = 16;

// A call with weights in the library's own layout, kept where they are made of what does not change.
class PackedCall {
  public:
    PackedCall(Function make, std::vector<IValue> settings) : make_(std::move(make)), settings_(std::move(settings)), calls_(Calls::get()) {}

    IValue operator()(Arguments &&given, const Fixed &fixed) {
        const at::Tensor x = given.args.at(0).toTensor();
        const IValue other = given.args.at(1); // then what is known, and what the weights are made of
        Arguments sources{{given.args.begin() + 3, given.args.end()}, {}};
        const bool keeps = std::all_of(sources.args.begin(), sources.args.end(), [&](const IValue &source) {
            return fixed.storages.count(source.toTensor().storage().data()) != 0;
        });
        std::vector<IValue> weights;
        if (keeps) {
            const std::lock_guard<std::mutex> lock(mutex_);
            weights = kept_ = kept_.empty() ? packed(x, std::move(sources)) : kept_;
        } else if (settings_.empty()) {
            const auto made = make_(std::move(sources)).toTupleRef().elements().vec();
            return made[1].isNone() ? calls_.mm({{x, made[0]}, {}}) : calls_.addmm({{made[1], x, made[0]}, {}});
        } else {
            weights = packed(x, std::move(sources));
        }
        const IValue nothing, none = tuple_of({});
        if (settings_.empty()) {
            return calls_.linear_then({{x, weights[0], weights[1], "none", none, ""}, {}});
        }
        const IValue &activation = settings_[0], &stride = settings_[1], &padding = settings_[2], &dilation = settings_[3], &groups = settings_[4];
        if (!other.isNone()) {
            return calls_.convolution_plus(
                {{x, other, weights[0], weights[1], padding, stride, dilation, groups, "add", 1.0, nothing, none, nothing}, {}});
        }
        return calls_.convolution_then({{x, weights[0], weights[1], padding, stride, dilation, groups, activation, none, nothing}, {}});
    }

  private:
    // The weights in the library's layout, and the bias.
    std::vector<IValue> packed(const at::Tensor &x, Arguments &&sources) const {
        const auto made = make_(std::move(sources)).toTupleRef().elements().vec();
        at::Tensor weight = made.at(0).toTensor();
        const IValue &bias = made.back();
        const IValue own = bias.isNone() ? bias : IValue(bias.toTensor().contiguous().clone());
        if (settings_.empty()) {
            return {calls_.pack_linear({{weight.t().contiguous(), LINEAR_ROWS}, {}}), own};
        }
        if (!made.at(1).isNone()) {
            weight = calls_.mul({{weight, made[1].toTensor().reshape({-1, 1, 1, 1})}, {}}).toTensor();
        }
        return {calls_.pack_convolution({{weight.contiguous(), settings_[2], settings_[1], settings_[3], settings_[4], x.sizes().vec()}, {}}), own};
    }

    Function make_;
    std::vector<IValue> settings_; // of a convolution
    const Calls &calls_;
    std::mutex mutex_;
    std::vector<IValue> kept_;
};

Function packed_call(const std::vector<Part> &parts, Frame &frame) {
    const auto fixed = parts.at(0).value(frame).toCapsule();
    std::vector<IValue> settings;
    for (size_t n = 2; n + 1 < parts.size(); n++) { // the last is a label
        settings.push_back(parts[n].value(frame));
    }
    auto call = std::make_shared<PackedCall>(parts.at(1).function, std::move(settings));
    return [call, fixed](Arguments &&given) { return (*call)(std::move(given), static_cast<const Fixed &>(*fixed)); };
}

const std::map<std::string, c10::ScalarType> &dtypes() {
    static const auto known = [] {
        std::map<std::string, c10::ScalarType> made;
        for (int n = 0; n < static_cast<int>(c10::ScalarType::NumOptions); n++) {
            try {
                made[dtype_name(static_cast<c10::ScalarType>(n))] = static_cast<c10::ScalarType>(n);
            } catch (const std::exception &) { // one that Python has no name for
            }
        }
        return made;
    }();
    return known;
}

Function extreme(const char *sign) {
    return [sign](Arguments &&given) {
        IValue made = given.args.at(0);
        for (const IValue &one : given.args) {
            made = is_true(combined(sign, one, made)) ? one : made;
        }
        return made;
    };
}

// A tensor over bytes of a workspace, which are a storage of their own: memory, first byte, bytes, dtype, sizes, strides, offset.
IValue window(Arguments &&given) {
    const at::Tensor memory = given.args.at(0).toTensor();
    const int64_t first = given.args.at(1).toInt(), size = given.args.at(2).toInt();
    const auto dtype = static_cast<c10::ScalarType>(given.args.at(3).toInt());
    const at::Tensor bytes = at::from_blob(
        memory.data_ptr<uint8_t>() + first, {std::max<int64_t>(size, 1)}, [memory](void *) {}, at::TensorOptions(at::kByte));
    const std::vector<int64_t> sizes = integers_of(given.args.at(4)), strides = integers_of(given.args.at(5));
    return at::empty({0}, at::TensorOptions(dtype)).set_(bytes.storage(), given.args.at(6).toInt(), sizes, strides);
}

const std::unordered_map<std::string, Function> &own_functions() {
    static const std::unordered_map<std::string, Function> known = {
        {"min", extreme("<")},
        {"Min", extreme("<")},
        {"max", extreme(">")},
        {"Max", extreme(">")},
        {"window", window},
        {"device", [](Arguments &&given) { return IValue(c10::Device(given.args.at(0).toStringRef())); }},
        {"empty_strided", find_operator("aten::empty_strided")},
        {"restride", [](Arguments &&given) { return IValue(restrided(given.args.at(0).toTensor(), integers_of(given.args.at(1)))); }},
        {"unwritten", [](Arguments &&) { return IValue(); }},         // nobody counts versions here
        {"packed_calls.look", [](Arguments &&) { return IValue(); }}, // whether weights have changed: nobody else has them
        {"prims.copy_into", find_operator("aten::copy_")},
        {"prims.topk", find_operator("aten::topk")},
        {"prims.sort", [sort = find_operator("aten::sort")](Arguments &&given) {
             const std::vector<IValue> &args = given.args; // x, dim, descending, stable
             return sort({{args.at(0)}, {{"dim", args.at(1)}, {"descending", args.at(2)}, {"stable", args.at(3)}}});
         }},
    };
    return known;
}

// Prims of one or two tensors that are ATen's function of that name, or torch.special's.
Function find_prim(const std::string &name) {
    static const std::unordered_set<std::string> plain = {"erfinv", "digamma", "i0", "gcd", "lcm", "igamma", "igammac"};
    static const std::unordered_set<std::string> special = {"i0e", "i1", "i1e", "erfcx", "ndtri", "log_ndtr", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"};
    return plain.count(name) ? find_operator("aten::" + name) : special.count(name) ? find_operator("aten::special_" + name) : nullptr;
}

} // namespace

Function find_operator(const std::string &name) {
    const auto found = operators().find(name);
    if (found == operators().end()) {
        return nullptr;
    }
    return [overloads = &found->second, name](Arguments &&given) {
        for (const c10::OperatorHandle &handle : *overloads) {
            if (auto stack = stack_for(handle.schema(), given)) {
                return called(handle, std::move(*stack));
            }
        }
        throw std::runtime_error("no overload of " + name + " takes the arguments that the program calls it with");
    };
}

Function find_overload(const std::string &name, const std::string &overload) {
    const auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
    if (!handle) {
        return nullptr;
    }
    return [handle = *handle, name](Arguments &&given) {
        auto stack = stack_for(handle.schema(), given);
        if (!stack) {
            throw std::runtime_error(name + " does not take the arguments that the program calls it with");
        }
        return called(handle, std::move(*stack));
    };
}

Function tensor_method(const std::string &name) {
    using Tensor = at::Tensor;
    static const std::unordered_map<std::string, Function> numbers = {
        {"storage_offset", [](Arguments &&given) { return IValue(given.args.at(0).toTensor().storage_offset()); }},
        {"stride", [](Arguments &&given) { return IValue(given.args.at(0).toTensor().strides().vec()); }},
        // two overloads that differ in what they take for one number
        {"reshape", [](Arguments &&given) {
             const Tensor self = given.args.at(0).toTensor();
             const IValue &shape = given.args.at(1);
             return IValue(self.reshape(shape.isInt() ? std::vector<int64_t>{shape.toInt()} : integers_of(shape)));
         }},
    };
    const auto found = numbers.find(name);
    return found != numbers.end() ? found->second : find_operator("aten::" + name);
}

Function find_function(const std::string &path) {
    if (const auto own = own_functions().find(path); own != own_functions().end()) {
        return own->second;
    }
    const auto after = [&](const std::string &start) { return path.rfind(start, 0) == 0 ? path.substr(start.size()) : std::string(); };
    if (const std::string named = after("torch.ops."); !named.empty()) {
        const size_t first = named.find('.'), second = named.find('.', first + 1);
        if (first == std::string::npos || second == std::string::npos) {
            return nullptr; // it goes on
        }
        const std::string overload = named.substr(second + 1);
        return find_overload(named.substr(0, first) + "::" + named.substr(first + 1, second - first - 1), overload == "default" ? "" : overload);
    }
    if (const std::string prim = after("prims."); !prim.empty()) {
        return find_prim(prim);
    }
    const std::string name = after("torch.");
    return name.empty() || name.find('.') != std::string::npos ? nullptr : find_operator("aten::" + name);
}

const std::unordered_map<std::string, Builder> &builders() {
    static const std::unordered_map<std::string, Builder> known = {
        {"expected", expected}, {"packed_convolution", packed_call}, {"packed_linear", packed_call}};
    return known;
}

void define_constants(Names &names, const c10::intrusive_ptr<Fixed> &fixed) {
    const auto define = [&](const std::string &name, IValue value) {
        names.define(name, {[value = std::move(value)](Frame &) { return value; }, nullptr, ""});
    };
    define("None", IValue());
    define("True", true);
    define("False", false);
    define("inf", std::numeric_limits<double>::infinity());
    define("nan", std::numeric_limits<double>::quiet_NaN());
    define("places", IValue());
    define("content_digest", IValue());
    define("packed_calls", IValue::make_capsule(fixed));
    for (const auto &[name, dtype] : dtypes()) {
        define(name, static_cast<int64_t>(dtype));
        define("torch." + name, static_cast<int64_t>(dtype));
    }
    define("torch.strided", static_cast<int64_t>(c10::Layout::Strided));
    define("torch.contiguous_format", static_cast<int64_t>(c10::MemoryFormat::Contiguous));
    define("torch.preserve_format", static_cast<int64_t>(c10::MemoryFormat::Preserve));
    define("torch.channels_last", static_cast<int64_t>(c10::MemoryFormat::ChannelsLast));
    define("torch.channels_last_3d", static_cast<int64_t>(c10::MemoryFormat::ChannelsLast3d));
}

std::string dtype_name(c10::ScalarType dtype) {
    return std::string(c10::getDtypeNames(dtype).first);
}

c10::ScalarType dtype_of(const std::string &name) {
    const auto found = dtypes().find(name);
    if (found == dtypes().end()) {
        throw std::runtime_error("a dtype " + name + ", which this libtorch does not have");
    }
    return found->second;
}

at::Tensor restrided(at::Tensor value, at::IntArrayRef strides) {
    const at::Tensor made = at::detail::empty_strided_cpu(value.sizes(), strides, value.scalar_type());
    at::Tensor target = made;
    for (int64_t dim = 0; dim < value.dim(); dim++) {
        if (strides[static_cast<size_t>(dim)] == 0 && value.size(dim) > 1) {
            target = target.narrow(dim, 0, 1);
            value = value.narrow(dim, 0, 1);
        }
    }
    target.copy_(value);
    return made;
}

} // namespace tracework
