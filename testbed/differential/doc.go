// Package differential holds provider/mlx5 against C's libmlx5: a C program
// (testdata/play.c) and a Go program (package play) do the steps of one script
// in one guest, on the software ConnectX, which traces what each of them has it
// do. The traces are compared command by command, WQE by WQE, doorbell by
// doorbell, CQE by CQE, and so is what the two print of their completions and
// of their memory. What may differ is a list with reasons, in which nothing may
// stand that does not differ.
package differential
