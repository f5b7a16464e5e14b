/* data_tokenize.h -- `tutti data tokenize`.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_DATA_TOKENIZE_H
#define TUTTI_CLI_DATA_TOKENIZE_H

/* Arguments behind the word. Returns the exit code. */
int tutti__data_tokenize(int argc, char **argv);
/* Its part of the help. */
extern const char tutti__data_tokenize_help[];

#endif
