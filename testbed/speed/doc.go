// Package speed holds what requests cost, in instructions, to budgets: they
// repeat on the software ConnectX. testbed/bench compares what does not repeat.
package speed
