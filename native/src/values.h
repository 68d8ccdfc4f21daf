// Python expressions of host programs as functions of what their names stand for: what inductor's codegen/wrapper/lines.py writes, no more.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tracework {

using c10::IValue;

struct Arguments {
    std::vector<IValue> args;
    std::vector<std::pair<std::string, IValue>> named;
};
using Function = std::function<IValue(Arguments &&)>;

// What names stand for while a program runs.
struct Frame {
    std::vector<IValue> values;
    std::vector<char> known;

    void set(size_t slot, IValue value) {
        values[slot] = std::move(value);
        known[slot] = 1;
    }
};
using Expression = std::function<IValue(Frame &)>;

// What an expression is: a value, a function, or a name with dots that nobody knows yet.
struct Part {
    Expression value;
    Function function;
    std::string path;
};

// The names of a program, and what those stand for that do not change.
class Names {
  public:
    // functions: finds what is called by a path such as "torch.addmm"; null where there is none.
    explicit Names(std::function<Function(const std::string &)> functions) : functions_(std::move(functions)) {}

    size_t slot(const std::string &name);
    void define(const std::string &name, Part part);
    Frame frame() const;

    // Throws std::runtime_error for a text that is no expression, or names what is not known.
    Part parse(std::string_view text);
    Expression expression(std::string_view text);
    // The names that the last text that was parsed has, in order, each once.
    const std::vector<std::string> &mentioned() const { return mentioned_; }

  private:
    friend class Parser;
    std::unordered_map<std::string, size_t> slots_;
    std::unordered_map<std::string, Part> parts_;
    std::function<Function(const std::string &)> functions_;
    std::vector<std::string> mentioned_;
};

bool is_true(const IValue &value);
// As Python shows it.
std::string repr(const IValue &value);
std::string repr_real(double value);
std::string repr_text(const std::string &text);
IValue tuple_of(std::vector<IValue> items);
std::vector<int64_t> integers_of(const IValue &value);
// An operator of Python on two values: "+", "//", "<=", ...
IValue combined(const std::string &sign, const IValue &one, const IValue &other);

} // namespace tracework
