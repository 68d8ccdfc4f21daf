#include "values.h"

#include "library.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>

namespace tracework {

IValue tuple_of(std::vector<IValue> items) {
    return c10::ivalue::Tuple::create(std::move(items));
}

std::vector<int64_t> integers_of(const IValue &value) {
    if (value.isIntList()) {
        return value.toIntVector();
    }
    std::vector<int64_t> made;
    for (const IValue &item : value.toTupleRef().elements()) {
        made.push_back(item.toInt());
    }
    return made;
}

bool is_true(const IValue &value) {
    return value.isBool() ? value.toBool() : value.isInt() ? value.toInt() != 0 : value.isDouble() ? value.toDouble() != 0 : !value.isNone();
}

// Shown values

std::string repr_real(double value) {
    if (std::isnan(value) || std::isinf(value)) {
        return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    }
    char text[64];
    const double size = std::fabs(value);
    const auto form = size != 0 && (size < 1e-4 || size >= 1e16) ? std::chars_format::scientific : std::chars_format::fixed;
    std::string made(text, std::to_chars(text, text + sizeof(text), value, form).ptr);
    return form == std::chars_format::fixed && made.find('.') == std::string::npos ? made + ".0" : made;
}

std::string repr_text(const std::string &text) {
    const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
    std::string made(1, quote);
    for (const char c : text) {
        if (c == quote || c == '\\') {
            made += '\\';
        }
        c == '\n' ? made += "\\n" : made += c;
    }
    return made + quote;
}

std::string repr(const IValue &value) {
    if (value.isNone()) {
        return "None";
    }
    if (value.isBool()) {
        return value.toBool() ? "True" : "False";
    }
    if (value.isInt()) {
        return std::to_string(value.toInt());
    }
    if (value.isDouble()) {
        return repr_real(value.toDouble());
    }
    return value.isString() ? repr_text(value.toStringRef()) : value.isTensor() ? "Tensor" : value.tagKind();
}

// Operators

namespace {

[[noreturn]] void no_operator(const std::string &sign) {
    throw std::runtime_error("operands of " + sign + " that host programs do not have");
}

template <class Number> bool compared(const std::string &sign, Number one, Number other) {
    return sign == "==" ? one == other : sign == "!=" ? one != other : sign == "<" ? one < other : sign == "<=" ? one <= other
         : sign == ">" ? one > other : one >= other;
}

bool is_comparison(const std::string &sign) {
    return sign[0] == '<' || sign[0] == '>' || sign == "==" || sign == "!=";
}

IValue of_integers(const std::string &sign, int64_t one, int64_t other) {
    int64_t made = 0;
    bool too_large = false;
    if (is_comparison(sign)) {
        return compared(sign, one, other);
    }
    if ((sign == "//" || sign == "%" || sign == "/") && other == 0) {
        throw std::domain_error("division by zero");
    }
    if (sign == "/") {
        return static_cast<double>(one) / static_cast<double>(other);
    }
    if (sign == "+") {
        too_large = __builtin_add_overflow(one, other, &made);
    } else if (sign == "-") {
        too_large = __builtin_sub_overflow(one, other, &made);
    } else if (sign == "*") {
        too_large = __builtin_mul_overflow(one, other, &made);
    } else if (sign == "//") {
        made = one / other - (one % other != 0 && (one < 0) != (other < 0));
    } else if (sign == "%") {
        made = one % other + (one % other != 0 && (one < 0) != (other < 0) ? other : 0);
    } else if (sign == "**" && other >= 0) {
        made = 1;
        for (int64_t n = 0; n < other && !too_large; n++) {
            too_large = __builtin_mul_overflow(made, one, &made);
        }
    } else {
        no_operator(sign);
    }
    if (too_large) {
        throw std::runtime_error("a size of more than 64 bits");
    }
    return made;
}

IValue of_reals(const std::string &sign, double one, double other) {
    if (is_comparison(sign)) {
        return compared(sign, one, other);
    }
    if ((sign == "//" || sign == "%" || sign == "/") && other == 0) {
        throw std::domain_error("float division by zero");
    }
    const double rest = std::fmod(one, other);
    const double remainder = rest != 0 && (rest < 0) != (other < 0) ? rest + other : rest;
    return sign == "+"    ? one + other
           : sign == "-"  ? one - other
           : sign == "*"  ? one * other
           : sign == "/"  ? one / other
           : sign == "**" ? std::pow(one, other)
           : sign == "%"  ? remainder
           : sign == "//" ? std::round((one - remainder) / other)
                          : (no_operator(sign), 0.0);
}

} // namespace

IValue combined(const std::string &sign, const IValue &one, const IValue &other) {
    static const std::unordered_map<std::string, Function> of_tensors = {
        {"+", find_operator("aten::add")}, {"-", find_operator("aten::sub")}, {"*", find_operator("aten::mul")}, {"/", find_operator("aten::div")}};
    if (one.isTensor() || other.isTensor()) {
        const auto found = of_tensors.find(sign);
        return found == of_tensors.end() ? (no_operator(sign), IValue()) : found->second({{one, other}, {}});
    }
    const auto whole = [](const IValue &v) { return v.isInt() || v.isBool(); };
    const auto number = [&](const IValue &v) { return v.isDouble() ? v.toDouble() : static_cast<double>(v.isBool() ? v.toBool() : v.toInt()); };
    if (whole(one) && whole(other)) {
        return of_integers(sign, one.isBool() ? one.toBool() : one.toInt(), other.isBool() ? other.toBool() : other.toInt());
    }
    if (!(whole(one) || one.isDouble()) || !(whole(other) || other.isDouble())) {
        no_operator(sign);
    }
    return of_reals(sign, number(one), number(other));
}

// Texts

// By precedence: choice, or, and, not, comparisons, sums, products, signs, powers, what stands behind an atom, atoms.
class Parser {
  public:
    Parser(Names &names, std::string_view text) : names_(names), text_(text) { next(); }

