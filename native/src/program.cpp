// The C interface: a file becomes a program, its entries are tried in order, as in tracework_runtime/program/program.py.
#include "archive.h"
#include "checks.h"
#include "host.h"
#include "tracework.h"

#include <ATen/DLConvertor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else // before it moved
#include <torch/csrc/api/include/torch/version.h>
#endif

#include <algorithm>
#include <fstream>
#include <set>
#include <sys/utsname.h>

using namespace tracework;

namespace {

const char *const WEIGHTS = "weights.bin";
constexpr size_t ALIGNMENT = 64; // of storages among the weights' bytes

thread_local std::string last_error;

// What a part of a call is made of.
struct Scope {
    const std::vector<IValue> &given;
    const std::map<std::string, IValue> &symbols;
    std::vector<IValue> inputs, graph, outputs;
};
using Make = std::function<IValue(const Scope &)>;

struct Result {
    std::string name;
    Make make;
    tw_kind kind;
    at::ScalarType dtype;
    std::optional<std::vector<int64_t>> sizes; // where it is known what they are
};

using Weights = std::map<std::string, at::Tensor>;

// One way in which the function was compiled.
class Entry {
  public:
    Entry(const Json &entry, const Json &parameters, const Packed &artifact, const SharedObjects &binaries, const Weights &weights,
          const c10::intrusive_ptr<Fixed> &fixed)
        : check(entry, parameters), host_(artifact, binaries, fixed) {
        for (const Json &how : entry.at("inputs").items) {
            const std::string &word = how.word();
            if (word == "argument") {
                reads_.push_back([leaf = check.leaf_of(how.at(1))](const Scope &scope) { return scope.given[leaf]; });
            } else if (word == "weight") {
                reads_.push_back([weight = weights.at(how.at(1).str())](const Scope &) { return weight; });
            } else {
                reads_.push_back([name = how.at(1).str()](const Scope &scope) { return scope.symbols.at(name); });
            }
            is_tensor_.push_back(word == "argument" || word == "weight");
        }
        for (const Json &pair : entry.at("written").items) {
            written_.insert(static_cast<size_t>(pair.at(size_t{0}).number()));
        }
        for (const Json &output : entry.at("outputs").items) {
            outputs_.push_back(output_of(output));
        }
        read_results(entry, artifact.header.at("outputs"));
    }

    std::vector<IValue> run(const std::vector<IValue> &given, const std::map<std::string, IValue> &symbols) {
        Scope scope{given, symbols, {}, {}, {}};
        for (const Make &read : reads_) {
            scope.inputs.push_back(read(scope));
        }
        demand_apart(scope.inputs);
        const at::AutoDispatchBelowADInplaceOrView no_grad;
        scope.graph = host_(scope.inputs);
        for (const Make &output : outputs_) {
            scope.outputs.push_back(output(scope));
        }
        std::vector<IValue> made;
        for (const Result &result : results) {
            made.push_back(result.make(scope));
        }
        return made;
    }

    Check check;
    std::vector<Result> results;

  private:
    static Make output_of(const Json &output) {
        const std::string &kind = output.at("kind").str();
        const auto slot = output.at("slot").is_null() ? 0 : static_cast<size_t>(output.at("slot").number());
        const auto of = [slot](std::vector<IValue> Scope::*where) -> Make { return [=](const Scope &scope) { return (scope.*where).at(slot); }; };
        if (kind == "constant") {
            const auto value = constant_of(output.at("constant"));
            if (!value) {
                throw Failure("one of its results is a constant that C does not have", "load it with tracework.load()");
            }
            return [value](const Scope &) { return *value; };
        }
        static const std::map<std::string, std::vector<IValue> Scope::*> places = {
            {"fresh", &Scope::graph},       {"size", &Scope::graph},         {"alias", &Scope::graph},          {"input", &Scope::inputs},
            {"output", &Scope::outputs},    {"input_view", &Scope::inputs},  {"base_view", &Scope::graph},      {"output_view", &Scope::outputs}};
        const auto found = places.find(kind);
        if (found == places.end()) {
            throw Failure("one of its results is of kind " + kind, "load it with tracework.load()");
        }
        Make made = of(found->second);
        if (kind == "alias") {
            return [made, alias = find_operator("aten::alias")](const Scope &scope) { return alias({{made(scope)}, {}}); };
        }
        for (const Json &step : kind.find("_view") != std::string::npos ? output.at("steps").items : std::vector<Json>()) {
            made = viewed(made, step);
        }
        return made;
    }

