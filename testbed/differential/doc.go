// Package differential compares provider/mlx5 with C's libmlx5: a C program
// (testdata/play.c) and a Go program (package play) run the same script in one
// guest, on the software ConnectX, which traces their commands and requests.
// The traces are compared command by command, WQE by WQE, doorbell by doorbell
// and CQE by CQE, as are the completions and the contents of memory that the
// programs print. Permitted differences are listed with reasons; a listed
// difference must occur.
package differential
