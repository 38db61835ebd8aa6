// Package speed compares programs with their C namesakes. Those on rxe run in
// one guest, in turn, and the median of the ratios is printed: by hand (make
// bench), for nobody judges it. Those on the software ConnectX count
// instructions, which repeat, so that TestCost can hold them to budgets.
package speed