    // One view of a base; its arguments are trees whose leaves may be sizes that the graph gives.
    static Make viewed(const Make &base, const Json &step) {
        const Function function = find_function("torch.ops." + step.at("operator").str());
        if (!function) {
            throw Failure("it calls " + step.at("operator").str() + ", which is not registered here", "load the library that registers it before");
        }
        std::vector<Make> args;
        std::vector<std::pair<std::string, Make>> named;
        for (const Json &arg : step.at("args").items) {
            args.push_back(argument(arg));
        }
        for (const auto &[name, arg] : step.at("kwargs").fields) {
            named.emplace_back(name, argument(arg));
        }
        const std::optional<size_t> index = step.at("index").is_null() ? std::nullopt : std::optional<size_t>(step.at("index").number());
        return [=](const Scope &scope) {
            Arguments given{{base(scope)}, {}};
            for (const Make &arg : args) {
                given.args.push_back(arg(scope));
            }
            for (const auto &[name, arg] : named) {
                given.named.emplace_back(name, arg(scope));
            }
            const IValue found = function(std::move(given));
            return !index ? found : found.isTuple() ? found.toTupleRef().elements().at(*index) : found.toListRef().vec().at(*index);
        };
    }

    static Make argument(const Json &tree) {
        const std::string &word = tree.word();
        if (word == "output") {
            return [place = static_cast<size_t>(tree.at(1).number())](const Scope &scope) { return scope.graph.at(place); };
        }
        if (word == "constant") {
            if (const Json *name = tree.at(1).find("torch")) { // a dtype: other names have no place in views
                return [value = IValue(static_cast<int64_t>(dtype_of(name->str())))](const Scope &) { return value; };
            }
            const auto value = constant_of(tree.at(1));
            if (!value) {
                throw Failure("it has a view with an argument " + tree.dump(), "load it with tracework.load()");
            }
            return [value](const Scope &) { return *value; };
        }
        std::vector<Make> parts;
        for (const Json &part : tree.at(1).items) {
            parts.push_back(argument(part));
        }
        return [parts](const Scope &scope) {
            std::vector<IValue> made;
            for (const Make &part : parts) {
                made.push_back(part(scope));
            }
            return tuple_of(std::move(made));
        };
    }

    void read_results(const Json &entry, const Json &recipes) {
        std::vector<Leaf> leaves;
        Json root;
        root.kind = Json::List;
        add_leaves(entry.at("result"), root, [](const Json &path) { return with_steps("result", path, 0); }, leaves);
        for (const Leaf &leaf : leaves) {
            const std::string &word = leaf.pattern.word();
            if (word == "constant") {
                results.push_back({leaf.name, [value = *constant_of(leaf.pattern.at(1))](const Scope &) { return value; }, TW_NONE, {}, {}});
                continue;
            }
            if (word == "argument") { // as a whole, it may be a container
                const std::string start = leaf.pattern.at(1).dump(), below = start.substr(0, start.size() - 1) + ",";
                for (size_t n = 0; n < check.leaves().size(); n++) {
                    const Leaf &given = check.leaves()[n];
                    const std::string at = given.path.dump();
                    if (at == start || at.rfind(below, 0) == 0) {
                        const std::string name = with_steps(leaf.name, given.path, leaf.pattern.at(1).items.size());
                        results.push_back({name, [n](const Scope &scope) { return scope.given[n]; }, TW_NONE, {}, {}});
                    }
                }
                continue;
            }
            const auto number = static_cast<size_t>(leaf.pattern.at(1).number());
            const bool is_output = word == "output";
            Result made{leaf.name, [=](const Scope &scope) { return (is_output ? scope.outputs : scope.inputs).at(number); }, TW_NONE, {}, {}};
            if (is_output) {
                describe(made, entry.at("outputs").at(number), recipes);
            }
            results.push_back(std::move(made));
        }
    }

    static void describe(Result &result, const Json &output, const Json &recipes) {
        const std::string &kind = output.at("kind").str();
        if (kind == "size") {
            result.kind = TW_INT;
        }
        if ((kind != "fresh" && kind != "alias") || static_cast<size_t>(output.at("slot").number()) >= recipes.items.size()) {
            return;
        }
        const Json &recipe = recipes.at(static_cast<size_t>(output.at("slot").number()));
        if (recipe.at("dtype").str().empty()) {
            return;
        }
        result.kind = TW_TENSOR;
        result.dtype = dtype_of(recipe.at("dtype").str());
        result.sizes.emplace();
        for (const Json &size : recipe.at("sizes").items) {
            result.sizes->push_back(size.kind == Json::Integer ? size.integer : -1);
        }
    }

