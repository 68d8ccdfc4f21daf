#include "host.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <dlfcn.h>
#include <regex>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace tracework {
namespace {

const char *const CALL = "\n\n\ndef call(args):\n"; // what parts a source into its globals and the lines as text
const char *const WORK = "work";
constexpr size_t MOST_OPERANDS = 64;
constexpr int64_t HUGE_PAGE = 1 << 21, CACHE_LINE = 64; // alignments of workspaces, as in tracework_runtime.workspace: some products' digits follow them

Function find_for_host(const std::string &path) {
    if (path != "out_of_range") {
        return find_function(path);
    }
    return [](Arguments &&given) -> IValue {
        const auto bits = static_cast<uint64_t>(given.args.at(0).toInt());
        const auto &origins = given.args.at(2).toTupleRef().elements();
        const std::string origin = origins.at(static_cast<size_t>(__builtin_ctzll(bits))).toStringRef();
        throw Failure("index out of range in " + (origin.empty() ? "an operator" : origin) + " (" + given.args.at(1).toStringRef() + ")");
    };
}

// Integers and addresses go in their own registers and then on the stack, and whoever calls takes them away: more than a function takes are not
// seen (System V, x86-64; AAPCS64).
template <size_t... place> int64_t call_with(void *function, const uint64_t *values, std::index_sequence<place...>) {
    using Any = int64_t (*)(decltype(static_cast<void>(place), uint64_t())...);
    return reinterpret_cast<Any>(function)(values[place]...);
}

} // namespace

SharedObject::SharedObject(const std::string &content) : file_(memfd_create("tracework", MFD_CLOEXEC)) {
    size_t done = 0;
    for (ssize_t wrote = 1; file_ >= 0 && done < content.size() && wrote > 0; done += static_cast<size_t>(std::max<ssize_t>(wrote, 0))) {
        wrote = write(file_, content.data() + done, content.size() - done);
    }
    // The linker takes equal names for equal libraries: the file stays open, so that no other gets its number.
    handle_ = done == content.size() ? dlopen(("/proc/self/fd/" + std::to_string(file_)).c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (handle_ == nullptr) {
        const char *why = file_ < 0 || done < content.size() ? "no file in memory" : dlerror();
        close(file_);
        throw Failure(std::string("a kernel cannot be loaded: ") + why, "make the file again on such a machine");
    }
}

SharedObject::~SharedObject() {
    dlclose(handle_);
    close(file_);
}

void *SharedObject::symbol(const std::string &name) const {
    void *found = dlsym(handle_, name.c_str());
    if (found == nullptr) {
        throw Failure("kernel " + name + " is not in its library", "make the file again");
    }
    return found;
}

Host::Host(const Packed &artifact, const SharedObjects &binaries, const c10::intrusive_ptr<Fixed> &fixed) : names_(find_for_host) {
    const Json &lines = artifact.header.at("host_lines");
    if (lines.items.empty()) {
        throw Failure("its host program is Python text alone, which only tracework.load() runs", "make the file again with this version");
    }
    define_constants(names_, fixed);
    read_kernels(artifact, binaries);
    read_globals(artifact);
    names_.slot("failed");
    for (const Json &line : lines.items) {
        try {
            steps_.push_back(step(line));
        } catch (const Failure &) {
            throw;
        } catch (const std::exception &error) {
            throw Failure(std::string("a line of its host program cannot be run here: ") + error.what(), "load it with tracework.load()");
        }
    }
}

void Host::read_kernels(const Packed &artifact, const SharedObjects &binaries) {
    for (const Json &kernel : artifact.header.at("kernels").items) {
        const std::string &name = kernel.at("name").str();
        if (kernel.at("language").str() != "cpp") {
            throw Failure("kernel " + name + " is for a GPU, and this library runs programs for the CPU", "load it with tracework.load()");
        }
        const Json &launch = kernel.at("launch");
        std::string text = artifact.sections.at(kernel.at("source").str());
        if (const Json *flags = launch.find("flags")) {
            for (const Json &flag : flags->items) {
                text += '\0' + flag.str();
            }
        }
        const auto found = binaries.find(hex(sha256(text)));
        if (found == binaries.end()) {
            throw Failure("the shared object of a kernel is not among what was carried", "make the file again");
        }
        held_.push_back(found->second);
        const Json *entry = launch.find("entry"), *result = launch.find("result"), *table = launch.find("table");
        size_t words = 0;
        for (const Json &type : kernel.at("signature").items) {
            words += type.str()[0] == '*' || type.str() == "i64";
        }
        const bool whole = words == kernel.at("signature").items.size();
        kernels_[name] = {found->second->symbol(entry ? entry->str() : name), result ? result->str() : "void", whole ? words : MOST_OPERANDS + 1,
                          table && table->integer != 0};
    }
}

void Host::read_globals(const Packed &artifact) {
    for (const auto &[name, facts] : artifact.header.at("constants").fields) {
        IValue value;
        if (facts.at("kind").str() == "tensor") {
            const std::string &bytes = artifact.sections.at(facts.at("section").str());
            std::vector<int64_t> sizes, strides;
            for (const Json &size : facts.at("sizes").items) {
                sizes.push_back(size.number());
            }
            for (const Json &stride : facts.at("strides").items) {
                strides.push_back(stride.number());
            }
            const at::Tensor dense = at::empty(sizes, dtype_of(facts.at("dtype").str()));
            std::memcpy(dense.data_ptr(), bytes.data(), std::min(bytes.size(), dense.nbytes()));
            const at::Tensor made = at::detail::empty_strided_cpu(sizes, strides, dense.scalar_type());
            value = made.copy_(dense);
        }
        names_.define(name, {[value](Frame &) { return value; }, nullptr, ""});
    }
    const std::string &source = artifact.sections.at(artifact.header.at("host").str());
    std::istringstream text(source.substr(0, source.find(CALL)));
    std::string windows, function;
    for (std::string line; std::getline(text, line);) {
        if (line.empty() || line.rfind("import ", 0) == 0 || line.rfind("from ", 0) == 0 || line.rfind("inf, nan", 0) == 0 || line.rfind("packed_calls = ", 0) == 0) {
            continue;
        }
        if (line[0] == ' ') {
            windows += function == "def windows(memory, first):" ? line + '\n' : "";
            continue;
        }
        const size_t sign = line.find(" = ");
        if (line.rfind("def ", 0) == 0 || sign == std::string::npos) {
            function = line;
            continue;
        }
        const std::string name = line.substr(0, sign);
        try {
            const Part part = names_.parse(std::string_view(line).substr(sign + 3));
            if (!part.value && !part.function) {
                throw std::runtime_error("it calls " + part.path + ", which only Python has");
            }
            names_.define(name, part);
        } catch (const std::exception &error) {
            throw Failure(std::string("its host program cannot be run here: ") + error.what(), "load it with tracework.load()");
        }
    }
    if (!windows.empty()) {
        memory_ = names_.slot("memory");
        first_ = names_.slot("first");
        windows_ = names_.expression(std::string_view(windows).substr(windows.find("return ") + 7));
    }
}

Expression Host::extent(const Json &value) {
    if (value.kind == Json::Integer) {
        return [number = IValue(value.integer)](Frame &) { return number; };
    }
    return names_.expression(value.str());
}

std::function<std::vector<int64_t>(Frame &)> Host::extents(const Json &values) {
    std::vector<Expression> made;
    for (const Json &value : values.items) {
        made.push_back(extent(value));
    }
    return [made](Frame &frame) {
        std::vector<int64_t> found;
        for (const Expression &one : made) {
            found.push_back(one(frame).toInt());
        }
        return found;
    };
}

std::unique_ptr<Host::Workspace> Host::take(int64_t size) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!free_.empty()) {
            std::unique_ptr<Workspace> found = std::move(free_.back());
            free_.pop_back();
            return found;
        }
    }
    const int64_t unit = 2 * size >= HUGE_PAGE ? HUGE_PAGE : CACHE_LINE;
    auto made = std::make_unique<Workspace>();
    made->memory = at::empty({(size + unit - 1) / unit * unit + unit}, at::kByte);
    const auto start = reinterpret_cast<int64_t>(made->memory.data_ptr());
    const int64_t skip = (start + unit - 1) / unit * unit - start;
    made->address = static_cast<uint8_t *>(made->memory.data_ptr()) + skip;
    if (windows_) {
        Frame frame = names_.frame();
        frame.set(memory_, made->memory);
        frame.set(first_, skip);
        made->views = windows_(frame);
    }
    return made;
}

