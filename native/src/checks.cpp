#include "checks.h"

#include "library.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <cmath>

namespace tracework {
namespace {

const char *const ADVICE = "call it with what it was compiled for, or make the file again for such arguments";

[[noreturn]] void refuse(const std::string &what, const std::string &advice = ADVICE) {
    throw Failure(what, advice);
}

std::string type_name(const IValue &value) {
    return value.isTensor()   ? "Tensor"
           : value.isBool()   ? "bool"
           : value.isInt()    ? "int"
           : value.isDouble() ? "float"
           : value.isString() ? "str"
                              : "None";
}

std::string joined(const std::vector<std::string> &parts) {
    std::string made;
    for (const std::string &part : parts) {
        made += (made.empty() ? "" : ", ") + part;
    }
    return made;
}

std::string list_of(at::IntArrayRef numbers) {
    std::vector<std::string> parts;
    for (const int64_t number : numbers) {
        parts.push_back(std::to_string(number));
    }
    return joined(parts);
}

std::string as_tuple(const std::string &items) {
    return '(' + items + (!items.empty() && items.find(',') == std::string::npos ? ",)" : ")");
}

// Of one type and value: nan equals nan, -0.0 differs from 0.0.
bool is_same(const IValue &value, const IValue &wanted) {
    if (type_name(value) != type_name(wanted)) {
        return false;
    }
    if (value.isDouble()) {
        const double one = value.toDouble(), other = wanted.toDouble();
        return (std::isnan(one) && std::isnan(other)) || (one == other && std::signbit(one) == std::signbit(other));
    }
    return value.isNone() || (value.isBool() ? value.toBool() == wanted.toBool()
                              : value.isInt() ? value.toInt() == wanted.toInt()
                                              : value.isString() && value.toStringRef() == wanted.toStringRef());
}

bool is_identifier(const std::string &text) {
    bool fits = !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0]));
    for (const char c : text) {
        fits = fits && (std::isalnum(static_cast<unsigned char>(c)) || c == '_');
    }
    return fits;
}

// What gives a tensor the strides that are wanted of it.
std::string layout_advice(const at::Tensor &x, const std::vector<std::pair<size_t, int64_t>> &wanted) {
    const auto fits = [&](const std::vector<size_t> &order) { // dims from the innermost on
        std::vector<int64_t> strides(order.size());
        int64_t reach = 1;
        for (const size_t dim : order) {
            strides[dim] = reach;
            reach *= std::max<int64_t>(x.sizes()[dim], 1);
        }
        for (const auto &[dim, stride] : wanted) {
            if (strides[dim] != stride && x.sizes()[dim] > 1) {
                return false;
            }
        }
        return true;
    };
    std::vector<size_t> order;
    for (size_t dim = static_cast<size_t>(x.dim()); dim-- > 0;) {
        order.push_back(dim);
    }
    if (fits(order)) {
        return "call .contiguous(), or make the file again";
    }
    if (x.dim() == 4 || x.dim() == 5) {
        order.erase(order.end() - 2);
        order.insert(order.begin(), 1);
        if (fits(order)) {
            return std::string("call .contiguous(memory_format=torch.channels_last") + (x.dim() == 5 ? "_3d" : "") + "), or make the file again";
        }
    }
    return ADVICE;
}

Json with(const Json &path, Json step) {
    Json made = path;
    made.items.push_back(std::move(step));
    return made;
}

Json place(size_t number) {
    Json made;
    made.kind = Json::Integer;
    made.integer = static_cast<int64_t>(number);
    return made;
}

} // namespace

std::string with_steps(std::string start, const Json &path, size_t first) {
    for (size_t n = first; n < path.items.size(); n++) {
        const Json &step = path.items[n];
        if (step.kind == Json::Text) {
            start += is_identifier(step.text) ? "." + step.text : "[" + repr_text(step.text) + "]";
        } else {
            start += "[" + step.dump() + "]";
        }
    }
    return start;
}

