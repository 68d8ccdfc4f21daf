// The file: a zip of a manifest, members with a hash each, and a seal (tracework_runtime/program/archive.py).
#pragma once

#include "json.h"

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tracework {

// What the caller is told: what is wrong, and what to do.
class Failure : public std::runtime_error {
  public:
    Failure(const std::string &what, const std::string &advice = "")
        : std::runtime_error(advice.empty() ? what : what + "\n  try: " + advice), message(what), advice(advice) {}
    const std::string message, advice;
};

// The raw SHA-256 of bytes.
std::string sha256(std::string_view data);
std::string hex(std::string_view bytes);

// Header and sections of a packed entry (tracework_runtime/container.py); throws Failure for damage and for another format.
struct Packed {
    Json header;
    std::map<std::string, std::string> sections;
};
constexpr int FORMAT = 5;
Packed unpack(std::string_view data, const std::string &name);

class Archive {
  public:
    // Opens a file and checks its manifest; members are checked when they are read. key: that of its signature, or null.
    Archive(const std::string &file, const char *key);
    ~Archive();
    Archive(const Archive &) = delete;
    Archive &operator=(const Archive &) = delete;

    const Json &manifest() const { return manifest_; }
    // The content of a member: in the file itself, or unpacked in `room`.
    std::string_view member(const std::string &name, std::string &room) const;
    Failure refused(const std::string &what, const std::string &advice) const;

  private:
    struct Place {
        size_t offset, packed, size;
        int method;
    };
    void read_directory();
    void check_seal(std::string_view text, const char *key) const;
    std::string_view bytes(const std::string &name, std::string &room) const;

    std::string name_;
    std::string_view data_;
    std::map<std::string, Place> places_;
    bool twice_ = false; // whether a name is there twice
    Json manifest_;
};

} // namespace tracework