    Part whole() {
        Part made = choice();
        if (!word_.empty()) {
            fail();
        }
        return made;
    }

  private:
    enum Kind { End, Word, Number, Text, Sign };

    [[noreturn]] void fail() const { throw std::runtime_error("a text that is not read: " + std::string(text_)); }

    void next() {
        at_ = std::min(text_.find_first_not_of(" \n", at_), text_.size());
        const size_t start = at_;
        const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
        const char first = at_ < text_.size() ? text_[at_] : '\0';
        if (first == '\'' || first == '"') {
            kind_ = Text;
            content_.clear();
            for (at_++; at_ < text_.size() && text_[at_] != first; at_++) {
                if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
                    at_++;
                    content_ += text_[at_] == 'n' ? '\n' : text_[at_];
                } else {
                    content_ += text_[at_];
                }
            }
            at_++;
        } else if (std::isdigit(static_cast<unsigned char>(first))) {
            kind_ = Number;
            const auto goes_on = [&](size_t n) {
                return is_word(text_[n]) || text_[n] == '.' || ((text_[n] == '-' || text_[n] == '+') && text_[n - 1] == 'e');
            };
            while (at_ < text_.size() && goes_on(at_)) {
                at_++;
            }
        } else if (is_word(first)) {
            kind_ = Word;
            while (at_ < text_.size() && is_word(text_[at_])) {
                at_++;
            }
        } else {
            kind_ = first == '\0' ? End : Sign;
            const std::string_view two = text_.substr(at_, 2);
            at_ += two == "//" || two == "**" || two == "==" || two == "!=" || two == "<=" || two == ">=" ? 2 : first != '\0';
        }
        word_ = text_.substr(start, std::min(at_, text_.size()) - start);
    }

    bool take(std::string_view word) {
        if (kind_ == Text || word_ != word) {
            return false;
        }
        next();
        return true;
    }

    void need(std::string_view word) {
        if (!take(word)) {
            fail();
        }
    }

    bool is(std::string_view word) const { return kind_ != Text && word_ == word; }

    static Part of(Expression value) { return {std::move(value), nullptr, ""}; }

    static Part constant(IValue value) {
        return of([value = std::move(value)](Frame &) { return value; });
    }

    Expression value(Part part) const {
        if (!part.value) {
            throw std::runtime_error("it names " + (part.path.empty() ? "a function" : part.path) + ", which is not known here");
        }
        return std::move(part.value);
    }

    Part choice() {
        Part first = either();
        if (!take("if")) {
            return first;
        }
        Expression one = value(first), condition = value(either());
        need("else");
        Expression other = value(choice());
        return of([=](Frame &frame) { return is_true(condition(frame)) ? one(frame) : other(frame); });
    }