void add_leaves(const Json &tree, const Json &path, const std::function<std::string(const Json &)> &name, std::vector<Leaf> &to) {
    const std::string &word = tree.word();
    if (word == "tuple" || word == "list" || word == "size") {
        for (size_t n = 0; n < tree.at(1).items.size(); n++) {
            add_leaves(tree.at(1).at(n), with(path, place(n)), name, to);
        }
    } else if (word == "dict" || word == "object") {
        const size_t keys = word == "dict" ? 1 : 3;
        for (size_t n = 0; n < tree.at(keys).items.size(); n++) {
            add_leaves(tree.at(keys + 1).at(n), with(path, tree.at(keys).at(n)), name, to);
        }
    } else if (word != "constant" || constant_of(tree.at(1))) {
        to.push_back({path, name(path), tree});
    }
}

std::optional<IValue> constant_of(const Json &data) {
    switch (data.kind) {
    case Json::Null:
        return IValue();
    case Json::Bool:
        return IValue(data.integer != 0);
    case Json::Integer:
        return IValue(data.integer);
    case Json::Text:
        return IValue(data.text);
    default:
        const Json *real = data.find("float");
        return real ? std::optional<IValue>(std::strtod(real->str().c_str(), nullptr)) : std::nullopt;
    }
}

Check::Check(const Json &entry, const Json &parameters) : entry_(entry), names_(find_function) {
    for (const Json &parameter : parameters.items) {
        parameters_.emplace_back(parameter.at(size_t{0}).str(), parameter.at(1).str() == "VAR_POSITIONAL");
    }
    const auto name = [this](const Json &path) { return shown(path); };
    for (size_t n = 0; n < 2; n++) {
        Json root;
        root.kind = Json::Text;
        root.text = n == 0 ? "args" : "kwargs";
        Json path;
        path.kind = Json::List;
        path.items = {root};
        add_leaves(entry.at("arguments").at(n), path, name, leaves_);
    }
    for (size_t n = 0; n < leaves_.size(); n++) {
        if (leaves_[n].pattern.word() == "module") {
            throw Failure("its argument " + leaves_[n].name + " is a module, which only Python has", "make the file of a function that holds the module");
        }
        places_[leaves_[n].path.dump()] = n;
    }
    for (const auto &[symbol, read] : entry.at("symbols").fields) {
        const std::string &how = read.word();
        const int64_t dim = read.items.size() > 2 ? read.at(2).number() : 0;
        const std::string of = shown(read.at(1));
        const std::string said = how == "value" ? of : how == "offset" ? of + ".storage_offset()" : of + "." + how + "(" + std::to_string(dim) + ")";
        symbols_.push_back({symbol, how, said, leaf_of(read.at(1)), names_.slot(symbol), dim});
    }
    for (const Json &condition : entry.at("conditions").items) {
        const std::string &text = condition.at(size_t{0}).str();
        const Expression holds = names_.expression(text);
        conditions_.push_back({text, condition.at(1).str(), names_.mentioned(), holds});
    }
}

std::string Check::shown(const Json &path) const {
    const bool is_positional = path.word() == "args";
    if (path.items.size() == 1) {
        return path.word();
    }
    std::string start = path.at(1).kind == Json::Text ? path.at(1).text : path.at(1).dump();
    if (is_positional) {
        const auto first = static_cast<size_t>(path.at(1).number());
        size_t rest = 0;
        while (rest < parameters_.size() && !parameters_[rest].second) {
            rest++;
        }
        if (first < rest) {
            start = parameters_.at(first).first;
        } else if (rest < parameters_.size()) {
            start = parameters_[rest].first + "[" + std::to_string(first - rest) + "]";
        }
    }
    return with_steps(start, path, 2);
}

