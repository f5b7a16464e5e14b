/* cli.h -- the subcommands of `tutti`: one function each, one row of commands.def each.
 * SPDX-License-Identifier: MIT
 *
 * argv[0] is the subcommand's name ("run"), the rest are its own arguments. The subcommand handles --help
 * (exit 0, standard output). It returns the exit code: 0; 1 the program's own failure; 2 usage; 3 a peer was lost;
 * 4 memory, disk or device. A usage error is one line on standard error that begins "tutti NAME: ". */
#ifndef TUTTI_CLI_H
#define TUTTI_CLI_H

#define COMMAND(name, help) int tutti__cli_##name(int argc, char **argv);
#define LATER(name, help)
#include "cli/commands.def"
#undef COMMAND
#undef LATER

#endif
