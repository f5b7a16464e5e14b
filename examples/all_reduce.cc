// all_reduce.cc -- C++ over the small library.   SPDX-License-Identifier: MIT
//
//     c++ all_reduce.cc $(pkg-config --cflags --libs tutti_comm) && tutti run -n 2 ./a.out
#include <numeric>
#include <vector>
#include <tutti/group.h>

int main()
{
    tutti_group *group;
    std::vector<double> x(1000);

    TUTTI_MUST(
        tutti_group_init(&group, nullptr)); // from RANK, WORLD_SIZE, ...; alone: a group of one
    std::iota(x.begin(), x.end(), tutti_group_rank(group));
    TUTTI_MUST(
        tutti_all_reduce(group, TUTTI_BUF(x.data(), x.size(), TUTTI_F64), TUTTI_SUM, nullptr));
    tutti_log0(group, "%d ranks, sum of the last elements %g", tutti_group_size(group), x.back());
    tutti_group_free(group);
}
