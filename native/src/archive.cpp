#include "archive.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

// Of the miniz that libtorch has: a deflated stream without a header; the bytes that it gave, or (size_t)-1.
extern "C" size_t tinfl_decompress_mem_to_mem(void *out, size_t out_size, const void *in, size_t in_size, int flags);

namespace tracework {
namespace {

const char *const KIND = "tracework program";
constexpr int SCHEMA = 1;
const char *const MANIFEST = "manifest.json", *const SEAL = "seal.json";
const char *const AGAIN = "copy it again, or make it again";

template <class Number> Number number_at(std::string_view data, size_t offset) {
    if (offset > data.size() || data.size() - offset < sizeof(Number)) {
        throw std::runtime_error("a number beyond its end");
    }
    Number found;
    std::memcpy(&found, data.data() + offset, sizeof(found));
    return found;
}

std::string_view part(std::string_view data, size_t offset, size_t size) {
    if (offset > data.size() || data.size() - offset < size) {
        throw std::runtime_error("a part beyond its end");
    }
    return data.substr(offset, size);
}

std::string signature(std::string key, const std::string &digest) {
    key = key.size() > 64 ? sha256(key) : key;
    key.resize(64, '\0');
    std::string inner = key, outer = key;
    for (size_t n = 0; n < 64; n++) {
        inner[n] = static_cast<char>(inner[n] ^ 0x36);
        outer[n] = static_cast<char>(outer[n] ^ 0x5C);
    }
    return hex(sha256(outer + sha256(inner + digest)));
}

bool same_in_equal_time(const std::string &one, const std::string &other) {
    int differs = one.size() != other.size();
    for (size_t n = 0; n < one.size() && n < other.size(); n++) {
        differs |= one[n] ^ other[n];
    }
    return differs == 0;
}

} // namespace

std::string sha256(std::string_view data) {
    static const std::array<uint32_t, 64> k = [] { // the fractions of the primes' cube roots, as FIPS 180-4 defines them
        std::array<uint32_t, 64> made{};
        size_t count = 0;
        for (uint64_t n = 2; count < 64; n++) {
            bool prime = true;
            for (uint64_t d = 2; d * d <= n; d++) {
                prime = prime && n % d != 0;
            }
            if (prime) { // floor(cbrt(n) * 2^32), by halving
                __uint128_t low = 0, high = static_cast<__uint128_t>(8) << 32;
                while (high - low > 1) {
                    const __uint128_t middle = (low + high) / 2;
                    (middle * middle * middle <= static_cast<__uint128_t>(n) << 96 ? low : high) = middle;
                }
                made[count++] = static_cast<uint32_t>(low);
            }
        }
        return made;
    }();
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const auto turned = [](uint32_t x, int by) { return x >> by | x << (32 - by); };
    const auto block = [&](const unsigned char *at) {
        uint32_t w[64];
        for (int i = 0; i < 16; i++) {
            w[i] = static_cast<uint32_t>(at[4 * i]) << 24 | at[4 * i + 1] << 16 | at[4 * i + 2] << 8 | at[4 * i + 3];
        }
        for (int i = 16; i < 64; i++) {
            const uint32_t a = w[i - 15], b = w[i - 2];
            w[i] = w[i - 16] + w[i - 7] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
        }
        uint32_t v[8];
        std::memcpy(v, h, sizeof(v));
        for (int i = 0; i < 64; i++) {
            const uint32_t s1 = turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25);
            const uint32_t first = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[static_cast<size_t>(i)] + w[i];
            const uint32_t s0 = turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22);
            const uint32_t second = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
            std::memmove(v + 1, v, 7 * sizeof(uint32_t));
            v[4] += first;
            v[0] = first + second;
        }
        for (int i = 0; i < 8; i++) {
            h[i] += v[i];
        }
    };
    const auto *at = reinterpret_cast<const unsigned char *>(data.data());
    const size_t whole = data.size() / 64 * 64;
    for (size_t n = 0; n < whole; n += 64) {
        block(at + n);
    }
    std::string last(data.substr(whole));
    last += '\x80';
    last.resize(last.size() <= 56 ? 56 : 120, '\0');
    for (int n = 7; n >= 0; n--) {
        last += static_cast<char>(static_cast<uint64_t>(data.size()) * 8 >> 8 * n);
    }
    for (size_t n = 0; n < last.size(); n += 64) {
        block(reinterpret_cast<const unsigned char *>(last.data()) + n);
    }
    std::string made;
    for (const uint32_t word : h) {
        for (int n = 3; n >= 0; n--) {
            made += static_cast<char>(word >> 8 * n);
        }
    }
    return made;
}