    // Throws Failure where an input that is written to shares memory with another.
    void demand_apart(const std::vector<IValue> &inputs) const {
        std::vector<std::tuple<uintptr_t, uintptr_t, bool>> spans;
        for (size_t n = 0; n < inputs.size() && !written_.empty(); n++) {
            if (!is_tensor_[n] || !inputs[n].isTensor() || inputs[n].toTensor().numel() == 0) {
                continue;
            }
            const at::Tensor &x = inputs[n].toTensor();
            int64_t reach = 1;
            for (int64_t dim = 0; dim < x.dim(); dim++) {
                reach += (x.size(dim) - 1) * x.stride(dim);
            }
            const auto start = reinterpret_cast<uintptr_t>(x.const_data_ptr());
            spans.emplace_back(start, start + static_cast<uintptr_t>(reach) * x.element_size(), written_.count(n) != 0);
        }
        std::sort(spans.begin(), spans.end());
        uintptr_t end_of_any = 0, end_of_written = 0;
        for (const auto &[start, end, is_written] : spans) {
            if (start < end_of_written || (is_written && start < end_of_any)) {
                throw Failure("two tensors of the call share memory, and one of them is written to", "pass clones of them, or of one");
            }
            end_of_any = std::max(end_of_any, end);
            end_of_written = is_written ? std::max(end_of_written, end) : end_of_written;
        }
    }

    Host host_;
    std::vector<Make> reads_, outputs_;
    std::vector<bool> is_tensor_;
    std::set<size_t> written_;
};

// Machines

std::set<std::string> instructions_here() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) {
            std::istringstream words(line.substr(line.find(':') + 1));
            return {std::istream_iterator<std::string>(words), {}};
        }
    }
    return {};
}

// Why what was made for another machine does not run here, and what to do; two empty texts where it does.
std::pair<std::string, std::string> misfit(const Json &made_for) {
    utsname system{};
    uname(&system);
    const std::string torch = std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR), again = "make the file again on such a machine";
    const std::tuple<const char *, std::string, std::string, std::string> parts[] = {
        {"torch", "torch", torch, "install torch " + made_for.at("torch").str() + ", or make the file again with this one"},
        {"tracework", "version of tracework", TRACEWORK_VERSION, "build the library of tracework " + made_for.at("tracework").str() + ", or make the file again"},
        {"system", "system", system.sysname, again},
        {"machine", "architecture", system.machine, again},
    };
    for (const auto &[part, what, here, advice] : parts) {
        if (made_for.at(part).str() != here) {
            return {std::string("it was made for ") + what + " " + made_for.at(part).str() + ", and this is " + here, advice};
        }
    }
    if (made_for.at("format").number() != FORMAT) {
        return {"it was made for format of artifacts " + made_for.at("format").dump() + ", and this is " + std::to_string(FORMAT), "make the file again with this version"};
    }
    for (const Json &device : made_for.at("devices").items) {
        if (device.str().rfind("cpu", 0) != 0) {
            return {"it was made for a GPU (" + device.str() + "), and this library runs programs for the CPU", "load it with tracework.load()"};
        }
    }
    const std::set<std::string> here = instructions_here();
    std::string missing;
    int count = 0;
    for (const Json &name : made_for.at("instructions").items) {
        if (!here.count(name.str()) && count++ < 6) {
            missing += (missing.empty() ? "" : ", ") + name.str();
        }
    }
    return missing.empty() ? std::make_pair(std::string(), std::string())
                           : std::make_pair("its kernels were built for a CPU with " + missing + ", which this one has not", again);
}

// Weights

