// What a program asks of a call's arguments, with the words of tracework_runtime/program/checks.py.
#pragma once

#include "archive.h"
#include "values.h"

#include <map>
#include <optional>

namespace tracework {

// A place in a tree of containers: its steps, and what a user calls it.
struct Leaf {
    Json path;
    std::string name;
    Json pattern;
};

// The leaves of a tree, in order; name: what gives a path its name. Leaves are what is no container.
void add_leaves(const Json &tree, const Json &path, const std::function<std::string(const Json &)> &name, std::vector<Leaf> &to);
// What is called x of the steps behind it.
std::string with_steps(std::string start, const Json &path, size_t first);

// A constant as data. Nothing where C has no value for it.
std::optional<IValue> constant_of(const Json &data);

class Check {
  public:
    Check(const Json &entry, const Json &parameters);

    const std::vector<Leaf> &leaves() const { return leaves_; }
    // The leaf of an argument's path. Throws std::runtime_error where there is none.
    size_t leaf_of(const Json &path) const;
    bool is_number(const Leaf &leaf) const;
    // Throws Failure for arguments that the entry was not compiled for; gives the numbers that symbols stand for.
    std::map<std::string, IValue> operator()(const std::vector<IValue> &values) const;

  private:
    struct Symbol {
        std::string name, how, said;
        size_t leaf, slot;
        int64_t dim;
    };
    struct Condition {
        std::string text, origin;
        std::vector<std::string> names;
        Expression holds;
    };
    void check_state() const;
    void check_tensor(const Leaf &leaf, const IValue &value) const;
    void check_conditions(const std::map<std::string, IValue> &found) const;
    std::string shown(const Json &path) const;

    std::vector<std::pair<std::string, bool>> parameters_; // and whether one takes all that are left
    Json entry_;
    std::vector<Leaf> leaves_;
    std::map<std::string, size_t> places_;
    std::vector<Symbol> symbols_;
    Names names_;
    std::vector<Condition> conditions_;
};

} // namespace tracework