std::string hex(std::string_view bytes) {
    std::string made;
    for (const char byte : bytes) {
        made += "0123456789abcdef"[byte >> 4 & 15];
        made += "0123456789abcdef"[byte & 15];
    }
    return made;
}

Packed unpack(std::string_view data, const std::string &name) {
    constexpr size_t trailer = 8 + 32, head = 8 + 4 + 8;
    if (data.size() < trailer + head || data.substr(data.size() - trailer, 8) != "TWSEAL01" || data.substr(0, 8) != "TRACEWRK") {
        throw Failure(name + ": cut short or not written by tracework", AGAIN);
    }
    const std::string_view content = data.substr(0, data.size() - trailer);
    if (sha256(content) != data.substr(data.size() - 32)) {
        throw Failure(name + ": content does not have the hash it was written with", AGAIN);
    }
    if (const auto version = number_at<uint32_t>(content, 8); version != FORMAT) {
        throw Failure(name + ": written in format " + std::to_string(version) + ", this version reads format " + std::to_string(FORMAT),
                      "make the file again with this version");
    }
    try {
        const auto length = number_at<uint64_t>(content, 12);
        Json document = Json::parse(part(content, head, length));
        Packed made;
        for (const auto &[key, place] : document.at("sections").fields) {
            const auto offset = static_cast<size_t>(place.at(size_t{0}).number()), size = static_cast<size_t>(place.at(1).number());
            made.sections[key] = part(content.substr(head + length), offset, size);
        }
        made.header = document.at("header");
        return made;
    } catch (const std::runtime_error &error) {
        throw Failure(name + ": its header cannot be read: " + error.what(), AGAIN);
    }
}

Archive::Archive(const std::string &file, const char *key) : name_(file) {
    const int opened = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat facts {};
    if (opened < 0 || fstat(opened, &facts) != 0) {
        throw Failure(file + " cannot be opened: " + std::strerror(errno), "give the name of a file that tracework.save() wrote");
    }
    const auto size = static_cast<size_t>(facts.st_size);
    void *memory = size ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened, 0) : MAP_FAILED;
    close(opened);
    if (memory == MAP_FAILED) {
        throw refused("it is no program of tracework, or cut short (it cannot be read)", AGAIN);
    }
    data_ = {static_cast<const char *>(memory), size};
    try {
        try {
            read_directory();
        } catch (const std::runtime_error &error) {
            throw refused(std::string("it is no program of tracework, or cut short (") + error.what() + ")", AGAIN);
        }
        if (!places_.count(MANIFEST) || !places_.count(SEAL)) {
            throw refused("it is a zip file, but no program of tracework", "give a file that tracework.save() wrote");
        }
        std::string room;
        const std::string_view text = bytes(MANIFEST, room);
        try {
            manifest_ = Json::parse(text);
            if (manifest_.at("kind").str() != KIND) {
                throw refused("it is '" + manifest_.at("kind").str() + "', not '" + KIND + "'", "give a file that tracework.save() wrote");
            }
            if (const int64_t schema = manifest_.at("schema").number(); schema != SCHEMA) {
                throw refused("it is written in schema " + std::to_string(schema) + ", and this version reads schema " + std::to_string(SCHEMA),
                              schema > SCHEMA ? "install a newer version of tracework" : "make it again with this version");
            }
            manifest_.at("members");
        } catch (const Failure &) {
            throw;
        } catch (const std::runtime_error &error) {
            throw refused(std::string("its manifest is damaged (") + error.what() + ")", AGAIN);
        }
        check_seal(text, key);
        std::set<std::string> listed = {MANIFEST, SEAL}, others;
        for (const auto &[name, facts_of] : manifest_.at("members").fields) {
            listed.insert(name);
        }
        for (const auto &[name, place] : places_) {
            others.insert(name);
        }
        for (const std::string &name : listed) {
            others.count(name) ? static_cast<void>(others.erase(name)) : static_cast<void>(others.insert(name));
        }
        if (!others.empty() || twice_) {
            std::string names;
            for (const std::string &name : others) {
                names += names.empty() ? "" : ", ";
                for (const char letter : name) { // damage need not be text
                    names += letter & 0x80 ? '?' : letter;
                }
            }
            throw refused("it does not have the members that its manifest lists (" + (names.empty() ? "one twice" : names) + ")", AGAIN);
        }
    } catch (...) {
        munmap(memory, size);
        throw;
    }
}