size_t Check::leaf_of(const Json &path) const {
    const auto found = places_.find(path.dump());
    if (found == places_.end()) {
        throw std::runtime_error("its argument " + shown(path) + " is nothing that C has");
    }
    return found->second;
}

bool Check::is_number(const Leaf &leaf) const {
    for (const Symbol &symbol : symbols_) {
        if (symbol.how == "value" && leaves_[symbol.leaf].path.dump() == leaf.path.dump()) {
            return true;
        }
    }
    return false;
}

void Check::check_state() const {
    const Json &state = entry_.at("state");
    const std::string dtype = dtype_name(c10::get_default_dtype_as_scalartype()), wanted = state.at("default_dtype").str();
    if (dtype != wanted) {
        refuse("torch.get_default_dtype(): expected " + wanted + ", got " + dtype);
    }
    const bool deterministic = at::globalContext().deterministicAlgorithms(), expected = state.at("deterministic").integer != 0;
    if (deterministic != expected) {
        refuse("torch.are_deterministic_algorithms_enabled(): expected " + repr(expected) + ", got " + repr(deterministic));
    }
    if (at::autocast::is_autocast_enabled(at::kCPU)) {
        refuse("torch.autocast is on around the call: expected off", "put autocast inside of the function, and make the file again");
    }
}

void Check::check_tensor(const Leaf &leaf, const IValue &value) const {
    const Json &facts = leaf.pattern.at(1);
    const std::string &name = leaf.name, shown = facts.at("shown").str();
    if (!value.isTensor()) {
        refuse(name + ": expected a tensor, " + shown + ", got " + type_name(value));
    }
    const at::Tensor &x = value.toTensor();
    if (dtype_name(x.scalar_type()) != facts.at("dtype").str()) {
        refuse(name + ": dtype: expected " + facts.at("dtype").str() + ", got " + dtype_name(x.scalar_type()));
    }
    const bool requires_grad = facts.at("requires_grad").integer != 0;
    if (requires_grad) { // memory of C has no gradients
        refuse(name + ": requires_grad: expected True, got False", ADVICE);
    }
    const Json &sizes = facts.at("sizes"), &strides = facts.at("strides");
    bool fits = sizes.items.size() == static_cast<size_t>(x.dim());
    for (size_t n = 0; fits && n < sizes.items.size(); n++) {
        fits = sizes.at(n).is_null() || sizes.at(n).number() == x.sizes()[n];
    }
    if (!fits) {
        refuse(name + ": sizes: expected " + shown + ", got [" + list_of(x.sizes()) + "]");
    }
    std::vector<std::pair<size_t, int64_t>> wanted;
    std::vector<std::string> texts;
    for (size_t n = 0; n < strides.items.size(); n++) {
        texts.push_back(strides.at(n).is_null() ? "None" : strides.at(n).dump());
        if (!strides.at(n).is_null()) {
            wanted.emplace_back(n, strides.at(n).number());
        }
    }
    for (const auto &[dim, stride] : wanted) {
        if (x.strides()[dim] != stride && x.sizes()[dim] > 1 && x.numel()) {
            refuse(name + ": strides: expected " + as_tuple(joined(texts)) + ", got " + as_tuple(list_of(x.strides())), layout_advice(x, wanted));
        }
    }
}