Weights placed(const Json &kept, std::string_view bytes) {
    std::vector<at::Tensor> storages;
    for (const Json &storage : kept.at("storages").items) {
        const auto size = static_cast<size_t>(storage.at("size").number());
        if (size > bytes.size()) {
            throw Failure("its weights are fewer bytes than its manifest says", "copy it again, or make it again");
        }
        storages.push_back(at::empty({static_cast<int64_t>(size)}, at::kByte));
        std::copy_n(bytes.data(), size, static_cast<char *>(storages.back().data_ptr()));
        bytes.remove_prefix(std::min(bytes.size(), (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT));
    }
    const auto numbers = [](const Json &list) {
        std::vector<int64_t> made;
        for (const Json &item : list.items) {
            made.push_back(item.number());
        }
        return made;
    };
    Weights made;
    for (const auto &[name, facts] : kept.at("tensors").fields) {
        const at::Tensor &storage = storages.at(static_cast<size_t>(facts.at("storage").number()));
        const at::Tensor empty = at::empty({0}, at::TensorOptions(dtype_of(facts.at("dtype").str())));
        made[name] = empty.set_(storage.storage(), facts.at("offset").number(), numbers(facts.at("sizes")), numbers(facts.at("strides")));
    }
    return made;
}

Weights read_weights(const Archive &archive, const std::string &file, const char *key) {
    const Json &kept = archive.manifest().at("weights");
    std::string room;
    if (kept.at("tensors").fields.empty()) {
        return {};
    }
    if (const std::string &where = kept.at("where").str(); where == "inside") {
        return placed(kept, archive.member(WEIGHTS, room));
    } else if (where != "beside") {
        throw archive.refused("its weights were left out", "make the file with them, inside or beside");
    }
    std::ifstream there(file + ".weights");
    if (!there) {
        throw archive.refused("its weights lie beside it, and are not there (" + file + ".weights)", "copy both files");
    }
    const Archive other(file + ".weights", key);
    const Json *facts = other.manifest().at("members").find(WEIGHTS);
    if (facts == nullptr || facts->at("sha256").str() != kept.at("sha256").str()) {
        throw archive.refused("the weights beside it are not those that it was saved with", "copy both files");
    }
    return placed(kept, other.member(WEIGHTS, room));
}

// Values of C

IValue value_of(const tw_value &value, const std::string &name) {
    switch (value.kind) {
    case TW_INT:
        return value.as.integer;
    case TW_FLOAT:
        return value.as.real;
    case TW_BOOL:
        return value.as.integer != 0;
    case TW_STRING:
        return std::string(value.as.text);
    case TW_TENSOR:
        break;
    default:
        return IValue();
    }
    const DLTensor &tensor = value.as.tensor;
    if (tensor.device.device_type != kDLCPU) {
        throw Failure(name + ": device: expected cpu, got DLPack's " + std::to_string(tensor.device.device_type), "copy it to the CPU");
    }
    const auto refuse = [&](const std::string &what) { throw Failure(name + ": " + what, "give a tensor as DLPack describes one"); };
    if (tensor.ndim < 0 || (tensor.ndim > 0 && !tensor.shape)) {
        refuse("a tensor of rank " + std::to_string(tensor.ndim) + (tensor.shape ? "" : " without sizes"));
    }
    const at::IntArrayRef sizes(tensor.shape, static_cast<size_t>(tensor.ndim));
    const auto dtype = at::toScalarType(tensor.dtype);
    const auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
    std::vector<int64_t> strides(sizes.size());
    int64_t reach = 1, last = bytes, step = 0; // last: bytes up to the end of the last element
    bool fits = true;
    for (size_t n = sizes.size(); n-- > 0;) {
        strides[n] = tensor.strides ? tensor.strides[n] : reach;
        if (sizes[n] < 0 || strides[n] < 0) {
            refuse("size " + std::to_string(sizes[n]) + " and stride " + std::to_string(strides[n]) + " of dim " + std::to_string(n));
        }
        fits = fits && !__builtin_mul_overflow(reach, std::max<int64_t>(sizes[n], 1), &reach);
        fits = fits && !__builtin_mul_overflow(std::max<int64_t>(sizes[n], 1) - 1, strides[n], &step);
        fits = fits && !__builtin_mul_overflow(step, bytes, &step) && !__builtin_add_overflow(last, step, &last);
    }
    const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
    if (!fits || (!tensor.data && !empty)) {
        refuse(fits ? "no memory" : "more elements than memory has");
    }
    const auto offset = static_cast<int64_t>(tensor.byte_offset);
    auto *data = static_cast<char *>(tensor.data) + offset % bytes; // memory need not be aligned
    return at::for_blob(data, sizes).strides(strides).storage_offset(offset / bytes).options(at::TensorOptions(dtype)).make_tensor();
}

DLDataType type_of(at::ScalarType dtype) {
    DLTensor shown;
    at::toDLPackNonOwning(at::empty({0}, at::TensorOptions(dtype)), &shown);
    return shown.dtype;
}

// A function's work; what it throws is kept as the last error.
template <class Work> auto guarded(Work work) -> decltype(work()) {
    try {
        return work();
    } catch (const c10::Error &error) {
        last_error = error.what_without_backtrace();
    } catch (const std::exception &error) {
        last_error = error.what();
    }
    return nullptr;
}

} // namespace

