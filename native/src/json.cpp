#include "json.h"

#include <cmath>
#include <cstdlib>
#include <stdexcept>

namespace tracework {
namespace {

class Reader {
  public:
    explicit Reader(std::string_view text) : text_(text) {}

    Json whole() {
        Json found = value();
        blank();
        if (at_ != text_.size()) {
            fail();
        }
        return found;
    }

  private:
    [[noreturn]] void fail() const { throw std::runtime_error("no JSON at character " + std::to_string(at_)); }

    void blank() {
        while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
            at_++;
        }
    }

    bool take(std::string_view word) {
        if (text_.substr(at_, word.size()) != word) {
            return false;
        }
        at_ += word.size();
        return true;
    }

    bool next(char wanted) {
        blank();
        return take({&wanted, 1});
    }

    void need(char wanted) {
        if (!next(wanted)) {
            fail();
        }
    }

    Json value() {
        Json made;
        blank();
        if (next('{')) {
            made.kind = Json::Object;
            for (bool more = !next('}'); more; more = !next('}')) {
                if (!made.fields.empty()) {
                    need(',');
                }
                need('"');
                std::string key = text();
                need(':');
                made.fields.emplace_back(std::move(key), value());
            }
        } else if (next('[')) {
            made.kind = Json::List;
            for (bool more = !next(']'); more; more = !next(']')) {
                if (!made.items.empty()) {
                    need(',');
                }
                made.items.push_back(value());
            }
        } else if (next('"')) {
            made.kind = Json::Text;
            made.text = text();
        } else if (take("true")) {
            made.kind = Json::Bool;
            made.integer = 1;
        } else if (take("false")) {
            made.kind = Json::Bool;
        } else if (!take("null")) {
            number(made);
        }
        return made;
    }

    void number(Json &made) {
        const size_t length = text_.find_first_not_of("+-.0123456789eEINafinty", at_); // Infinity and NaN, too
        const std::string word(text_.substr(at_, length == std::string_view::npos ? length : length - at_));
        char *end = nullptr;
        made.real = std::strtod(word.c_str(), &end);
        if (word.empty() || *end != 0) {
            fail();
        }
        made.kind = word.find_first_of(".eEIN") == std::string::npos ? Json::Integer : Json::Real;
        made.integer = made.kind == Json::Integer ? std::strtoll(word.c_str(), nullptr, 10) : 0;
        at_ += word.size();
    }

    unsigned unit() {
        if (at_ + 4 > text_.size()) {
            fail();
        }
        const std::string digits(text_.substr(at_, 4));
        at_ += 4;
        return static_cast<unsigned>(std::strtoul(digits.c_str(), nullptr, 16));
    }

    std::string text() {
        std::string made;
        while (at_ < text_.size() && text_[at_] != '"') {
            if (text_[at_] != '\\') {
                made += text_[at_++];
                continue;
            }
            at_++;
            const char escape = at_ < text_.size() ? text_[at_++] : '"';
            static const std::string_view names = "\"\\/bfnrt", values = "\"\\/\b\f\n\r\t";
            const size_t known = names.find(escape);
            if (known != std::string_view::npos) {
                made += values[known];
                continue;
            }
            unsigned code = unit();
            if (code >= 0xD800 && code < 0xDC00 && take("\\u")) {
                code = 0x10000 + ((code - 0xD800) << 10) + (unit() - 0xDC00);
            }
            append(made, code);
        }
        need('"');
        return made;
    }

    static void append(std::string &to, unsigned code) {
        if (code < 0x80) {
            to += static_cast<char>(code);
            return;
        }
        const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        static const unsigned heads[] = {0, 0xC0, 0xE0, 0xF0};
        to += static_cast<char>(heads[more] | code >> 6 * more);
        for (int n = more - 1; n >= 0; n--) {
            to += static_cast<char>(0x80 | (code >> 6 * n & 0x3F));
        }
    }

    std::string_view text_;
    size_t at_ = 0;
};

} // namespace

Json Json::parse(std::string_view text) {
    return Reader(text).whole();
}

const Json *Json::find(std::string_view key) const {
    for (const auto &[name, value] : fields) {
        if (name == key) {
            return &value;
        }
    }
    return nullptr;
}

const Json &Json::at(std::string_view key) const {
    const Json *found = find(key);
    if (found == nullptr) {
        throw std::runtime_error("no " + std::string(key));
    }
    return *found;
}

const Json &Json::at(size_t place) const {
    if (place >= items.size()) {
        throw std::runtime_error("a list of " + std::to_string(items.size()) + " items is too short");
    }
    return items[place];
}

const std::string &Json::str() const {
    if (kind != Text) {
        throw std::runtime_error("a text expected, got " + dump());
    }
    return text;
}

int64_t Json::number() const {
    if (kind != Integer) {
        throw std::runtime_error("a number expected, got " + dump());
    }
    return integer;
}

std::string Json::dump() const {
    std::string made;
    const auto next = [&made] { made += made.size() > 1 ? "," : ""; };
    switch (kind) {
    case Null:
        return "null";
    case Bool:
        return integer ? "true" : "false";
    case Integer:
        return std::to_string(integer);
    case Real:
        return std::to_string(real);
    case Text:
        made += '"';
        return made.append(text).append("\"");
    case List:
        made += '[';
        for (const Json &item : items) {
            next();
            made += item.dump();
        }
        return made.append("]");
    default:
        made += '{';
        for (const auto &[name, value] : fields) {
            next();
            made.append("\"").append(name).append("\":").append(value.dump());
        }
        return made.append("}");
    }
}

} // namespace tracework