std::map<std::string, IValue> Check::operator()(const std::vector<IValue> &values) const {
    if (values.size() != leaves_.size()) {
        std::vector<std::string> known;
        for (const Leaf &leaf : leaves_) {
            known.push_back(leaf.name);
        }
        refuse("expected " + std::to_string(leaves_.size()) + " arguments (" + joined(known) + "), got " + std::to_string(values.size()));
    }
    check_state();
    for (size_t n = 0; n < leaves_.size(); n++) {
        const Leaf &leaf = leaves_[n];
        if (leaf.pattern.word() == "tensor") {
            check_tensor(leaf, values[n]);
        } else if (leaf.pattern.word() == "constant") {
            const IValue wanted = *constant_of(leaf.pattern.at(1));
            if (!is_same(values[n], wanted)) {
                refuse(leaf.name + ": expected " + repr(wanted) + ", got " + repr(values[n]));
            }
        }
    }
    for (const Json &pair : entry_.at("same").items) { // one argument of Python is one place of memory here
        const size_t one = leaf_of(pair.at(size_t{0})), other = leaf_of(pair.at(1));
        const bool tensors = values[one].isTensor() && values[other].isTensor();
        if (!tensors || values[one].toTensor().const_data_ptr() != values[other].toTensor().const_data_ptr() ||
            values[one].toTensor().sizes() != values[other].toTensor().sizes()) {
            refuse(leaves_[one].name + " and " + leaves_[other].name + ": one tensor expected, two given");
        }
    }
    for (const Json &rule : entry_.at("places").items) {
        const size_t leaf = leaf_of(rule.at(size_t{0}));
        const int64_t offset = values[leaf].toTensor().storage_offset(), wanted = rule.at(1).number();
        const int64_t period = rule.at(2).is_null() ? 0 : rule.at(2).number();
        if (offset != wanted && (period == 0 || (offset - wanted) % period != 0)) {
            refuse(leaves_[leaf].name + ": storage offset: expected " + std::to_string(wanted) + ", got " + std::to_string(offset) +
                   ", which the graph depends on");
        }
    }
    std::map<std::string, IValue> found;
    for (const Symbol &symbol : symbols_) {
        const IValue &value = values[symbol.leaf];
        if (symbol.how != "value" && !value.isTensor()) {
            refuse(leaves_[symbol.leaf].name + ": expected a tensor, got " + type_name(value));
        }
        if (symbol.how == "value" && !value.isInt() && !value.isDouble() && !value.isBool()) {
            refuse(leaves_[symbol.leaf].name + ": expected a number, got " + type_name(value));
        }
        found[symbol.name] = symbol.how == "size"     ? IValue(value.toTensor().size(symbol.dim))
                             : symbol.how == "stride" ? IValue(value.toTensor().stride(symbol.dim))
                             : symbol.how == "offset" ? IValue(value.toTensor().storage_offset())
                                                      : value;
    }
    check_conditions(found);
    return found;
}

void Check::check_conditions(const std::map<std::string, IValue> &found) const {
    Frame frame = names_.frame();
    for (const Symbol &symbol : symbols_) {
        frame.set(symbol.slot, found.at(symbol.name));
    }
    for (const Condition &condition : conditions_) {
        bool holds = false;
        try {
            holds = is_true(condition.holds(frame));
        } catch (const std::domain_error &) { // a division by zero
        }
        if (holds) {
            continue;
        }
        std::string text = condition.text;
        std::vector<std::string> now, compiled;
        for (const std::string &name : condition.names) {
            for (const Symbol &symbol : symbols_) {
                if (symbol.name != name) {
                    continue;
                }
                for (size_t at = text.find(name); is_identifier(name) && at != std::string::npos; at = text.find(name, at + symbol.said.size())) {
                    text.replace(at, name.size(), symbol.said);
                }
                now.push_back(symbol.said + " is " + repr(found.at(name)));
                const Leaf &leaf = leaves_[symbol.leaf];
                const std::string of = leaf.pattern.word() == "tensor" ? "; compiled for " + leaf.name + ": " + leaf.pattern.at(1).at("shown").str() : "";
                if (std::find(compiled.begin(), compiled.end(), of) == compiled.end()) {
                    compiled.push_back(of);
                }
            }
        }
        std::string behind;
        for (const std::string &one : compiled) {
            behind += one;
        }
        const bool placed = condition.origin.find(':') != std::string::npos;
        refuse(text + " does not hold" + (placed ? " (needed at " + condition.origin + ")" : "") + ": " + joined(now) + behind);
    }
}

} // namespace tracework