    Part either() {
        Part made = both();
        while (take("or")) {
            Expression one = value(made), other = value(both());
            made = of([=](Frame &frame) { return is_true(one(frame)) ? IValue(true) : IValue(is_true(other(frame))); });
        }
        return made;
    }

    Part both() {
        Part made = negated();
        while (take("and")) {
            Expression one = value(made), other = value(negated());
            made = of([=](Frame &frame) { return IValue(is_true(one(frame)) && is_true(other(frame))); });
        }
        return made;
    }

    Part negated() {
        if (!take("not")) {
            return comparison();
        }
        Expression one = value(negated());
        return of([=](Frame &frame) { return IValue(!is_true(one(frame))); });
    }

    Part comparison() {
        Part made = sum();
        Expression chain;
        while (kind_ == Sign && (word_[0] == '<' || word_[0] == '>' || word_ == "==" || word_ == "!=")) {
            const std::string sign(word_);
            next();
            Part right = sum();
            Expression one = value(made), other = value(right), before = chain;
            chain = [=](Frame &frame) { return IValue((!before || is_true(before(frame))) && is_true(combined(sign, one(frame), other(frame)))); };
            made = right;
        }
        return chain ? of(chain) : made;
    }

    template <class Below> Part chained(std::initializer_list<std::string_view> signs, Below below) {
        Part made = below();
        for (bool more = true; more;) {
            more = false;
            for (const std::string_view known : signs) {
                if (kind_ == Sign && take(known)) {
                    const std::string sign(known);
                    Expression one = value(made), other = value(below());
                    made = of([=](Frame &frame) { return combined(sign, one(frame), other(frame)); });
                    more = true;
                    break;
                }
            }
        }
        return made;
    }

    Part sum() {
        return chained({"+", "-"}, [&] { return product(); });
    }

    Part product() {
        return chained({"*", "//", "/", "%"}, [&] { return signed_(); });
    }

    Part signed_() {
        if (!take("-")) {
            return power();
        }
        static const Function negate = find_operator("aten::neg");
        Expression one = value(signed_());
        return of([=](Frame &frame) {
            IValue found = one(frame);
            return found.isTensor() ? negate({{found}, {}}) : found.isDouble() ? IValue(-found.toDouble()) : combined("-", int64_t{0}, found);
        });
    }

    Part power() {
        Part base = behind();
        if (!take("**")) {
            return base;
        }
        Expression one = value(base), other = value(signed_());
        return of([=](Frame &frame) { return combined("**", one(frame), other(frame)); });
    }

    Part behind() {
        Part made = atom();
        for (;;) {
            if (take(".")) {
                const std::string name(word_);
                next();
                const Part known = named(made.path.empty() ? "" : made.path + "." + name);
                if (!made.value || known.function) {
                    made = known;
                } else if (name == "shape") {
                    made = of([one = value(made)](Frame &frame) { return IValue(one(frame).toTensor().sizes().vec()); });
                } else {
                    need("(");
                    made = call(method(name), made);
                }
            } else if (take("[")) {
                Expression one = value(made), place = value(choice());
                need("]");
                made = of([=](Frame &frame) {
                    const IValue whole = one(frame);
                    const auto at = static_cast<size_t>(place(frame).toInt());
                    return whole.isIntList() ? IValue(whole.toIntList().get(at)) : whole.toTupleRef().elements().at(at);
                });
            } else if (take("(")) {
                made = call(made, {});
            } else {
                return made;
            }
        }
    }

    // What a name with dots stands for, a name alone if it is not known yet.
    Part named(const std::string &path) const {
        const auto known = names_.parts_.find(path);
        return known == names_.parts_.end() ? Part{nullptr, names_.functions_(path), path} : known->second;
    }

    static Part method(const std::string &name) { return {nullptr, tensor_method(name), "Tensor." + name}; }