struct tw_program {
    std::vector<std::unique_ptr<Entry>> entries;
    std::vector<tw_info> inputs, outputs;
    std::vector<std::vector<int64_t>> sizes;
};

struct tw_result {
    std::vector<IValue> held;
    std::vector<tw_value> values;
};

namespace {

void describe(tw_program &program) {
    const Entry &entry = *program.entries.at(0);
    program.sizes.reserve(entry.check.leaves().size() + entry.results.size());
    for (const Leaf &leaf : entry.check.leaves()) {
        tw_info info{leaf.name.c_str(), entry.check.is_number(leaf) ? TW_INT : TW_NONE, {}, -1, nullptr};
        if (leaf.pattern.word() == "tensor") {
            const Json &facts = leaf.pattern.at(1);
            std::vector<int64_t> &sizes = program.sizes.emplace_back();
            for (const Json &size : facts.at("sizes").items) {
                sizes.push_back(size.is_null() ? -1 : size.number());
            }
            info = {leaf.name.c_str(), TW_TENSOR, type_of(dtype_of(facts.at("dtype").str())), static_cast<int32_t>(sizes.size()), sizes.data()};
        } else if (leaf.pattern.word() == "constant") {
            const IValue value = *constant_of(leaf.pattern.at(1));
            info.kind = value.isBool() ? TW_BOOL : value.isInt() ? TW_INT : value.isDouble() ? TW_FLOAT : value.isString() ? TW_STRING : TW_NONE;
        }
        program.inputs.push_back(info);
    }
    for (const Result &result : entry.results) {
        tw_info info{result.name.c_str(), result.kind, {}, -1, nullptr};
        if (result.sizes) {
            const std::vector<int64_t> &sizes = program.sizes.emplace_back(*result.sizes);
            info = {result.name.c_str(), TW_TENSOR, type_of(result.dtype), static_cast<int32_t>(sizes.size()), sizes.data()};
        }
        program.outputs.push_back(info);
    }
}

// Weights that no entry writes to.
c10::intrusive_ptr<Fixed> fixed_of(const Weights &weights, const Json &entries) {
    auto fixed = c10::make_intrusive<Fixed>();
    for (const auto &[name, weight] : weights) {
        fixed->storages.insert(weight.storage().data());
    }
    for (const Json &entry : entries.items) {
        for (const Json &pair : entry.at("written").items) {
            const Json &how = entry.at("inputs").at(static_cast<size_t>(pair.at(size_t{0}).number()));
            if (how.word() == "weight") {
                fixed->storages.erase(weights.at(how.at(1).str()).storage().data());
            }
        }
    }
    return fixed;
}

SharedObjects read_binaries(const Archive &archive, const std::string &folder) {
    SharedObjects made;
    const std::string start = folder + "binaries/cpp/";
    for (const auto &[name, facts] : archive.manifest().at("members").fields) {
        if (name.rfind(start, 0) == 0) {
            std::string room;
            const Packed packed = unpack(archive.member(name, room), name);
            const std::string digest = name.substr(start.size(), name.size() - start.size() - 3); // without .so
            made[digest] = std::make_shared<SharedObject>(packed.sections.at("so"));
        }
    }
    return made;
}

std::unique_ptr<tw_program> loaded(const std::string &file, const char *key) {
    const Archive archive(file, key);
    const Json &manifest = archive.manifest();
    const Json *chosen = nullptr;
    std::vector<std::pair<std::string, std::string>> misfits;
    auto made = std::make_unique<tw_program>();
    try {
        for (const Json &target : manifest.at("targets").items) {
            misfits.push_back(misfit(target.at("machine")));
            chosen = chosen == nullptr && misfits.back().first.empty() ? &target : chosen;
        }
        if (chosen == nullptr) {
            std::string texts;
            for (const auto &[text, advice] : misfits) {
                texts += texts.find(text) != std::string::npos ? "" : (texts.empty() ? "" : "; ") + text;
            }
            throw archive.refused(texts.empty() ? "it has no target" : texts, misfits.empty() ? "make the file again" : misfits[0].second);
        }
        const std::string &folder = chosen->at("folder").str();
        const Weights weights = read_weights(archive, file, key);
        const auto fixed = fixed_of(weights, chosen->at("entries"));
        const SharedObjects binaries = read_binaries(archive, folder);
        for (const Json &entry : chosen->at("entries").items) {
            std::string room;
            const std::string name = folder + "artifacts/" + entry.at("artifact").dump() + ".twa";
            const Packed artifact = unpack(archive.member(name, room), name);
            try {
                made->entries.push_back(std::make_unique<Entry>(entry, manifest.at("parameters"), artifact, binaries, weights, fixed));
            } catch (const Failure &error) {
                throw archive.refused(error.message, error.advice);
            }
        }
        describe(*made);
    } catch (const c10::Error &error) {
        throw archive.refused(error.what_without_backtrace(), "load it with tracework.load()");
    } catch (const Failure &) {
        throw;
    } catch (const std::exception &error) {
        throw archive.refused(std::string("its manifest is damaged (") + error.what() + ")", "make the file again with this version");
    }
    return made;
}

std::vector<IValue> run(tw_program &program, const tw_value *inputs, size_t count) {
    std::vector<IValue> given;
    for (size_t n = 0; n < count; n++) {
        given.push_back(value_of(inputs[n], n < program.inputs.size() ? program.inputs[n].name : std::to_string(n)));
    }
    std::vector<Failure> failures;
    for (const std::unique_ptr<Entry> &entry : program.entries) {
        std::map<std::string, IValue> symbols;
        try {
            symbols = entry->check(given);
        } catch (const Failure &error) {
            failures.push_back(error);
            continue;
        }
        return entry->run(given, symbols);
    }
    if (failures.size() == 1) {
        throw Failure(failures[0]);
    }
    std::string text;
    for (size_t n = 0; n < failures.size(); n++) {
        text += "\n  " + std::to_string(n) + ": " + failures[n].message;
    }
    throw Failure("no entry of the program fits the call:" + text, failures.empty() ? "" : failures[0].advice);
}

tw_value shown(IValue &value) {
    tw_value made{TW_NONE, {}};
    if (value.isTensor()) {
        value = value.toTensor().resolve_conj().resolve_neg();
        made.kind = TW_TENSOR;
        at::toDLPackNonOwning(value.toTensor(), &made.as.tensor);
    } else if (value.isBool() || value.isInt()) {
        made.kind = value.isBool() ? TW_BOOL : TW_INT;
        made.as.integer = value.isBool() ? value.toBool() : value.toInt();
    } else if (value.isDouble()) {
        made.kind = TW_FLOAT;
        made.as.real = value.toDouble();
    } else if (value.isString()) {
        made.kind = TW_STRING;
        made.as.text = value.toStringRef().c_str();
    }
    return made;
}

} // namespace