Archive::~Archive() {
    munmap(const_cast<char *>(data_.data()), data_.size());
}

Failure Archive::refused(const std::string &what, const std::string &advice) const {
    return Failure(name_ + " cannot be loaded: " + what, advice);
}

void Archive::read_directory() {
    const size_t end = data_.rfind("PK\5\6");
    if (end == std::string_view::npos) {
        throw std::runtime_error("File is not a zip file");
    }
    size_t count = number_at<uint16_t>(data_, end + 10), at = number_at<uint32_t>(data_, end + 16);
    if (at == 0xFFFFFFFF || count == 0xFFFF) { // its large form is named by 20 bytes before
        const auto large = number_at<uint64_t>(data_, end - 20 + 8);
        count = number_at<uint64_t>(data_, large + 32);
        at = number_at<uint64_t>(data_, large + 48);
    }
    for (size_t n = 0; n < count; n++) {
        if (part(data_, at, 4) != "PK\1\2") {
            throw std::runtime_error("Bad magic number for central directory");
        }
        const size_t names = number_at<uint16_t>(data_, at + 28), extra = number_at<uint16_t>(data_, at + 30);
        const size_t comment = number_at<uint16_t>(data_, at + 32);
        uint64_t numbers[] = {number_at<uint32_t>(data_, at + 24), number_at<uint32_t>(data_, at + 20), number_at<uint32_t>(data_, at + 42)};
        size_t field = at + 46 + names;
        for (const size_t last = field + extra; field + 4 <= last; field += 4 + number_at<uint16_t>(data_, field + 2)) {
            size_t wide = field + 4; // those that did not fit stand here, in this order
            for (uint64_t &number : numbers) {
                if (number_at<uint16_t>(data_, field) == 1 && number == 0xFFFFFFFF) {
                    number = number_at<uint64_t>(data_, wide);
                    wide += 8;
                }
            }
        }
        const size_t local = numbers[2];
        const size_t offset = local + 30 + number_at<uint16_t>(data_, local + 26) + number_at<uint16_t>(data_, local + 28);
        const Place place{offset, numbers[1], numbers[0], number_at<uint16_t>(data_, at + 10)};
        twice_ = !places_.emplace(part(data_, at + 46, names), place).second || twice_;
        at += 46 + names + extra + comment;
    }
}

std::string_view Archive::bytes(const std::string &name, std::string &room) const {
    const Place &place = places_.at(name);
    try {
        const std::string_view packed = part(data_, place.offset, place.packed);
        if (place.method == 0) {
            return packed;
        }
        if (place.size > 1100 * packed.size() + 64) { // more than any stream becomes
            throw std::runtime_error("a size that it cannot have");
        }
        room.assign(place.size, '\0');
        if (place.method != 8 || tinfl_decompress_mem_to_mem(room.data(), room.size(), packed.data(), packed.size(), 0) != room.size()) {
            throw std::runtime_error("it cannot be decompressed");
        }
        return room;
    } catch (const std::runtime_error &error) {
        throw refused("its member " + name + " is damaged (" + error.what() + ")", AGAIN);
    }
}

void Archive::check_seal(std::string_view text, const char *key) const {
    const std::string digest = sha256(text);
    Json seal;
    bool whole = false;
    try {
        std::string room;
        seal = Json::parse(bytes(SEAL, room));
        whole = seal.at("manifest").str() == hex(digest);
        seal.at("signature");
    } catch (const Failure &) {
        throw;
    } catch (const std::runtime_error &error) {
        throw refused(std::string("its seal is damaged (") + error.what() + ")", AGAIN);
    }
    if (!whole) {
        throw refused("its manifest does not have the hash that it was written with", AGAIN);
    }
    if (key == nullptr) {
        return;
    }
    if (seal.at("signature").kind != Json::Text) {
        throw refused("it is not signed, and a key was given", "sign it with save(..., key=), or load it without a key");
    }
    if (!same_in_equal_time(seal.at("signature").str(), signature(key, digest))) {
        throw refused("it is signed with another key", "give the key that it was saved with, if you trust where it comes from");
    }
}

std::string_view Archive::member(const std::string &name, std::string &room) const {
    const std::string_view data = bytes(name, room);
    const Json &wanted = manifest_.at("members").at(name);
    if (wanted.at("size").number() != static_cast<int64_t>(data.size()) || wanted.at("sha256").str() != hex(sha256(data))) {
        throw refused("its member " + name + " does not have the hash that it was written with", AGAIN);
    }
    return data;
}

} // namespace tracework