    // A call, whose opening bracket is read; self: what it is a method of.
    Part call(const Part &callee, const Part &self) {
        std::vector<Expression> args;
        std::vector<std::pair<std::string, Expression>> given;
        std::vector<Part> parts;
        if (self.value) {
            args.push_back(self.value);
        }
        const auto builder = builders().find(callee.path);
        while (!take(")")) {
            std::string name;
            if (kind_ == Word && at_ < text_.size() && text_[at_] == '=' && text_.substr(at_, 2) != "==") {
                name = word_;
                next();
                next();
            } else if (is("*") || is("**")) {
                fail();
            }
            Part part = choice();
            parts.push_back(part);
            if (builder == builders().end()) {
                name.empty() ? static_cast<void>(args.push_back(value(part))) : static_cast<void>(given.emplace_back(name, value(part)));
            }
            if (!is(")")) {
                need(",");
            }
        }
        if (builder != builders().end()) {
            Frame frame = names_.frame();
            return {nullptr, builder->second(parts, frame), ""};
        }
        if (!callee.function) {
            throw std::runtime_error("it calls " + (callee.path.empty() ? "a value" : callee.path) + ", which only Python has");
        }
        return of([function = callee.function, args, given](Frame &frame) {
            Arguments found;
            for (const Expression &one : args) {
                found.args.push_back(one(frame));
            }
            for (const auto &[name, one] : given) {
                found.named.emplace_back(name, one(frame));
            }
            return function(std::move(found));
        });
    }

    Part items(std::string_view end) {
        std::vector<Expression> made;
        bool is_one = end == ")";
        Part last;
        while (!take(end)) {
            last = choice();
            made.push_back(value(last));
            if (!is(end)) {
                need(",");
                is_one = false;
            }
        }
        if (is_one && made.size() == 1) {
            return last;
        }
        return of([made](Frame &frame) {
            std::vector<IValue> found;
            for (const Expression &one : made) {
                found.push_back(one(frame));
            }
            return tuple_of(std::move(found));
        });
    }

    Part lambda() {
        std::vector<size_t> places;
        while (!take(":")) {
            if (kind_ != Word) {
                fail();
            }
            places.push_back(names_.slot(std::string(word_)));
            next();
            take(",");
        }
        Expression body = value(choice());
        return {nullptr, [places, body, frame = names_.frame()](Arguments &&given) {
                    Frame own = frame;
                    own.values.resize(std::max(own.values.size(), *std::max_element(places.begin(), places.end()) + 1));
                    own.known.resize(own.values.size());
                    for (size_t n = 0; n < places.size(); n++) {
                        own.set(places[n], given.args.at(n));
                    }
                    return body(own);
                }, ""};
    }

    Part number() {
        const std::string text(word_);
        next();
        if (text.find_first_of(".eE") == std::string::npos) {
            return constant(static_cast<int64_t>(std::stoll(text)));
        }
        return constant(std::stod(text));
    }

    Part atom() {
        switch (kind_) {
        case Text: {
            const std::string text = content_;
            next();
            return constant(text);
        }
        case Number:
            return number();
        case Word:
            break;
        default:
            return take("(") ? items(")") : take("[") ? items("]") : (fail(), Part());
        }
        if (take("lambda")) {
            return lambda();
        }
        const std::string name(word_);
        next();
        const auto slot = names_.slots_.find(name);
        if (slot != names_.slots_.end()) {
            if (std::find(names_.mentioned_.begin(), names_.mentioned_.end(), name) == names_.mentioned_.end()) {
                names_.mentioned_.push_back(name);
            }
            return of([place = slot->second, name](Frame &frame) {
                if (!frame.known[place]) {
                    throw std::runtime_error("a host program reads '" + name + "' before it is made, or after it is freed");
                }
                return frame.values[place];
            });
        }
        return named(name);
    }

    Names &names_;
    std::string_view text_, word_;
    std::string content_;
    size_t at_ = 0;
    Kind kind_ = End;
};

size_t Names::slot(const std::string &name) {
    return slots_.emplace(name, slots_.size()).first->second;
}

void Names::define(const std::string &name, Part part) {
    part.path = name;
    parts_[name] = std::move(part);
}

Frame Names::frame() const {
    return {std::vector<IValue>(slots_.size()), std::vector<char>(slots_.size())};
}

Part Names::parse(std::string_view text) {
    mentioned_.clear();
    return Parser(*this, text).whole();
}

Expression Names::expression(std::string_view text) {
    Part made = parse(text);
    if (!made.value) {
        throw std::runtime_error("it names " + std::string(text) + ", which is not known here");
    }
    return made.value;
}

} // namespace tracework
