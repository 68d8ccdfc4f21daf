// JSON as Python's json module writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tracework {

class Json {
  public:
    enum Kind { Null, Bool, Integer, Real, Text, List, Object };

    Kind kind = Null;
    int64_t integer = 0; // of Bool, too
    double real = 0;
    std::string text;
    std::vector<Json> items;
    std::vector<std::pair<std::string, Json>> fields;

    // Throws std::runtime_error for what is no JSON, as all of the following do for what is not there.
    static Json parse(std::string_view text);

    const Json &at(std::string_view key) const;
    const Json &at(size_t place) const;
    const Json *find(std::string_view key) const;
    const std::string &str() const;
    int64_t number() const;
    // The word that a list begins with, as a tree's does.
    const std::string &word() const { return at(size_t{0}).str(); }
    bool is_null() const { return kind == Null; }
    // One text for each value: places of arguments are told apart by it.
    std::string dump() const;
};

} // namespace tracework
