# cmake -D FROM=file -D TO=file.inc -P Embed.cmake: a file's bytes as the numbers of a C array.
file(READ ${FROM} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}") # or all would be one line
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE ",[\n]*$" "\n" bytes "${bytes}")
file(WRITE ${TO} "${bytes}")
