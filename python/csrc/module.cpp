// module.cpp -- the extension module: makes a backend, and what c10d has no method for.   SPDX-License-Identifier: MIT
#include <torch/csrc/Dtype.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.hpp"
#include "group_memory.hpp"

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

namespace tutti_torch
{

namespace
{

namespace py = pybind11;
using BackendPtr = c10::intrusive_ptr<Backend>;

TuttiBackend &of(const BackendPtr &backend)
{
    auto *own = dynamic_cast<TuttiBackend *>(backend.get());

    TORCH_CHECK(own, "tutti: a backend of another kind: ", backend->getBackendName());
    return *own;
}

// `ranks`: of the default group, of which this one is made; empty for the default group itself; None for one beside it.
BackendPtr create(const StorePtr &store, int rank, int size, double timeout_s,
                  const std::string &name, const std::optional<std::vector<int>> &ranks,
                  bool without_members)
{
    const Place place = {rank, size,
                         std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000)), name};
    const auto hooks = std::make_shared<Hooks>();
    std::shared_ptr<Group> group;

    if (ranks && !ranks->empty())
        group = join_part(TuttiBackend::group_of_default(), *ranks, store, place, hooks);
    else if (!without_members)
        group = join_in(store, place, hooks);
    auto backend = c10::make_intrusive<TuttiBackend>(store, place, group, hooks);
    if (ranks && ranks->empty())
        TuttiBackend::become_default(backend.get());
    return backend;
}

// For releases whose Backend has no allocate_tensor in Python.
at::Tensor allocate(const BackendPtr &backend, int64_t count, const py::object &dtype)
{
    TORCH_CHECK(THPDtype_Check(dtype.ptr()), "tutti: allocate: expected a torch.dtype");
    const auto type = reinterpret_cast<THPDtype *>(dtype.ptr())->scalar_type;

    return of(backend).allocateTensor(count, at::TensorOptions().dtype(type).device(at::kCPU));
}

} // namespace

} // namespace tutti_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    using namespace tutti_torch;
    using unlocked = py::call_guard<py::gil_scoped_release>;

    m.attr("built_for") = TUTTI_TORCH_BUILT_FOR;
    m.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"),
          py::arg("timeout_s"), py::arg("name"), py::arg("ranks") = py::none(),
          py::arg("without_members") = false, unlocked());
    m.def(
        "transport", [](const BackendPtr &b) { return of(b).transport(); }, unlocked());
    m.def("allocate", &allocate);
    m.def("set_group_memory", [](const BackendPtr &b) {
        return BackendPtr::reclaim_copy(set_group_memory(b ? &of(b) : nullptr));
    });
    m.def("leave_all", &TuttiBackend::leave_all, unlocked());
}