Host::Step Host::launch(const Json &line) {
    const std::string &name = line.at(1).str();
    const auto known = kernels_.find(name);
    if (known == kernels_.end()) {
        throw std::runtime_error("it calls " + name + ", which is no kernel of its artifact");
    }
    const Kernel kernel = known->second;
    std::vector<Operand> operands;
    for (const Json &operand : line.at(2).items) {
        const Json *at = operand.find("at");
        const bool is_work = at && at->str() == WORK;
        operands.push_back({at != nullptr, is_work, at && !is_work ? names_.slot(at->str()) : 0, extent(at ? operand.at("offset") : operand)});
    }
    if (!kernel.in_table && kernel.operands != operands.size()) {
        throw std::runtime_error("kernel " + name + " takes numbers that are no integers, or more than " + std::to_string(MOST_OPERANDS) + " operands");
    }
    std::string text = line.at(3).str();
    const bool of_memory = text.rfind("raise MemoryError(", 0) == 0;
    const Expression failure = text.empty() ? nullptr : names_.expression(of_memory ? text.substr(17) : text);
    const size_t failed = names_.slot("failed");
    return [=](Run &run) {
        std::vector<uint64_t> values(std::max(operands.size(), MOST_OPERANDS));
        for (size_t n = 0; n < operands.size(); n++) {
            const Operand &one = operands[n];
            const int64_t number = one.number(run.frame).toInt();
            const void *base = !one.is_address ? nullptr : one.is_work ? run.work->address : run.frame.values[one.slot].toTensor().const_data_ptr();
            values[n] = reinterpret_cast<uint64_t>(base) + static_cast<uint64_t>(number);
        }
        if (kernel.in_table) {
            reinterpret_cast<void (*)(const uint64_t *)>(kernel.function)(values.data());
            return;
        }
        int64_t result = operands.size() <= 8    ? call_with(kernel.function, values.data(), std::make_index_sequence<8>())
                         : operands.size() <= 16 ? call_with(kernel.function, values.data(), std::make_index_sequence<16>())
                                                 : call_with(kernel.function, values.data(), std::make_index_sequence<MOST_OPERANDS>());
        result = kernel.result == "i32" ? static_cast<int32_t>(result) : kernel.result == "i64" ? result : 0;
        if (result != 0 && failure) {
            run.frame.set(failed, result);
            const IValue what = failure(run.frame);
            throw Failure("there is no memory for " + what.toStringRef());
        }
    };
}

