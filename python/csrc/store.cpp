// store.cpp -- PyTorch's store as a store of the library.   SPDX-License-Identifier: MIT
//
// On the program's own connection. Another one would cost a TCP store's server a look-up of its address in the DNS, in the one
// thread that serves all ranks, and a descriptor on both sides.
#include "store.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace tutti_torch
{

namespace
{

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using Bytes = std::vector<uint8_t>;
using Clock = std::chrono::steady_clock;

c10d::Store &of(void *user)
{
    return **static_cast<StorePtr *>(user);
}

Bytes bytes(const void *p, size_t n)
{
    const auto *first = static_cast<const uint8_t *>(p);

    return Bytes(first, first + n);
}

// Runs `call`, and turns what it throws into IO.
template <class Call>
tutti_status guarded(const char *what, const char *key, Call &&call)
{
    try {
        return call();
    } catch (const c10::Error &error) {
        return tutti_fail(TUTTI_ERR_IO, "PyTorch's store: %s of \"%s\": %s", what, key,
                          error.what_without_backtrace());
    } catch (const std::exception &error) {
        return tutti_fail(TUTTI_ERR_IO, "PyTorch's store: %s of \"%s\": %s", what, key,
                          error.what());
    }
}

tutti_status set(void *user, const char *key, const void *value, size_t n)
{
    return guarded("set", key, [&] {
        of(user).set(key, bytes(value, n));
        return TUTTI_OK;
    });
}

// Polls: a wait would keep the program's connection busy for its other threads.
tutti_status wait(void *user, const char *key, int timeout_ms)
{
    return guarded("wait", key, [&] {
        const auto begin = Clock::now();

        while (!of(user).check({key})) {
            const auto waited = Clock::now() - begin;

            if (waited >= std::chrono::milliseconds(timeout_ms))
                return TUTTI_ERR_TIMEOUT;
            std::this_thread::sleep_for(pause_after(waited));
        }
        return TUTTI_OK;
    });
}

tutti_status give(const Bytes &found, void *value, size_t *n)
{
    if (!found.empty() && found.size() <= *n)
        std::memcpy(value, found.data(), found.size());
    *n = found.size();
    return TUTTI_OK;
}

tutti_status get(void *user, const char *key, void *value, size_t *n, int timeout_ms)
{
    TUTTI_TRY(wait(user, key, timeout_ms));
    return guarded("get", key, [&] { return give(of(user).get(key), value, n); });
}

// Whether the key is there and not a number, which `add` reports in a way of each store's own.
bool is_no_number(c10d::Store &store, const char *key)
{
    try {
        if (!store.check({key}))
            return false;
        const Bytes found = store.get(key);
        const std::string text(found.begin(), found.end());
        size_t length = 0;

        std::stoll(text, &length);
        return length != text.size();
    } catch (const std::logic_error &) { // of stoll
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

tutti_status add(void *user, const char *key, int64_t amount, int64_t *sum_p)
{
    const tutti_status status = guarded("add", key, [&] {
        *sum_p = of(user).add(key, amount);
        return TUTTI_OK;
    });

    return status == TUTTI_ERR_IO && is_no_number(of(user), key) ? TUTTI_ERR_FORMAT : status;
}

tutti_status compare_set(void *user, const char *key, const void *expected, size_t expected_bytes,
                         const void *desired, size_t desired_bytes, void *value, size_t *n)
{
    return guarded("compare_set", key, [&] {
        return give(of(user).compareSet(key, bytes(expected, expected_bytes),
                                        bytes(desired, desired_bytes)),
                    value, n);
    });
}

tutti_status remove(void *user, const char *key, bool *existed_p)
{
    return guarded("delete", key, [&] {
        const bool existed = of(user).deleteKey(key);

        if (existed_p)
            *existed_p = existed;
        return TUTTI_OK;
    });
}

void release(void *user)
{
    delete static_cast<StorePtr *>(user);
}

} // namespace

Clock::duration pause_after(Clock::duration waited)
{
    return std::clamp<Clock::duration>(waited / 8, std::chrono::microseconds(50),
                                       std::chrono::milliseconds(50));
}

tutti_status store_new(tutti_store **store_p, const c10::intrusive_ptr<c10d::Store> &store,
                       const std::string &reaches)
{
    auto *user = new StorePtr(store);
    tutti_store_callbacks callbacks = {};
    tutti_status status;

    callbacks.set = set;
    callbacks.get = get;
    callbacks.wait = wait;
    callbacks.add = add;
    callbacks.compare_set = compare_set;
    callbacks.remove = remove;
    callbacks.release = release;
    callbacks.name = "PyTorch's store";
    callbacks.reaches = reaches.empty() ? nullptr : reaches.c_str();
    status = tutti_store_custom_new(store_p, &callbacks, user);
    if (status != TUTTI_OK)
        release(user);
    return status;
}

} // namespace tutti_torch
