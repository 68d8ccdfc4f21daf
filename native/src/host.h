// The host program of one artifact: its lines, run in order (tracework_runtime/host).
#pragma once

#include "archive.h"
#include "library.h"

#include <memory>
#include <mutex>

namespace tracework {

// The shared object of a kernel, loaded from memory.
class SharedObject {
  public:
    explicit SharedObject(const std::string &content);
    ~SharedObject();
    SharedObject(const SharedObject &) = delete;
    SharedObject &operator=(const SharedObject &) = delete;
    void *symbol(const std::string &name) const;

  private:
    int file_ = -1;
    void *handle_ = nullptr;
};

// Those of a target by the hash of their text, each loaded once.
using SharedObjects = std::map<std::string, std::shared_ptr<SharedObject>>;

class Host {
  public:
    // Throws Failure for what this library cannot run.
    Host(const Packed &artifact, const SharedObjects &binaries, const c10::intrusive_ptr<Fixed> &fixed);

    // What the graph gives; several threads may call.
    std::vector<IValue> operator()(std::vector<IValue> inputs);

  private:
    struct Workspace {
        at::Tensor memory;
        uint8_t *address;
        IValue views;
    };
    struct Run {
        Frame frame;
        std::unique_ptr<Workspace> work;
        std::vector<IValue> results;
    };
    struct Kernel {
        void *function;
        std::string result;
        size_t operands;
        bool in_table;
    };
    struct Operand {
        bool is_address, is_work;
        size_t slot;
        Expression number;
    };
    using Step = std::function<void(Run &)>;

    void read_globals(const Packed &artifact);
    void read_kernels(const Packed &artifact, const SharedObjects &binaries);
    Step step(const Json &line);
    Step launch(const Json &line);
    Step statement(const std::string &text);
    Expression extent(const Json &value);
    std::function<std::vector<int64_t>(Frame &)> extents(const Json &values);
    std::unique_ptr<Workspace> take(int64_t size);

    Names names_;
    std::map<std::string, Kernel> kernels_;
    Expression windows_; // of these two
    size_t memory_ = 0, first_ = 0;
    std::vector<size_t> inputs_;
    std::vector<Step> steps_;
    std::vector<std::shared_ptr<SharedObject>> held_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Workspace>> free_;
};

} // namespace tracework