Host::Step Host::statement(const std::string &text) {
    static const std::regex assignment(R"((\w+(?:, \w+)*)(,?) = (.*))");
    std::smatch parts;
    if (!std::regex_match(text, parts, assignment)) {
        const Expression value = names_.expression(text);
        return [value](Run &run) { value(run.frame); };
    }
    const Expression value = names_.expression(parts[3].str());
    const std::string targets = parts[1];
    std::vector<size_t> slots;
    static const std::regex word(R"(\w+)");
    for (auto at = std::sregex_iterator(targets.begin(), targets.end(), word); at != std::sregex_iterator(); at++) {
        slots.push_back(names_.slot(at->str()));
    }
    if (slots.size() == 1 && !parts[2].length()) {
        return [value, slot = slots[0]](Run &run) { run.frame.set(slot, value(run.frame)); };
    }
    return [value, slots](Run &run) {
        const IValue found = value(run.frame);
        const std::vector<IValue> made = found.isTuple() ? found.toTupleRef().elements().vec() : found.toListRef().vec();
        for (size_t n = 0; n < slots.size(); n++) {
            run.frame.set(slots[n], made.at(n));
        }
    };
}

Host::Step Host::step(const Json &line) {
    const std::string &word = line.word();
    if (word == "inputs") {
        for (const Json &name : line.at(1).items) {
            inputs_.push_back(names_.slot(name.str()));
        }
        return [](Run &) {};
    }
    if (word == "bind" || word == "reuse") {
        const Expression value = names_.expression(word == "bind" ? line.at(2).str() : line.at(2).str() + line.at(3).str());
        return [value, slot = names_.slot(line.at(1).str())](Run &run) { run.frame.set(slot, value(run.frame)); };
    }
    if (word == "number") {
        const Expression given = names_.expression(line.at(2).str());
        return [given, slot = names_.slot(line.at(1).str())](Run &run) {
            const IValue number = given(run.frame);
            run.frame.set(slot, number.isTensor() ? number : IValue(at::full({}, number.toScalar(), at::kLong)));
        };
    }
    if (word == "take") {
        return [this, size = line.at(1).number(), views = names_.slot("views")](Run &run) {
            run.work = take(size);
            run.frame.set(views, run.work->views);
        };
    }
    if (word == "allocate") {
        const auto sizes = extents(line.at(4)), strides = extents(line.at(5));
        const auto slot = names_.slot(line.at(1).str());
        return [sizes, strides, dtype = dtype_of(line.at(3).str()), slot](Run &run) {
            run.frame.set(slot, at::Tensor(at::detail::empty_strided_cpu(sizes(run.frame), strides(run.frame), dtype)));
        };
    }
    if (word == "launch") {
        return launch(line);
    }
    if (word == "call") {
        std::vector<Step> steps;
        for (const Json &text : line.at(1).items) {
            if (text.str().rfind("del ", 0) != 0) { // of what nobody reads
                steps.push_back(statement(text.str()));
            }
        }
        return [steps](Run &run) {
            for (const Step &one : steps) {
                one(run);
            }
        };
    }
    if (word == "free") {
        std::vector<size_t> slots;
        for (const Json &name : line.at(1).items) {
            slots.push_back(names_.slot(name.str()));
        }
        return [slots](Run &run) {
            for (const size_t slot : slots) {
                run.frame.values[slot] = IValue();
                run.frame.known[slot] = 0;
            }
        };
    }
    if (word == "give") {
        return [this](Run &run) {
            const std::lock_guard<std::mutex> lock(mutex_);
            free_.push_back(std::move(run.work));
        };
    }
    if (word == "return") {
        std::vector<Expression> values;
        for (const Json &text : line.at(1).items) {
            values.push_back(names_.expression(text.str()));
        }
        return [values](Run &run) {
            for (const Expression &value : values) {
                run.results.push_back(value(run.frame));
            }
        };
    }
    throw std::runtime_error("a line of kind " + word);
}

std::vector<IValue> Host::operator()(std::vector<IValue> inputs) {
    Run run{names_.frame(), nullptr, {}};
    for (size_t n = 0; n < inputs_.size(); n++) {
        run.frame.set(inputs_[n], std::move(inputs.at(n)));
    }
    for (const Step &one : steps_) {
        one(run);
    }
    return std::move(run.results);
}

} // namespace tracework