tw_program *tw_load(const char *file, const char *key) {
    return guarded([=]() -> tw_program * {
        if (key != nullptr && *key == 0) {
            throw Failure("the key is empty: anybody could sign with it", "give a text that others do not know, or no key");
        }
        return loaded(file, key).release();
    });
}

void tw_free(tw_program *program) {
    delete program;
}

size_t tw_input_count(const tw_program *program) {
    return program->inputs.size();
}

const tw_info *tw_input(const tw_program *program, size_t number) {
    return number < program->inputs.size() ? &program->inputs[number] : nullptr;
}

size_t tw_output_count(const tw_program *program) {
    return program->outputs.size();
}

const tw_info *tw_output(const tw_program *program, size_t number) {
    return number < program->outputs.size() ? &program->outputs[number] : nullptr;
}

tw_result *tw_run(tw_program *program, const tw_value *inputs, size_t count) {
    return guarded([=]() -> tw_result * {
        if (!program || (count && !inputs)) {
            throw Failure("tw_run() is given no program, or no arguments", "look at tw_last_error() where tw_load() gives NULL");
        }
        auto made = std::make_unique<tw_result>();
        made->held = run(*program, inputs, count);
        for (IValue &value : made->held) {
            made->values.push_back(shown(value));
        }
        return made.release();
    });
}

size_t tw_result_count(const tw_result *result) {
    return result->values.size();
}

const tw_value *tw_result_value(const tw_result *result, size_t number) {
    return number < result->values.size() ? &result->values[number] : nullptr;
}

void tw_result_free(tw_result *result) {
    delete result;
}

const char *tw_last_error(void) {
    return last_error.c_str();
}
