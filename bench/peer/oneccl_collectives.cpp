// oneccl_collectives.cpp: collectives of Intel oneCCL on the CPU, timed as mpi_collectives.c times those of an MPI.
// SPDX-License-Identifier: MIT
//
//     mpirun -np N oneccl_collectives OP... BYTES...        lines of: collective, bytes of the larger buffer, microseconds
//
// oneCCL has no gather and no scatter: they are passed over.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mpi.h>
#include <oneapi/ccl.hpp>
#include <string>
#include <vector>

static const int WARMUP = 5, LEAST = 10, MOST = 1000;
static const double SECONDS = 0.4;

struct stand {
    int rank, size;
    std::vector<float> src, dst;
};

using call = std::function<void()>;

static call find(const std::string &op, stand &s, size_t whole, ccl::communicator &comm)
{
    float *src = s.src.data(), *dst = s.dst.data();
    size_t piece = whole / (size_t)s.size;
    std::vector<size_t> counts((size_t)s.size, piece);

    if (op == "all_reduce")
        return [=, &comm] { ccl::allreduce(dst, dst, whole, ccl::reduction::sum, comm).wait(); };
    if (op == "reduce")
        return [=, &comm] { ccl::reduce(dst, dst, whole, ccl::reduction::sum, 0, comm).wait(); };
    if (op == "reduce_scatter")
        return
            [=, &comm] { ccl::reduce_scatter(src, dst, piece, ccl::reduction::sum, comm).wait(); };
    if (op == "broadcast")
        return [=, &comm] { ccl::broadcast(dst, whole, 0, comm).wait(); };
    if (op == "all_gather")
        return [=, &s, &comm] {
            ccl::allgatherv(dst + (size_t)s.rank * piece, piece, dst, counts, comm).wait();
        };
    if (op == "all_to_all")
        return [=, &comm] { ccl::alltoall(src, dst, piece, comm).wait(); };
    if (op == "barrier")
        return [&comm] { ccl::barrier(comm); };
    return nullptr;
}

static double timed(const call &run)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    run();
    return MPI_Wtime() - begin;
}

static void measure(const std::string &op, const stand &s, const call &run, size_t bytes)
{
    double begin = MPI_Wtime();
    for (int i = 0; i < WARMUP; i++)
        (void)timed(run);
    int calls = (int)(SECONDS / ((MPI_Wtime() - begin) / WARMUP + 1e-9));
    calls = std::min(std::max(calls, LEAST), MOST);
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    std::vector<double> times;
    for (int i = 0; i < calls; i++)
        times.push_back(timed(run) * 1e6 / s.size);
    MPI_Allreduce(MPI_IN_PLACE, times.data(), calls, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    std::sort(times.begin(), times.end());
    if (s.rank == 0)
        std::printf("%s %zu %.3f\n", op.c_str(), bytes, times[(size_t)calls / 2]);
}

int main(int argc, char **argv)
{
    stand s;
    std::vector<std::string> ops;
    std::vector<size_t> sizes;
    ccl::shared_ptr_class<ccl::kvs> kvs;
    ccl::kvs::address_type address;

    ccl::init();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s.size);
    if (s.rank == 0) {
        kvs = ccl::create_main_kvs();
        address = kvs->get_address();
    }
    MPI_Bcast(address.data(), (int)address.size(), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (s.rank != 0)
        kvs = ccl::create_kvs(address);
    {
        ccl::communicator comm = ccl::create_communicator(s.size, s.rank, kvs);
        for (int i = 1; i < argc; i++)
            if (std::atol(argv[i]) > 0)
                sizes.push_back((size_t)std::atol(argv[i]) / sizeof(float));
            else
                ops.push_back(argv[i]);
        size_t n = (size_t)s.size, most = n;
        for (size_t whole : sizes)
            most = std::max(most, whole);
        s.src.assign(most, 0);
        s.dst.assign(most, 0);
        for (const std::string &op : ops)
            for (size_t whole : sizes) {
                bool even = op != "all_reduce" && op != "reduce" && op != "broadcast";
                size_t count = even ? std::max(whole / n, (size_t)1) * n : whole;
                call run = find(op, s, count, comm);

                if (run)
                    measure(op, s, run, op == "barrier" ? 0 : count * sizeof(float));
                if (!run || op == "barrier")
                    break;
            }
    }
    MPI_Finalize();
    return 0;
}
